// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package preview has the commands that show what would be: plan, simulate and validate.
package preview

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/view"
)

// NewPlanCommand returns the command `plan`.
func NewPlanCommand(f *session.Factory) *cobra.Command {
	var from session.ViewOptions
	waves, asked := -1, -1
	cmd := &cobra.Command{
		Use:   "plan [SKYHOOK|nodeop/NAME…]",
		Short: "Show what would happen next, in the cluster or for files",
		Long: "Show what would happen next: which nodes change, in which waves, which stages run and why, which pods are evicted and\n" +
			"which disruption budgets refuse that now. The plan comes from the same code as in the operator. Nothing is changed.\n\n" +
			"With -f the plan is for files that are not applied yet; it fails when an object would not be accepted. It assumes that everything\n" +
			"succeeds.\n\n" +
			"With --preflight the packages that have a preflight are asked what each node needs, as before its turn, in pods that can read the\n" +
			"host and change nothing. Nothing of that is recorded.",
		Example: "  kubectl skyhook plan\n" +
			"  kubectl skyhook plan -f skyhook.yaml -f policy.yaml\n" +
			"  kubectl skyhook plan -f skyhook.yaml --preflight\n" +
			"  kubectl skyhook plan demo --from stuck.yaml -o json",
		ValidArgsFunction: f.CompleteSkyhooks,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runPlan(cmd.Context(), f, from, args, waves, asked)
		},
	}
	from.AddFromFlag(cmd)
	from.AddFilesFlag(cmd)
	f.AddDetailedExitCode(cmd, "something would change")
	cmd.Flags().IntVar(&waves, "waves", waves, fmt.Sprintf("number of waves to print; 0 for all; default: all up to %d nodes, otherwise 10", view.MaxNodesSimulated))
	cmd.Flags().IntVar(&asked, "preflight", asked, "ask on this `NUMBER` of nodes of each Skyhook what they need; without a number on all")
	cmd.Flags().Lookup("preflight").NoOptDefVal = "0"
	return cmd
}

func runPlan(ctx context.Context, f *session.Factory, from session.ViewOptions, args []string, waves, asked int) error {
	v, err := session.LoadView(ctx, f, from)
	if err != nil {
		return err
	}
	if err := v.CheckNames(args); err != nil {
		return err
	}
	if asked >= 0 {
		if v, err = askNodes(ctx, f, v, args, asked); err != nil {
			return err
		}
	}
	if err := session.LoadNextPods(ctx, f, v); err != nil {
		return err
	}
	p := view.BuildPlan(v, args, view.LimitWaves(waves, 10, len(v.Snapshot.Nodes)))
	if err := f.Print(output.Answer{Value: p, Names: p.Names(), Text: func(wide bool) string { return FormatPlan(p, wide) }}); err != nil {
		return err
	}
	isRefused := func(r view.RolloutPlan) bool { return r.Problem != "" }
	if len(from.Files) > 0 && slices.ContainsFunc(p.Rollouts, isRefused) {
		return output.ProblemsFound()
	}
	return f.EndWith(p.Changes)
}

// FormatPlan formats a plan for people; wide adds the actions of the next reconcile.
func FormatPlan(p *view.Plan, wide bool) string {
	if len(p.Rollouts) == 0 {
		return "There is no Skyhook and no NodeOp.\n"
	}
	var parts []string
	for i := range p.Rollouts {
		parts = append(parts, formatRolloutPlan(&p.Rollouts[i], wide))
	}
	text := strings.Join(parts, "\n")
	if wide && len(p.Actions) > 0 {
		var rows [][]string
		for _, a := range p.Actions {
			rows = append(rows, []string{a.Node, a.Verb, a.Rollout, a.What, a.Why})
		}
		text += "\nThe next pass:\n" + session.Indent(output.FormatTable([]string{"NODE", "VERB", "ROLLOUT", "WHAT", "WHY"}, rows, nil))
	}
	if !p.Changes {
		text += "\nNothing would change.\n"
	}
	return text
}

