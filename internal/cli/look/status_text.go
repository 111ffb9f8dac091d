// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package look

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/skyhook-k8s/skyhook/internal/cli/preview"
	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/view"
)

// Limits of a screen.
const (
	maxFailures = 5
	maxReasons  = 10
	maxGroups   = 20
	barWidth    = 20
)

// FormatOverview formats one line for each rollout.
func FormatOverview(p *output.Printer, all []view.RolloutStatus) string {
	if len(all) == 0 {
		return "There is no Skyhook and no NodeOp.\n"
	}
	header := []string{"NAME", "READY", "STATUS", "DONE", "PROGRESS", "BUSY", "FAILING", "WAITING", "LEFT", "WHY"}
	var rows [][]string
	for _, s := range all {
		rows = append(rows, []string{
			view.ShortName(s.Name), string(s.Verdict), s.Status, fmt.Sprintf("%d/%d", s.Complete, s.Nodes), formatBar(s.Complete+s.CountSkipped(), s.Nodes, 10),
			strconv.Itoa(s.InProgress), strconv.Itoa(s.Failing), strconv.Itoa(s.Waiting + s.Blocked), cmp.Or(s.Left, "-"), s.FirstReason(),
		})
	}
	return output.FormatTable(header, p.ClipLastColumn(header, rows, 70, 0), p.Painter())
}

func formatBar(done, total, width int) string {
	filled := 0
	if total > 0 {
		filled = done * width / total
	}
	return "[" + strings.Repeat("#", filled) + strings.Repeat(".", width-filled) + "]"
}

func formatPercent(done, total int) string {
	if total == 0 {
		return "100%"
	}
	return strconv.Itoa(100*done/total) + "%"
}

// FormatRolloutDetails formats one rollout; wide removes the limits.
func FormatRolloutDetails(s *view.RolloutStatus, p *output.Printer, wide bool) string {
	var b strings.Builder
	kind, name := s.Name.Kind, s.Name.Path()
	status := s.Status
	if paint := p.Painter(); paint != nil {
		status = paint(status)
	}
	fmt.Fprintf(&b, "%s %s: %s\n  ready     %s (%s)\n", kind, name, status, s.Verdict, s.Reason)
	if s.Profile != nil {
		fmt.Fprintf(&b, "  profile   %s\n", s.Profile.Describe())
	}
	if s.Problem != "" {
		fmt.Fprintf(&b, "  not accepted: %s\n", s.Problem)
	}
	if len(s.Packages) > 0 {
		fmt.Fprintf(&b, "  packages  %s\n", output.List(s.Packages, 6))
	}
	done := s.Complete + s.CountSkipped()
	fmt.Fprintf(&b, "  nodes     %s %d of %d complete (%s)%s\n",
		formatBar(done, s.Nodes, barWidth), s.Complete, s.Nodes, formatPercent(done, s.Nodes), formatIncomplete(s))
	for _, r := range s.Skipped[:min(len(s.Skipped), maxReasons)] {
		fmt.Fprintf(&b, "  skipped   %s: %s (%s)\n", output.Count(r.Nodes, "node"), r.Text, output.ListOf(r.First, r.Nodes))
	}
	b.WriteString(formatRevisions(s))
	if s.Expected != nil {
		fmt.Fprintf(&b, "  expected  complete at %s, in %s\n  times     %s\n", s.Expected.Format("2006-01-02 15:04 MST"), s.Left, s.Times)
	}
	b.WriteString(preview.FormatImages(s.Images))
	b.WriteString(formatGroups(s, p, wide))
	if len(s.Working) > 0 {
		b.WriteString("\nWorking:\n")
	}
	for _, w := range s.Working[:min(len(s.Working), maxReasons)] {
		fmt.Fprintf(&b, "  %5d  %s (%s)\n", w.Nodes, w.Task, output.ListOf(w.First, w.Nodes))
	}
	b.WriteString(formatDrains(s, wide))
	if len(s.Reasons) > 0 {
		b.WriteString("\nWaiting:\n")
	}
	for _, r := range s.Reasons[:min(len(s.Reasons), maxReasons)] {
		fmt.Fprintf(&b, "  %5d  %s: %s (%s)\n", r.Nodes, r.Reason, r.Text, output.ListOf(r.First, r.Nodes))
	}
	b.WriteString(formatFailures(s, wide))
	return b.String()
}

