// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/migrate"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/output"
)

// migrationReport is the answer of migrate nodewright.
type migrationReport struct {
	To         string         `json:"to"`
	Applied    bool           `json:"applied"`
	DryRun     bool           `json:"dryRun"`
	Objects    []migratedItem `json:"objects"`
	Nodes      []string       `json:"nodes"` // that change
	Jobs       []string       `json:"jobs"`  // whose outcome is recorded
	ConfigMaps int            `json:"configMaps"`
	Webhooks   []string       `json:"webhooks"` // that are removed
	Files      []string       `json:"files,omitempty"`
	Gaps       []migrate.Gap  `json:"gaps"`
	Left       []string       `json:"left"` // what remains to be done
}

type migratedItem struct {
	Original string `json:"original"`
	Becomes  string `json:"becomes"`
	Action   string `json:"action"`
}

func (m *migration) newReport() migrationReport {
	r := migrationReport{To: m.direction.To.Kind, Applied: m.apply && !m.DryRun, DryRun: m.DryRun, Objects: []migratedItem{},
		Nodes: session.NodeNames(m.edited), Jobs: []string{}, Webhooks: []string{}, Gaps: append([]migrate.Gap{}, m.gaps...), Left: m.listLeft()}
	for _, move := range m.moves {
		r.Objects = append(r.Objects, migratedItem{kindAndName(move.original), kindAndName(move.wanted), move.action})
	}
	for _, j := range m.record {
		if m.hasNode(j.Node) {
			r.Jobs = append(r.Jobs, j.String())
		}
	}
	if !m.isDone() {
		for _, w := range m.webhooks {
			r.Webhooks = append(r.Webhooks, w.GetName())
		}
		for _, cm := range m.configMaps {
			if owner := cm.OwnerReferences; len(owner) > 0 {
				r.ConfigMaps++
			}
		}
	}
	return r
}

// isDone reports whether everything was moved before.
func (m *migration) isDone() bool {
	return !slices.ContainsFunc(m.moves, func(o *objectMove) bool { return o.action != actionSkip })
}

// listLeft lists what a person still has to do.
func (m *migration) listLeft() []string {
	left := []string{}
	if len(m.moves) == 0 {
		return left
	}
	for _, j := range m.jobs {
		switch {
		case j.Phase == migrate.JobSuspended:
			left = append(left, j.String()+" is suspended: its stage runs again when the Skyhook is resumed")
		case j.Phase == migrate.JobFailed:
			left = append(left, j.String()+" failed: its stage runs again")
		case j.Phase == migrate.JobSucceeded && !m.hasNode(j.Node):
			left = append(left, j.String()+" ran on a node that no longer exists: nothing is recorded")
		}
	}
	if m.back {
		return append(left, "NodeWright's webhook configurations: its chart creates them again with helm upgrade")
	}
	if m.rules.FromTaint != m.rules.ToTaint && len(m.rules.Objects) > 0 {
		left = append(left, fmt.Sprintf("new nodes that register with the taint %s: change the taint of their pools, or the operator's RUNTIME_REQUIRED_TAINT, to the same", m.rules.FromTaint.ToString()))
	}
	return append(left, "NodeWrights and their keys on nodes stay, for --back: docs/tasks/from-nodewright.md says how to remove them")
}

// review prints the plan, and writes the manifests if a directory is given.
func (m *migration) review() error {
	r := m.newReport()
	var failed error
	if m.directory != "" {
		r.Files, failed = m.writeReview()
	}
	for _, g := range m.gaps {
		m.Warn("%s", g)
	}
	if err := m.Print(output.Answer{Value: r, Names: movedNames(r), Text: func(bool) string {
		text := m.formatPlan()
		if len(r.Files) > 0 {
			text += fmt.Sprintf("Wrote %s to %s%s\n", output.Count(len(r.Files), "manifest"), m.directory, m.DryRunSuffix())
		}
		if !m.isDone() {
			text += "Nothing was changed in the cluster; --apply changes it\n"
		}
		return text
	}}); err != nil {
		return err
	}
	return failed
}

