// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// How many of each kind one screen shows.
const (
	mostFailures = 5
	mostReasons  = 10
	mostGroups   = 20
	barWidth     = 20
)

// overview is one line for each rollout.
func (a *factory) overview(all []rolloutStatus) string {
	if len(all) == 0 {
		return "There is no Skyhook and no NodeOp.\n"
	}
	head := []string{"NAME", "STATUS", "DONE", "PROGRESS", "BUSY", "FAILING", "WAITING", "LEFT", "WHY"}
	var rows [][]string
	for _, s := range all {
		why := s.Problem
		if why == "" && len(s.Failures) > 0 {
			why = s.Failures[0].Node + ": " + s.Failures[0].Text
		}
		if why == "" && len(s.Reasons) > 0 {
			why = fmt.Sprintf("%s: %s", output.Count(s.Reasons[0].Nodes, "node"), s.Reasons[0].Text)
		}
		rows = append(rows, []string{
			shortName(s.Name), s.Status, fmt.Sprintf("%d/%d", s.Complete, s.Nodes), bar(s.Complete, s.Nodes, 10),
			strconv.Itoa(s.InProgress), strconv.Itoa(s.Failing), strconv.Itoa(s.Waiting + s.Blocked), cmp.Or(s.Left, "-"), why,
		})
	}
	return output.FormatTable(head, a.ClipLastColumn(head, rows, 70, 0), a.Painter())
}

// bar draws a share.
func bar(done, of, width int) string {
	full := 0
	if of > 0 {
		full = done * width / of
	}
	return "[" + strings.Repeat("#", full) + strings.Repeat(".", width-full) + "]"
}

func percent(done, of int) string {
	if of == 0 {
		return "100%"
	}
	return strconv.Itoa(100*done/of) + "%"
}

// screen is one rollout in full.
func (a *factory) screen(s *rolloutStatus, wide bool) string {
	var b strings.Builder
	kind, name := s.Name.Kind, s.Name.Path()
	status := s.Status
	if paint := a.Painter(); paint != nil {
		status = paint(status)
	}
	fmt.Fprintf(&b, "%s %s: %s\n", kind, name, status)
	if s.Problem != "" {
		fmt.Fprintf(&b, "  not accepted: %s\n", s.Problem)
	}
	if len(s.Packages) > 0 {
		fmt.Fprintf(&b, "  packages  %s\n", output.List(s.Packages, 6))
	}
	fmt.Fprintf(&b, "  nodes     %s %d of %d complete (%s)%s\n", bar(s.Complete, s.Nodes, barWidth), s.Complete, s.Nodes, percent(s.Complete, s.Nodes), others(s))
	if s.PerHour > 0 {
		fmt.Fprintf(&b, "  speed     %g nodes an hour, about %s left\n", s.PerHour, s.Left)
	}
	a.groupTable(&b, s, wide)
	if len(s.Working) > 0 {
		b.WriteString("\nWorking:\n")
	}
	for _, w := range s.Working[:min(len(s.Working), mostReasons)] {
		fmt.Fprintf(&b, "  %s  %s (%s)\n", pad(strconv.Itoa(w.Nodes), 5), w.Task, output.ListOf(w.First, w.Nodes))
	}
	if len(s.Reasons) > 0 {
		b.WriteString("\nWaiting:\n")
	}
	for _, r := range s.Reasons[:min(len(s.Reasons), mostReasons)] {
		fmt.Fprintf(&b, "  %s  %s: %s (%s)\n", pad(strconv.Itoa(r.Nodes), 5), r.Reason, r.Text, output.ListOf(r.First, r.Nodes))
	}
	failures(&b, s, wide)
	return b.String()
}

// others is what the nodes do that are not complete.
func others(s *rolloutStatus) string {
	text := ""
	for _, p := range []struct {
		n    int
		what string
	}{{s.InProgress, "in progress"}, {s.Failing, "failing"}, {s.Waiting, "waiting"}, {s.Blocked, "blocked"}} {
		if p.n > 0 {
			text += fmt.Sprintf(", %d %s", p.n, p.what)
		}
	}
	return text
}

// pad puts a number to the right of its column.
func pad(text string, width int) string { return strings.Repeat(" ", max(0, width-len(text))) + text }

func (a *factory) groupTable(b *strings.Builder, s *rolloutStatus, wide bool) {
	if len(s.Groups) == 0 {
		return
	}
	groups := s.Groups
	if !wide {
		groups = groups[:min(len(groups), mostGroups)]
	}
	head := []string{"GROUP", "PROGRESS", "DONE", "FAILED", "BUSY", "BATCH", "WHY"}
	var rows [][]string
	for _, g := range groups {
		budget, batch := strconv.Itoa(g.Budget), "-"
		if g.Budget == rollout.Unlimited {
			budget = "all"
		}
		if g.Batch > 0 {
			batch = strconv.Itoa(g.Batch)
		}
		if g.Stopped {
			batch += " STOPPED"
		}
		rows = append(rows, []string{
			g.Name, bar(g.Complete, g.Nodes, 10), fmt.Sprintf("%d/%d", g.Complete, g.Nodes), strconv.Itoa(g.Failed), fmt.Sprintf("%d/%s", g.Busy, budget), batch, g.Why,
		})
	}
	b.WriteString("\n" + indent(output.FormatTable(head, a.ClipLastColumn(head, rows, 80, 2), a.Painter())))
	if hidden := len(s.Groups) - len(groups); hidden > 0 {
		fmt.Fprintf(b, "  and %s; -o wide shows all\n", output.Count(hidden, "more group"))
	}
}

func failures(b *strings.Builder, s *rolloutStatus, wide bool) {
	if len(s.Failures) == 0 {
		return
	}
	b.WriteString("\nFailing:\n")
	shown := s.Failures
	if !wide {
		shown = shown[:min(len(shown), mostFailures)]
	}
	for _, f := range shown {
		final := ""
		if f.Final {
			final = ", final"
		}
		fmt.Fprintf(b, "  %s  %s (attempt %d%s)\n", f.Node, cmp.Or(f.Task, "drain"), f.Attempts, final)
		for _, line := range strings.Split(f.Text, "; last output: ") {
			for _, l := range strings.Split(line, " | ") {
				fmt.Fprintf(b, "      %s\n", l)
			}
		}
	}
	if hidden := len(s.Failures) - len(shown); hidden > 0 {
		fmt.Fprintf(b, "  and %s; -o wide shows all\n", output.Count(hidden, "more node"))
	}
}
