// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// longestChain bounds how far a reason is followed.
const longestChain = 8

func (a *factory) whyCommand() *cobra.Command {
	var from viewOptions
	cmd := &cobra.Command{
		Use:   "why NODE|SKYHOOK|nodeop/NAME",
		Short: "Say why a node or a rollout does not go on, and what would help",
		Long: "Say why a node or a rollout does not go on: the reason for each wait, since when, and what would end it. A reason that\n" +
			"lies elsewhere is followed there: a node waits for an earlier Skyhook, which waits for a pod, and so on.\n\n" +
			"A name that a node and a Skyhook share means the node; node/NAME and skyhook/NAME say which.",
		Example: "  kubectl skyhook why worker-1\n" +
			"  kubectl skyhook why demo\n" +
			"  kubectl skyhook why nodeop/kernel-version",
		Args: output.Args("NODE|SKYHOOK|nodeop/NAME"), ValidArgsFunction: a.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error { return a.why(cmd.Context(), from, args[0]) },
	}
	from.addFlags(cmd)
	return cmd
}

// explanation is one reason, and those behind it.
type explanation struct {
	Subject string        `json:"subject"` // who waits
	Nodes   int           `json:"nodes,omitempty"`
	Phase   string        `json:"phase,omitempty"`
	Reason  string        `json:"reason"`
	Text    string        `json:"text"`
	Since   string        `json:"since,omitempty"` // how long ago it began
	Help    string        `json:"help,omitempty"`
	Causes  []explanation `json:"behind,omitempty"`
}

func (a *factory) why(ctx context.Context, from viewOptions, arg string) error {
	if _, err := a.CheckFormat(); err != nil {
		return err
	}
	s, err := a.loadView(ctx, from)
	if err != nil {
		return err
	}
	node := strings.TrimPrefix(strings.TrimPrefix(arg, "node/"), "no/")
	var all []explanation
	switch r, _, found := s.findRollout(arg); {
	case s.objects.Node(node) != nil:
		all = s.explainNode(node)
	case found:
		all = s.explainRollout(r)
	default:
		return fmt.Errorf("there is no node and no rollout %q: %s", arg, s.listNames())
	}
	return a.Print(output.Answer{Value: all, Names: subjects(all), Text: func(bool) string { return formatReasons(all, 0) }})
}

func subjects(all []explanation) []string {
	var out []string
	for _, b := range all {
		out = append(out, b.Subject)
	}
	return out
}

// explainNode tells of every rollout that selects a node, in their order.
func (s *view) explainNode(node string) []explanation {
	out := []explanation{}
	for i := range s.snapshot.Rollouts {
		r := &s.snapshot.Rollouts[i]
		if v, ok := s.findVerdict(r.Ref, node); ok {
			out = append(out, s.explainVerdict(r, v, map[string]bool{}))
		}
	}
	n := s.objects.Node(node)
	if n.Unschedulable {
		owners := holds(n)
		b := explanation{Subject: "Node " + node, Reason: "Cordoned", Text: "the node is cordoned, and not by Skyhook", Help: "kubectl uncordon " + node + ", if nobody needs it cordoned"}
		if len(owners) > 0 {
			var names []string
			for _, h := range owners {
				names = append(names, shortName(h.Owner))
			}
			b.Text, b.Help = "the node is cordoned by "+strings.Join(names, ", "), "it is given back when they are done there"
		}
		out = append(out, b)
	}
	if len(out) == 0 {
		out = append(out, explanation{Subject: "Node " + node, Reason: "NotSelected", Text: "no Skyhook and no NodeOp selects the node", Help: "compare its labels with nodeSelectors"})
	}
	return out
}

// explainRollout tells each reason once, of the first node that has it.
func (s *view) explainRollout(r *rollout.Rollout) []explanation {
	if o := s.endedNodeOp(r); o != nil {
		return explainEnded(o)
	}
	out := []explanation{}
	if r.Broken != nil {
		return append(out, explanation{Subject: r.Ref.String(), Reason: string(r.Broken.Reason), Text: r.Broken.Text, Help: r.Broken.Remedy(shortName(r.Ref), "NODE", "")})
	}
	type key struct {
		phase  rollout.Phase
		reason rollout.Reason
	}
	first, counts := map[key]rollout.Verdict{}, map[key]int{}
	var order []key
	for _, v := range s.reportOf(r.Ref).Verdicts {
		k := key{v.Phase, v.Why.Reason}
		if counts[k] == 0 {
			first[k] = v
			order = append(order, k)
		}
		counts[k]++
	}
	slices.SortStableFunc(order, func(a, b key) int { return slices.Index(phases, a.phase) - slices.Index(phases, b.phase) })
	for _, k := range order {
		b := s.explainVerdict(r, first[k], map[string]bool{})
		if b.Nodes = counts[k]; b.Nodes > 1 {
			b.Subject = fmt.Sprintf("%s on %s and %d more", shortName(r.Ref), first[k].Node, b.Nodes-1)
		}
		out = append(out, b)
	}
	if len(out) == 0 {
		out = append(out, explanation{Subject: r.Ref.String(), Reason: "NoNodes", Text: "it selects no node", Help: "compare nodeSelectors with the labels of the nodes"})
	}
	return out
}

