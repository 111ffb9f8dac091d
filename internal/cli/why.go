// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	nodeopv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

func newWhyCommand(f *factory) *cobra.Command {
	var from viewOptions
	cmd := &cobra.Command{
		Use:   "why NODE|SKYHOOK|nodeop/NAME",
		Short: "Explain why a node or a rollout waits, and what would help",
		Long: "Explain why a node or a rollout waits: the reason of each wait, since when, and what would end it. Causes are followed: a\n" +
			"node waits for an earlier Skyhook, which waits for a pod, and so on.\n\n" +
			"A name of both a node and a Skyhook is the node; use node/NAME or skyhook/NAME to choose.",
		Example: "  kubectl skyhook why worker-1\n" +
			"  kubectl skyhook why demo\n" +
			"  kubectl skyhook why nodeop/kernel-version",
		Args: output.Args("NODE|SKYHOOK|nodeop/NAME"), ValidArgsFunction: f.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error { return runWhy(cmd.Context(), f, from, args[0]) },
	}
	from.addFromFlag(cmd)
	return cmd
}

// explanation is one reason, with the reasons that cause it.
type explanation struct {
	Subject string        `json:"subject"` // the waiting object or node
	Nodes   int           `json:"nodes,omitempty"`
	Phase   string        `json:"phase,omitempty"`
	Reason  string        `json:"reason"`
	Text    string        `json:"text"`
	Since   string        `json:"since,omitempty"` // how long ago it began
	Help    string        `json:"help,omitempty"`
	Drain   *drainStatus  `json:"drain,omitempty"` // of the node, if pods are in the way
	Causes  []explanation `json:"behind,omitempty"`
}

func runWhy(ctx context.Context, f *factory, from viewOptions, arg string) error {
	if _, err := f.CheckFormat(); err != nil {
		return err
	}
	v, err := loadView(ctx, f, from)
	if err != nil {
		return err
	}
	node := strings.TrimPrefix(strings.TrimPrefix(arg, "node/"), "no/")
	r := v.findRollout(arg)
	var all []explanation
	switch {
	case v.objects.Node(node) != nil:
		all = explainNode(v, node)
	case r != nil:
		all = explainRollout(v, r)
	default:
		return fmt.Errorf("there is no node and no rollout %q: %s", arg, v.listNames())
	}
	var subjects []string
	for _, e := range all {
		subjects = append(subjects, e.Subject)
	}
	return f.Print(output.Answer{Value: all, Names: subjects, Text: func(bool) string { return formatExplanations(all, 0) }})
}

// explainNode explains every rollout that selects a node, and a cordon.
func explainNode(v *view, node string) []explanation {
	all := []explanation{}
	for i := range v.snapshot.Rollouts {
		r := &v.snapshot.Rollouts[i]
		if verdict, ok := v.findVerdict(r.Ref, node); ok {
			all = append(all, newExplainer(v).explain(r, verdict))
		}
	}
	n := v.objects.Node(node)
	if n.Unschedulable {
		e := explanation{
			Subject: "Node " + node, Reason: "Cordoned", Text: "the node is cordoned, and not by Skyhook",
			Help: "kubectl uncordon " + node + ", if nobody needs it cordoned",
		}
		if holds := n.Holds(nil); len(holds) > 0 {
			var owners []string
			for _, h := range holds {
				owners = append(owners, shortName(h.Owner))
			}
			e.Text, e.Help = "the node is cordoned by "+strings.Join(owners, ", "), "it is uncordoned when they are done there"
		}
		all = append(all, e)
	}
	if len(all) == 0 {
		all = append(all, explanation{Subject: "Node " + node, Reason: "NotSelected", Text: "no Skyhook and no NodeOp selects the node", Help: "compare its labels with nodeSelectors"})
	}
	return all
}