// report prints what was done and what is left.
func (m *migration) report() error {
	r := m.newReport()
	for _, g := range m.gaps {
		m.Warn("%s", g)
	}
	return m.Print(output.Answer{Value: r, Names: movedNames(r), Text: func(bool) string { return m.formatResult(r) }})
}

func movedNames(r migrationReport) []string {
	var names []string
	for _, o := range r.Objects {
		kind, name, _ := strings.Cut(o.Becomes, "/")
		names = append(names, strings.ToLower(kind)+"/"+name)
	}
	return names
}

func (m *migration) formatResult(r migrationReport) string {
	if len(m.moves) == 0 {
		return fmt.Sprintf("There are no %ss to move\n", m.direction.From.Kind)
	}
	if m.isDone() {
		return fmt.Sprintf("All %s were moved before; --again moves them again\n", output.Count(len(m.moves), "object"))
	}
	text := fmt.Sprintf("Moved %s to %s: %s, %s, %s recorded%s\n", output.Count(len(r.Objects), "object"), m.direction.To.Group,
		output.Count(len(r.Nodes), "node"), output.Count(r.ConfigMaps, "ConfigMap"), output.Count(len(r.Jobs), "Job"), m.DryRunSuffix())
	return text + formatLeft(r.Left)
}

func formatLeft(left []string) string {
	if len(left) == 0 {
		return ""
	}
	return "Left to do:\n  " + strings.Join(left, "\n  ") + "\n"
}

// formatPlan lists everything that changes.
func (m *migration) formatPlan() string {
	if m.isDone() {
		return m.formatResult(migrationReport{})
	}
	r := m.newReport()
	var b strings.Builder
	var rows [][]string
	for _, o := range r.Objects {
		rows = append(rows, []string{o.Original, o.Becomes, o.Action})
	}
	b.WriteString("Objects:\n" + session.Indent(output.FormatTable([]string{m.direction.From.Group, m.direction.To.Group, "ACTION"}, rows, nil)))
	if len(m.edited) > 0 {
		rows = nil
		for _, n := range m.edited {
			rows = append(rows, m.nodeRow(n))
		}
		b.WriteString("Nodes:\n" + session.Indent(m.FormatNodeTable([]string{"NODE", "SET", "REMOVE", "TAINT", "CORDONED"}, rows, nil)))
	}
	for _, list := range []struct {
		title string
		names []string
	}{{"Jobs to record", r.Jobs}, {"Webhook configurations to remove", r.Webhooks}} {
		if len(list.names) > 0 {
			fmt.Fprintf(&b, "%s: %s\n", list.title, output.List(list.names, 10))
		}
	}
	if r.ConfigMaps > 0 {
		fmt.Fprintf(&b, "ConfigMaps to hand over: %d\n", r.ConfigMaps)
	}
	return b.String()
}

// nodeRow shows the edit of one node: with -o wide every key, otherwise how many.
func (m *migration) nodeRow(n *node.Node) []string {
	edit := m.edits[n.Name]
	var set, removed []string
	for _, keys := range []map[string]*string{edit.Annotations, edit.Labels} {
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			if keys[key] == nil {
				removed = append(removed, key)
			} else {
				set = append(set, key)
			}
		}
	}
	taint := "-"
	if len(edit.AddTaints) > 0 {
		taint = edit.AddTaints[0].Key
	} else if len(edit.RemoveTaints) > 0 {
		taint = "removed"
	}
	return []string{n.Name, m.formatKeys(set), m.formatKeys(removed), taint, session.YesOrDash(n.Unschedulable)}
}

func (m *migration) formatKeys(keys []string) string {
	if format, _ := m.CheckFormat(); format != output.Wide {
		return fmt.Sprint(len(keys))
	}
	if len(keys) == 0 {
		return "-"
	}
	return strings.Join(keys, ",")
}