// phases from what asks most for attention to what asks least.
var phases = []rollout.Phase{
	rollout.PhaseFailed, rollout.PhaseFailing, rollout.PhaseBlocked, rollout.PhaseInFlight, rollout.PhaseWaiting, rollout.PhasePaused, rollout.PhaseDisabled, rollout.PhaseFinished,
}

func (s *view) findVerdict(of rollout.Ref, node string) (rollout.Verdict, bool) {
	for _, v := range s.reportOf(of).Verdicts {
		if v.Node == node {
			return v, true
		}
	}
	return rollout.Verdict{}, false
}

// explainVerdict says why a target stands as it does, and follows the reason to where it lies.
func (s *view) explainVerdict(r *rollout.Rollout, v rollout.Verdict, seen map[string]bool) explanation {
	b := explanation{
		Subject: shortName(r.Ref) + " on " + v.Node, Phase: string(v.Phase), Reason: string(v.Why.Reason), Text: v.Why.Text, Help: s.findRemedy(r, v),
	}
	if since := v.Why.Since; !since.IsZero() && s.snapshot.Now.After(since) && v.Phase != rollout.PhaseFinished {
		b.Since = formatDuration(s.snapshot.Now.Sub(since))
	}
	if seen[b.Subject] || len(seen) >= longestChain {
		return b
	}
	seen[b.Subject] = true
	b.Causes = s.explainCauses(r, v, seen)
	return b
}

// findRemedy is what would end a wait, with the names that belong there.
func (s *view) findRemedy(r *rollout.Rollout, v rollout.Verdict) string {
	pkg := ""
	if t := s.findTarget(r.Ref, v.Node); t != nil {
		for _, k := range t.Tasks {
			if k.State == rollout.StateFailing || k.State == rollout.StateRunning && pkg == "" {
				pkg, _, _ = strings.Cut(k.Label, " ")
			}
		}
	}
	return v.Why.Remedy(shortName(r.Ref), v.Node, pkg)
}

// explainCauses are the reasons that a reason comes from.
func (s *view) explainCauses(r *rollout.Rollout, v rollout.Verdict, seen map[string]bool) []explanation {
	switch v.Why.Reason {
	case rollout.ReasonEarlierRollout, rollout.ReasonOccupied:
		if other, _, ok := s.findRollout(strings.Replace(v.Why.About, " ", "/", 1)); ok {
			if w, ok := s.findVerdict(other.Ref, v.Node); ok {
				return []explanation{s.explainVerdict(other, w, seen)}
			}
		}
	case rollout.ReasonBarrier:
		if other, _, ok := s.findRollout(strings.Replace(v.Why.About, " ", "/", 1)); ok {
			return s.explainFirst(other, seen, func(_ *rollout.Target, w rollout.Verdict) bool { return w.Phase != rollout.PhaseFinished })
		}
	case rollout.ReasonBudget, rollout.ReasonBatch, rollout.ReasonStopped, rollout.ReasonTopology:
		group := s.groupOf(r, v.Node)
		var out []explanation
		for i := range s.snapshot.Rollouts {
			out = append(out, s.explainFirst(&s.snapshot.Rollouts[i], seen, func(t *rollout.Target, w rollout.Verdict) bool {
				return t.Group == group && t.Node != v.Node && (t.Admitted || w.Phase == rollout.PhaseFailed)
			})...)
		}
		return out[:min(len(out), 3)]
	}
	return nil
}

func (s *view) groupOf(r *rollout.Rollout, node string) rollout.GroupRef {
	if t := s.findTarget(r.Ref, node); t != nil {
		return t.Group
	}
	return rollout.GroupRef{}
}

// explainFirst explains the first targets of a rollout that are meant, each reason once.
func (s *view) explainFirst(r *rollout.Rollout, seen map[string]bool, meant func(*rollout.Target, rollout.Verdict) bool) []explanation {
	var out []explanation
	told := map[rollout.Reason]int{}
	for i, v := range s.reportOf(r.Ref).Verdicts {
		if !meant(&r.Targets[i], v) {
			continue
		}
		if at, ok := told[v.Why.Reason]; ok {
			out[at].Nodes++
			continue
		}
		if len(out) == 3 {
			continue
		}
		told[v.Why.Reason] = len(out)
		b := s.explainVerdict(r, v, seen)
		b.Nodes = 1
		out = append(out, b)
	}
	for i := range out {
		if out[i].Nodes > 1 {
			out[i].Subject += fmt.Sprintf(" and %d more", out[i].Nodes-1)
		}
	}
	return out
}

// formatReasons prints reasons, those behind them below and further in.
func formatReasons(all []explanation, depth int) string {
	var b strings.Builder
	in := strings.Repeat("    ", depth)
	for i, w := range all {
		if depth == 0 && i > 0 {
			b.WriteString("\n")
		}
		arrow := ""
		if depth > 0 {
			arrow = "└ "
		}
		head := w.Subject
		if w.Phase != "" {
			head += ": " + w.Phase
		}
		if w.Since != "" {
			head += ", for " + w.Since
		}
		fmt.Fprintf(&b, "%s%s%s\n%s  %s: %s\n", in, arrow, head, in, w.Reason, w.Text)
		if w.Help != "" {
			fmt.Fprintf(&b, "%s  → %s\n", in, w.Help)
		}
		b.WriteString(formatReasons(w.Causes, depth+1))
	}
	return b.String()
}
