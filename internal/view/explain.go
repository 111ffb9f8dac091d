// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"slices"
	"strings"

	nodeopv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/profile"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Limits of an explanation.
const (
	maxExplained = 8 // targets in a chain of causes
	maxCauses    = 3 // of one reason
)

// Explainer explains one verdict and follows its causes, each target once.
type Explainer struct {
	*Cluster
	explained map[string]bool // by subject
}

// NewExplainer returns what explains the verdicts of a cluster, each cause once.
func NewExplainer(v *Cluster) *Explainer { return &Explainer{Cluster: v, explained: map[string]bool{}} }

// Explain says why a target waits or failed, and what helps.
func (x *Explainer) Explain(r *rollout.Rollout, verdict rollout.Verdict) Explanation {
	e := Explanation{
		Subject: ShortName(r.Ref) + " on " + verdict.Node, Phase: string(verdict.Phase),
		Reason: string(verdict.Why.Reason), Text: verdict.Why.Text, Help: x.findRemedy(r, verdict),
		Profile: x.Objects.Profiles[r.Ref],
	}
	if since := verdict.Why.Since; !since.IsZero() && x.Snapshot.Now.After(since) && verdict.Phase != rollout.PhaseFinished {
		e.Since = FormatDuration(x.Snapshot.Now.Sub(since))
	}
	for _, d := range describeDrains(x.Snapshot.Now, x.ReportOf(r.Ref).Draining) {
		if d.Node == verdict.Node {
			e.Drain = &d
		}
	}
	if x.explained[e.Subject] || len(x.explained) >= maxExplained {
		return e
	}
	x.explained[e.Subject] = true
	e.Causes = x.explainCauses(r, verdict)
	return e
}

// findRemedy returns what would end a wait, with the names of the objects.
func (x *Explainer) findRemedy(r *rollout.Rollout, verdict rollout.Verdict) string {
	pkg := ""
	if t := x.findTarget(r.Ref, verdict.Node); t != nil {
		for _, k := range t.Tasks {
			if k.State == rollout.StateFailing || k.State == rollout.StateRunning && pkg == "" {
				pkg, _, _ = strings.Cut(k.Label, " ")
			}
		}
	}
	return verdict.Why.Remedy(ShortName(r.Ref), verdict.Node, pkg)
}

// explainCauses explains the reasons that cause a reason.
func (x *Explainer) explainCauses(r *rollout.Rollout, verdict rollout.Verdict) []Explanation {
	switch verdict.Why.Reason {
	case rollout.ReasonEarlierRollout, rollout.ReasonOccupied:
		other := x.FindRollout(strings.Replace(verdict.Why.About, " ", "/", 1))
		if other == nil {
			return nil
		}
		if cause, ok := x.findVerdict(other.Ref, verdict.Node); ok {
			return []Explanation{x.Explain(other, cause)}
		}
	case rollout.ReasonBarrier:
		other := x.FindRollout(strings.Replace(verdict.Why.About, " ", "/", 1))
		if other == nil {
			return nil
		}
		return x.explainFirst(other, func(_ *rollout.Target, v rollout.Verdict) bool { return v.Phase != rollout.PhaseFinished })
	case rollout.ReasonWave:
		return x.explainWave(verdict)
	case rollout.ReasonBudget, rollout.ReasonBatch, rollout.ReasonStopped, rollout.ReasonTopology:
		return x.explainGroup(r, verdict)
	}
	return nil
}

// explainGroup explains the other targets that use the budget of a target's group.
func (x *Explainer) explainGroup(r *rollout.Rollout, verdict rollout.Verdict) []Explanation {
	var group rollout.GroupRef
	if t := x.findTarget(r.Ref, verdict.Node); t != nil {
		group = t.Group
	}
	var all []Explanation
	for i := range x.Snapshot.Rollouts {
		all = append(all, x.explainFirst(&x.Snapshot.Rollouts[i], func(t *rollout.Target, v rollout.Verdict) bool {
			isOther := t.Group == group && t.Node != verdict.Node
			return isOther && (t.Visit.Admitted || v.Phase == rollout.PhaseFailed)
		})...)
	}
	return all[:min(len(all), maxCauses)]
}

// explainWave explains why the targets of an earlier compartment are not complete.
func (x *Explainer) explainWave(verdict rollout.Verdict) []Explanation {
	before := rollout.ParseGroupRef(verdict.Why.About)
	var all []Explanation
	for i := range x.Snapshot.Rollouts {
		all = append(all, x.explainFirst(&x.Snapshot.Rollouts[i], func(t *rollout.Target, v rollout.Verdict) bool {
			isOpen := v.Phase != rollout.PhaseFinished || v.Why.Reason == rollout.ReasonSoak || v.Why.Reason == rollout.ReasonHealthGate
			isExcluded := v.Why.Reason == rollout.ReasonIgnored || v.Why.Reason == rollout.ReasonTaintNotTolerated
			return t.Group == before && t.Node != verdict.Node && isOpen && !isExcluded
		})...)
	}
	return all[:min(len(all), maxCauses)]
}