func formatRolloutPlan(r *view.RolloutPlan, wide bool) string {
	var b strings.Builder
	b.WriteString(formatPlanTitle(r))
	if r.Profile != nil {
		fmt.Fprintf(&b, "  profile %s\n", r.Profile.Describe())
	}
	b.WriteString(formatTimes(r.Times))
	b.WriteString(formatNeeds(r.Needs))
	for _, w := range r.Work {
		b.WriteString("\n" + formatPlanWork(&w))
	}
	b.WriteString(FormatImages(r.Images))
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
		b.WriteString("\n" + session.Indent(output.FormatTable([]string{"WAVE", "AFTER", "COMPARTMENT", "NODES"}, rows, nil)))
	}
	if r.Later > 0 {
		fmt.Fprintf(&b, "  and %s later, in the same way; --waves 0 shows all\n", output.Count(r.Later, "more node"))
	}
	b.WriteString(formatMarks(r.Marks))
	b.WriteString(formatPlannedPods(r, wide))
	b.WriteString(formatObstacles(r))
	return b.String()
}

// formatTimes says how long a node takes.
func formatTimes(text string) string {
	if text == "" {
		return ""
	}
	return "  times   " + text + "\n"
}

// formatNeeds lists what nodes need, as their packages say.
func formatNeeds(needs []view.NodeNeed) string {
	if len(needs) == 0 {
		return ""
	}
	var rows [][]string
	for _, n := range needs {
		rows = append(rows, []string{n.Answer, output.Count(len(n.Nodes), "node") + ": " + n.Names(), n.Reason})
	}
	return "\n" + session.Indent(output.FormatTable([]string{"NEED", "NODES", "WHY"}, rows, nil))
}

func formatPlanTitle(r *view.RolloutPlan) string {
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

// FormatImages lists what nodes pull for the packages of a Skyhook that records digests.
func FormatImages(images []view.PackageImage) string {
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

// formatPlannedPods lists the pods to evict.
func formatPlannedPods(r *view.RolloutPlan, wide bool) string {
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
func formatObstacles(r *view.RolloutPlan) string {
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

func formatPlanWork(w *view.PlanWork) string {
	var rows [][]string
	for i, step := range w.Steps {
		why := step.Why
		if len(step.Covers) > 0 {
			why += ", also for " + strings.Join(step.Covers, ", ")
		}
		rows = append(rows, []string{strconv.Itoa(i + 1), step.Task, why, step.Needs})
	}
	return session.Indent("On " + output.Count(len(w.Nodes), "node") + ": " + output.List(w.Nodes, 6) + "\n" +
		session.Indent(output.FormatTable([]string{"STEP", "STAGE", "WHY", "NODE"}, rows, nil)))
}

// formatCompartments lists compartments that begin after each other, with their nodes.
func formatCompartments(all []view.CompartmentPlan, wide bool) string {
	if len(all) == 0 {
		return ""
	}
	var rows [][]string
	for _, c := range all {
		most := 6
		if wide {
			most = len(c.Nodes)
		}
		nodes := output.Count(len(c.Nodes), "node")
		if len(c.Nodes) > 0 {
			nodes += ": " + output.List(c.Nodes, most)
		}
		after := strings.Join(c.After, ", ")
		if c.Approval {
			after = strings.TrimPrefix(after+", an approval", ", ")
		}
		rows = append(rows, []string{strconv.Itoa(c.Order), c.Name, after, strconv.Itoa(c.Left), nodes, c.Waits})
	}
	return "\n  Compartments, in the order in which they begin:\n" +
		session.Indent(session.Indent(output.FormatTable([]string{"ORDER", "COMPARTMENT", "AFTER", "LEFT", "NODES", "WAITS FOR"}, rows, nil)))
}

// formatMarks lists marks, one line for each time.
func formatMarks(marks []view.NodeMark) string {
	if len(marks) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\n  Marks on each node:\n")
	for i := 0; i < len(marks); {
		end := i
		var names []string
		for ; end < len(marks) && marks[end].Kind == marks[i].Kind && marks[end].When == marks[i].When; end++ {
			names = append(names, marks[end].Name)
		}
		fmt.Fprintf(&b, "    %s: %s %s\n", marks[i].When, marks[i].Kind, strings.Join(names, ", "))
		i = end
	}
	return b.String()
}
