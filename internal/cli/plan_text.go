// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/skyhook-k8s/skyhook/internal/output"
)

// formatText formats a plan for people; wide adds the actions of the next reconcile.
func (p *plan) formatText(wide bool) string {
	if len(p.Rollouts) == 0 {
		return "There is no Skyhook and no NodeOp.\n"
	}
	var parts []string
	for i := range p.Rollouts {
		parts = append(parts, p.Rollouts[i].formatText(wide))
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

func (r *rolloutPlan) formatText(wide bool) string {
	var b strings.Builder
	b.WriteString(r.formatTitle())
	for _, w := range r.Work {
		b.WriteString("\n" + w.formatText())
	}
	b.WriteString(formatImages(r.Images))
	b.WriteString(formatCompartments(r.Compartments, wide))
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
	b.WriteString(formatMarks(r.Marks))
	b.WriteString(r.formatPods(wide))
	b.WriteString(r.formatObstacles())
	return b.String()
}

func (r *rolloutPlan) formatTitle() string {
	kind, name := r.Name.Kind, r.Name.Path()
	switch {
	case r.Problem != "":
		return fmt.Sprintf("%s %s is not accepted: %s\n", kind, name, r.Problem)
	case r.Changing == 0 && len(r.Never) == 0:
		return fmt.Sprintf("%s %s: nothing changes on its %s\n", kind, name, output.Count(r.Nodes, "node"))
	}
	verb, waves := "change", ""
	if r.Changing == 1 {
		verb = "changes"
	}
	if r.Later == 0 && len(r.Waves) > 0 {
		waves = ", in " + output.Count(len(r.Waves), "wave")
	}
	return fmt.Sprintf("%s %s: %d of %s %s%s\n", kind, name, r.Changing, output.Count(r.Nodes, "node"), verb, waves)
}

// formatImages lists what nodes pull for the packages of a Skyhook that records digests.
func formatImages(images []packageImage) string {
	if len(images) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\n  Images:\n")
	for _, image := range images {
		fmt.Fprintf(&b, "    %s %s: %s, %s\n", image.Package, image.Version, image.Image, image.Text)
	}
	return b.String()
}

// maxPodNodes is of how many nodes the pods are listed without -o wide.
const maxPodNodes = 10

// formatPods lists the pods to evict.
func (r *rolloutPlan) formatPods(wide bool) string {
	if len(r.Pods) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\n  Pods on the nodes that come first:\n")
	shown := r.Pods
	if !wide {
		shown = shown[:min(len(shown), maxPodNodes)]
	}
	for _, p := range shown {
		for _, list := range []struct {
			verb string
			pods []string
		}{{"evicts", p.Evict}, {"waits for", p.Wait}, {"may not evict", p.Keep}, {"may not evict now", p.Refused}} {
			if len(list.pods) > 0 {
				fmt.Fprintf(&b, "    %s %s %s\n", p.Node, list.verb, output.List(list.pods, 5))
			}
		}
	}
	if hidden := len(r.Pods) - len(shown); hidden > 0 {
		fmt.Fprintf(&b, "    and those on %s; -o wide shows all\n", output.Count(hidden, "more node"))
	}
	return b.String()
}

// formatObstacles lists the reasons of nodes that do not start by themselves, and the warnings.
func (r *rolloutPlan) formatObstacles() string {
	var b strings.Builder
	if len(r.Never) > 0 {
		b.WriteString("\n  Not begun by itself:\n")
	}
	for _, n := range r.Never {
		fmt.Fprintf(&b, "    %s (%s): %s: %s\n", output.Count(n.Nodes, "node"), output.ListOf(n.First, n.Nodes), n.Reason, n.Text)
	}
	if len(r.Warnings) > 0 {
		b.WriteString("\n")
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(&b, "  warning: %s\n", w)
	}
	return b.String()
}

func (w *planWork) formatText() string {
	var rows [][]string
	for i, step := range w.Steps {
		why := step.Why
		if len(step.Covers) > 0 {
			why += ", also for " + strings.Join(step.Covers, ", ")
		}
		rows = append(rows, []string{strconv.Itoa(i + 1), step.Task, why, step.Needs})
	}
	return indent("On " + output.Count(len(w.Nodes), "node") + ": " + output.List(w.Nodes, 6) + "\n" +
		indent(output.FormatTable([]string{"STEP", "STAGE", "WHY", "NODE"}, rows, nil)))
}