// explainFirst explains each reason once, for the first matching targets of a rollout.
func (x *Explainer) explainFirst(r *rollout.Rollout, matches func(*rollout.Target, rollout.Verdict) bool) []Explanation {
	var all []Explanation
	index := map[rollout.Reason]int{}
	for i, verdict := range x.ReportOf(r.Ref).Verdicts {
		if !matches(r.Targets[i], verdict) {
			continue
		}
		if at, ok := index[verdict.Why.Reason]; ok {
			all[at].Nodes++
			continue
		}
		if len(all) == maxCauses {
			continue
		}
		index[verdict.Why.Reason] = len(all)
		e := x.Explain(r, verdict)
		e.Nodes = 1
		all = append(all, e)
	}
	appendCounts(all)
	return all
}

// Explanation is one reason, with the reasons that cause it.
type Explanation struct {
	Subject string        `json:"subject"` // the waiting object or node
	Nodes   int           `json:"nodes,omitempty"`
	Phase   string        `json:"phase,omitempty"`
	Reason  string        `json:"reason"`
	Text    string        `json:"text"`
	Since   string        `json:"since,omitempty"` // how long ago it began
	Help    string        `json:"help,omitempty"`
	Drain   *DrainStatus  `json:"drain,omitempty"` // of the node, if pods are in the way
	Causes  []Explanation `json:"behind,omitempty"`

	Profile *profile.Chosen `json:"profile,omitempty"` // of the object
}

// ExplainNode explains every rollout that selects a node, and a cordon.
func ExplainNode(v *Cluster, node string) []Explanation {
	all := []Explanation{}
	for i := range v.Snapshot.Rollouts {
		r := &v.Snapshot.Rollouts[i]
		if verdict, ok := v.findVerdict(r.Ref, node); ok {
			all = append(all, NewExplainer(v).Explain(r, verdict))
		}
	}
	n := v.Objects.Node(node)
	if n.Unschedulable {
		e := Explanation{
			Subject: "Node " + node, Reason: "Cordoned", Text: "the node is cordoned, and not by Skyhook",
			Help: "kubectl uncordon " + node + ", if nobody needs it cordoned",
		}
		if holds := n.Holds(nil); len(holds) > 0 {
			var owners []string
			for _, h := range holds {
				owners = append(owners, ShortName(h.Owner))
			}
			e.Text, e.Help = "the node is cordoned by "+strings.Join(owners, ", "), "it is uncordoned when they are done there"
		}
		all = append(all, e)
	}
	if len(all) == 0 {
		all = append(all, Explanation{Subject: "Node " + node, Reason: "NotSelected", Text: "no Skyhook and no NodeOp selects the node", Help: "compare its labels with nodeSelectors"})
	}
	return all
}

// ExplainRollout explains each phase and reason of a rollout once, for the first node with it.
func ExplainRollout(v *Cluster, r *rollout.Rollout) []Explanation {
	if op := v.endedNodeOp(r); op != nil {
		return explainEnded(op)
	}
	if r.Broken != nil {
		return []Explanation{{Subject: r.Ref.String(), Reason: string(r.Broken.Reason), Text: r.Broken.Text, Help: r.Broken.Remedy(ShortName(r.Ref), "NODE", "")}}
	}
	type key struct {
		phase  rollout.Phase
		reason rollout.Reason
	}
	first, counts := map[key]rollout.Verdict{}, map[key]int{}
	var order []key
	for _, verdict := range v.ReportOf(r.Ref).Verdicts {
		k := key{verdict.Phase, verdict.Why.Reason}
		if counts[k] == 0 {
			first[k] = verdict
			order = append(order, k)
		}
		counts[k]++
	}
	slices.SortStableFunc(order, func(a, b key) int { return slices.Index(phaseOrder, a.phase) - slices.Index(phaseOrder, b.phase) })
	all := []Explanation{}
	for _, k := range order {
		e := NewExplainer(v).Explain(r, first[k])
		e.Nodes = counts[k]
		all = append(all, e)
	}
	appendCounts(all)
	if len(all) == 0 {
		all = append(all, Explanation{Subject: r.Ref.String(), Reason: "NoNodes", Text: "it selects no node", Help: "compare nodeSelectors with the labels of the nodes"})
	}
	return all
}

// phaseOrder sorts phases by urgency.
var phaseOrder = []rollout.Phase{
	rollout.PhaseFailed, rollout.PhaseFailing, rollout.PhaseBlocked, rollout.PhaseInFlight, rollout.PhaseWaiting, rollout.PhasePaused, rollout.PhaseDisabled, rollout.PhaseFinished,
}

// explainEnded explains how a NodeOp ended: each message of a failure once.
func explainEnded(op *nodeopv1.NodeOp) []Explanation {
	name := ShortName(nodeop.Ref(op))
	all := []Explanation{{
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
		all = append(all, Explanation{
			Subject: name + " on " + failed.Node, Nodes: 1, Phase: "failed", Reason: string(rollout.ReasonStageFailed), Text: failed.Text,
			Help: "fix the cause, and create a new NodeOp: an ended one does not run again",
		})
	}
	appendCounts(all)
	return all
}

// appendCounts adds the number of further nodes to subjects.
func appendCounts(all []Explanation) {
	for i := range all {
		if all[i].Nodes > 1 {
			all[i].Subject += fmt.Sprintf(" and %d more", all[i].Nodes-1)
		}
	}
}
