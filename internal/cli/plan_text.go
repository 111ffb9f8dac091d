// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/skyhook-k8s/skyhook/internal/output"
)

// text is a plan for people. Wide also lists the actions of the next pass.
func (p *plan) text(wide bool) string {
	if len(p.Rollouts) == 0 {
		return "There is no Skyhook and no NodeOp.\n"
	}
	var parts []string
	for i := range p.Rollouts {
		parts = append(parts, p.Rollouts[i].text(wide))
	}
	text := strings.Join(parts, "\n")
	if wide && len(p.Actions) > 0 {
		var rows [][]string
		for _, a := range p.Actions {
			rows = append(rows, []string{a.Node, a.Verb, a.Rollout, a.What, a.Why})
		}
		text += "\nThe next pass:\n" + indent(output.FormatTable([]string{"NODE", "VERB", "ROLLOUT", "WHAT", "WHY"}, rows, nil))
	}
	if !p.Changes {
		text += "\nNothing would change.\n"
	}
	return text
}

// indent puts two blanks before each line.
func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n  ") + "\n"
}

func (r *rolloutPlan) text(wide bool) string {
	var b strings.Builder
	kind, name := r.Name.Kind, r.Name.Path()
	switch {
	case r.Problem != "":
		fmt.Fprintf(&b, "%s %s is not accepted: %s\n", kind, name, r.Problem)
	case r.Changing == 0 && len(r.Never) == 0:
		fmt.Fprintf(&b, "%s %s: nothing changes on its %s\n", kind, name, output.Count(r.Nodes, "node"))
	default:
		fmt.Fprintf(&b, "%s %s: %d of %s\n", kind, name, r.Changing, output.Count(r.Nodes, "node")+howMany(r))
	}
	for _, w := range r.Work {
		b.WriteString("\n" + w.text())
	}
	if len(r.Closed) > 0 {
		b.WriteString("\n  Not now:\n")
	}
	for _, c := range r.Closed {
		fmt.Fprintf(&b, "    %s: %s: %s\n", c.Group, c.Reason, c.Text)
	}
	if len(r.Waves) > 0 {
		var rows [][]string
		for _, w := range r.Waves {
			rows = append(rows, []string{strconv.Itoa(w.Number), w.After, w.Group, output.Count(len(w.Nodes), "node") + ": " + output.List(w.Nodes, 6)})
		}
		b.WriteString("\n" + indent(output.FormatTable([]string{"WAVE", "AFTER", "GROUP", "NODES"}, rows, nil)))
	}
	if r.Later > 0 {
		fmt.Fprintf(&b, "  and %s later, in the same way; --waves 0 shows all\n", output.Count(r.Later, "more node"))
	}
	r.pods(&b, wide)
	r.rest(&b)
	return b.String()
}

func howMany(r *rolloutPlan) string {
	text := " changes"
	if r.Changing != 1 {
		text = " change"
	}
	switch {
	case r.Later > 0 || len(r.Waves) == 0:
		return text
	case len(r.Waves) == 1:
		return text + ", in 1 wave"
	}
	return fmt.Sprintf("%s, in %d waves", text, len(r.Waves))
}

// mostPods is of how many nodes the pods are listed.
const mostPods = 10

// pods are those that would have to go.
func (r *rolloutPlan) pods(b *strings.Builder, wide bool) {
	if len(r.Pods) > 0 {
		b.WriteString("\n  Pods on the nodes that come first:\n")
	}
	shown := r.Pods
	if !wide {
		shown = shown[:min(len(shown), mostPods)]
	}
	for _, p := range shown {
		for _, l := range []struct {
			what string
			pods []string
		}{{"evicts", p.Evict}, {"waits for", p.Wait}, {"may not evict", p.Keep}, {"may not evict now", p.Refused}} {
			if len(l.pods) > 0 {
				fmt.Fprintf(b, "    %s %s %s\n", p.Node, l.what, output.List(l.pods, 5))
			}
		}
	}
	if hidden := len(r.Pods) - len(shown); hidden > 0 {
		fmt.Fprintf(b, "    and those on %s; -o wide shows all\n", output.Count(hidden, "more node"))
	}
}

// rest is what stands in the way, and what may surprise.
func (r *rolloutPlan) rest(b *strings.Builder) {
	if len(r.Never) > 0 {
		b.WriteString("\n  Not begun by itself:\n")
	}
	for _, n := range r.Never {
		fmt.Fprintf(b, "    %s (%s): %s: %s\n", output.Count(n.Nodes, "node"), output.ListOf(n.First, n.Nodes), n.Reason, n.Text)
	}
	if len(r.Warnings) > 0 {
		b.WriteString("\n")
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(b, "  warning: %s\n", w)
	}
}

func (w *planWork) text() string {
	var rows [][]string
	for i, s := range w.Steps {
		why := s.Why
		if len(s.Covers) > 0 {
			why += ", also for " + strings.Join(s.Covers, ", ")
		}
		rows = append(rows, []string{strconv.Itoa(i + 1), s.Task, why, s.Needs})
	}
	return indent("On " + output.Count(len(w.Nodes), "node") + ": " + output.List(w.Nodes, 6) + "\n" + indent(output.FormatTable([]string{"STEP", "STAGE", "WHY", "NODE"}, rows, nil)))
}