// explainRollout explains each phase and reason of a rollout once, for the first node with it.
func explainRollout(v *view, r *rollout.Rollout) []explanation {
	if op := v.endedNodeOp(r); op != nil {
		return explainEnded(op)
	}
	if r.Broken != nil {
		return []explanation{{Subject: r.Ref.String(), Reason: string(r.Broken.Reason), Text: r.Broken.Text, Help: r.Broken.Remedy(shortName(r.Ref), "NODE", "")}}
	}
	type key struct {
		phase  rollout.Phase
		reason rollout.Reason
	}
	first, counts := map[key]rollout.Verdict{}, map[key]int{}
	var order []key
	for _, verdict := range v.reportOf(r.Ref).Verdicts {
		k := key{verdict.Phase, verdict.Why.Reason}
		if counts[k] == 0 {
			first[k] = verdict
			order = append(order, k)
		}
		counts[k]++
	}
	slices.SortStableFunc(order, func(a, b key) int { return slices.Index(phaseOrder, a.phase) - slices.Index(phaseOrder, b.phase) })
	all := []explanation{}
	for _, k := range order {
		e := newExplainer(v).explain(r, first[k])
		e.Nodes = counts[k]
		all = append(all, e)
	}
	appendCounts(all)
	if len(all) == 0 {
		all = append(all, explanation{Subject: r.Ref.String(), Reason: "NoNodes", Text: "it selects no node", Help: "compare nodeSelectors with the labels of the nodes"})
	}
	return all
}

// phaseOrder sorts phases by urgency.
var phaseOrder = []rollout.Phase{
	rollout.PhaseFailed, rollout.PhaseFailing, rollout.PhaseBlocked, rollout.PhaseInFlight, rollout.PhaseWaiting, rollout.PhasePaused, rollout.PhaseDisabled, rollout.PhaseFinished,
}

// explainEnded explains how a NodeOp ended: each message of a failure once.
func explainEnded(op *nodeopv1.NodeOp) []explanation {
	name := shortName(nodeop.Ref(op))
	all := []explanation{{
		Subject: name, Phase: "ended", Reason: string(op.Status.Phase),
		Text: fmt.Sprintf("%d of %s done, %d skipped, %d failed", op.Status.Completed, output.Count(int(op.Status.Total), "node"), op.Status.Skipped, op.Status.Failed),
	}}
	index := map[string]int{}
	for _, failed := range summarizeEnded(op).Failures {
		if at, ok := index[failed.Text]; ok {
			all[at].Nodes++
			continue
		}
		index[failed.Text] = len(all)
		all = append(all, explanation{
			Subject: name + " on " + failed.Node, Nodes: 1, Phase: "failed", Reason: string(rollout.ReasonStageFailed), Text: failed.Text,
			Help: "fix the cause, and create a new NodeOp: an ended one does not run again",
		})
	}
	appendCounts(all)
	return all
}

// appendCounts adds the number of further nodes to subjects.
func appendCounts(all []explanation) {
	for i := range all {
		if all[i].Nodes > 1 {
			all[i].Subject += fmt.Sprintf(" and %d more", all[i].Nodes-1)
		}
	}
}

// formatExplanations formats reasons, each with its causes indented below.
func formatExplanations(all []explanation, depth int) string {
	var b strings.Builder
	prefix, arrow := strings.Repeat("    ", depth), ""
	if depth > 0 {
		arrow = "└ "
	}
	for i, e := range all {
		if depth == 0 && i > 0 {
			b.WriteString("\n")
		}
		title := e.Subject
		if e.Phase != "" {
			title += ": " + e.Phase
		}
		if e.Since != "" {
			title += ", for " + e.Since
		}
		fmt.Fprintf(&b, "%s%s%s\n%s  %s: %s\n", prefix, arrow, title, prefix, e.Reason, e.Text)
		if e.Help != "" {
			fmt.Fprintf(&b, "%s  → %s\n", prefix, e.Help)
		}
		if e.Drain != nil {
			b.WriteString(e.Drain.format(prefix + "  "))
		}
		b.WriteString(formatExplanations(e.Causes, depth+1))
	}
	return b.String()
}