// formatRevisions says how many nodes have which revision, once there are several.
func formatRevisions(s *view.RolloutStatus) string {
	var parts []string
	for i, r := range s.Revisions {
		if i == 0 || r.Nodes > 0 {
			parts = append(parts, fmt.Sprintf("%d on %s", r.Revision, output.Count(int(r.Nodes), "node")))
		}
	}
	if len(s.Revisions) < 2 {
		return ""
	}
	return "  revisions " + output.List(parts, 6) + "\n"
}

// formatIncomplete counts the nodes that are not complete.
func formatIncomplete(s *view.RolloutStatus) string {
	text := ""
	for _, p := range []struct {
		nodes int
		phase string
	}{{s.InProgress, "in progress"}, {s.Failing, "failing"}, {s.Waiting, "waiting"}, {s.Blocked, "blocked"}, {s.CountSkipped(), "skipped"}} {
		if p.nodes > 0 {
			text += fmt.Sprintf(", %d %s", p.nodes, p.phase)
		}
	}
	return text
}

func formatGroups(s *view.RolloutStatus, p *output.Printer, wide bool) string {
	if len(s.Groups) == 0 {
		return ""
	}
	groups := s.Groups
	if !wide {
		groups = groups[:min(len(groups), maxGroups)]
	}
	header := []string{"COMPARTMENT", "PROGRESS", "DONE", "FAILED", "BUSY", "BATCH", "WHY"}
	var rows [][]string
	for _, g := range groups {
		busy, batch := fmt.Sprintf("%d/%d", g.Busy, g.Budget), "-"
		if g.Budget == rollout.Unlimited {
			busy = fmt.Sprintf("%d, all at once", g.Busy)
		}
		if g.Batch > 0 {
			batch = strconv.Itoa(g.Batch)
		}
		if g.Stopped {
			batch += " STOPPED"
		}
		rows = append(rows, []string{
			g.Name, formatBar(g.Complete, g.Nodes, 10), fmt.Sprintf("%d/%d", g.Complete, g.Nodes), strconv.Itoa(g.Failed),
			busy, batch, g.Why,
		})
	}
	text := "\n" + session.Indent(output.FormatTable(header, p.ClipLastColumn(header, rows, 80, 2), p.Painter()))
	if hidden := len(s.Groups) - len(groups); hidden > 0 {
		text += fmt.Sprintf("  and %s; -o wide shows all\n", output.Count(hidden, "more compartment"))
	}
	return text
}

func formatFailures(s *view.RolloutStatus, wide bool) string {
	if len(s.Failures) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\nFailing:\n")
	shown := s.Failures
	if !wide {
		shown = shown[:min(len(shown), maxFailures)]
	}
	for _, failed := range shown {
		var about []string
		if failed.Attempts > 0 {
			about = append(about, fmt.Sprintf("attempt %d", failed.Attempts))
		}
		if failed.Final {
			about = append(about, "final")
		}
		fmt.Fprintf(&b, "  %s  %s (%s)\n", failed.Node, failed.Task, strings.Join(about, ", "))
		for _, part := range strings.Split(failed.Text, rollout.LastOutput) {
			for _, line := range strings.Split(part, " | ") {
				fmt.Fprintf(&b, "      %s\n", line)
			}
		}
	}
	if hidden := len(s.Failures) - len(shown); hidden > 0 {
		fmt.Fprintf(&b, "  and %s; -o wide shows all\n", output.Count(hidden, "more node"))
	}
	return b.String()
}

// formatDrain formats a drain: the numbers, and a line for each of the slowest pods.
func formatDrain(d *view.DrainStatus, indent string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s%d of %s left", indent, d.Left, output.Count(d.All, "pod"))
	if d.For != "" {
		fmt.Fprintf(&b, ", draining for %s", d.For)
	}
	b.WriteString("\n")
	for _, p := range d.Slowest {
		fmt.Fprintf(&b, "%s  %s  %s: %s", indent, p.Pod, p.Reason, p.Text)
		if p.In != "" {
			fmt.Fprintf(&b, ", should be gone in %s", p.In)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// formatDrains lists the drains that take the longest.
func formatDrains(s *view.RolloutStatus, wide bool) string {
	if len(s.Drains) == 0 {
		return ""
	}
	shown := s.Drains
	if !wide {
		shown = shown[:min(len(shown), view.MaxDrains)]
	}
	var b strings.Builder
	b.WriteString("\nDraining:\n")
	for i := range shown {
		fmt.Fprintf(&b, "  %s  %s", shown[i].Node, strings.TrimLeft(formatDrain(&shown[i], "  "), " "))
	}
	if hidden := len(s.Drains) - len(shown); hidden > 0 {
		fmt.Fprintf(&b, "  and %s; -o wide shows all\n", output.Count(hidden, "more drain"))
	}
	return b.String()
}
