// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Limits of an explanation.
const (
	maxExplained = 8 // targets in a chain of causes
	maxCauses    = 3 // of one reason
)

// explainer explains one verdict and follows its causes, each target once.
type explainer struct {
	*view
	explained map[string]bool // by subject
}

func newExplainer(v *view) *explainer { return &explainer{view: v, explained: map[string]bool{}} }

func (x *explainer) explain(r *rollout.Rollout, verdict rollout.Verdict) explanation {
	e := explanation{
		Subject: shortName(r.Ref) + " on " + verdict.Node, Phase: string(verdict.Phase),
		Reason: string(verdict.Why.Reason), Text: verdict.Why.Text, Help: x.findRemedy(r, verdict),
	}
	if since := verdict.Why.Since; !since.IsZero() && x.snapshot.Now.After(since) && verdict.Phase != rollout.PhaseFinished {
		e.Since = formatDuration(x.snapshot.Now.Sub(since))
	}
	for _, d := range describeDrains(x.snapshot.Now, x.reportOf(r.Ref).Draining) {
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
func (x *explainer) findRemedy(r *rollout.Rollout, verdict rollout.Verdict) string {
	pkg := ""
	if t := x.findTarget(r.Ref, verdict.Node); t != nil {
		for _, k := range t.Tasks {
			if k.State == rollout.StateFailing || k.State == rollout.StateRunning && pkg == "" {
				pkg, _, _ = strings.Cut(k.Label, " ")
			}
		}
	}
	return verdict.Why.Remedy(shortName(r.Ref), verdict.Node, pkg)
}

// explainCauses explains the reasons that cause a reason.
func (x *explainer) explainCauses(r *rollout.Rollout, verdict rollout.Verdict) []explanation {
	switch verdict.Why.Reason {
	case rollout.ReasonEarlierRollout, rollout.ReasonOccupied:
		other := x.findRollout(strings.Replace(verdict.Why.About, " ", "/", 1))
		if other == nil {
			return nil
		}
		if cause, ok := x.findVerdict(other.Ref, verdict.Node); ok {
			return []explanation{x.explain(other, cause)}
		}
	case rollout.ReasonBarrier:
		other := x.findRollout(strings.Replace(verdict.Why.About, " ", "/", 1))
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
func (x *explainer) explainGroup(r *rollout.Rollout, verdict rollout.Verdict) []explanation {
	var group rollout.GroupRef
	if t := x.findTarget(r.Ref, verdict.Node); t != nil {
		group = t.Group
	}
	var all []explanation
	for i := range x.snapshot.Rollouts {
		all = append(all, x.explainFirst(&x.snapshot.Rollouts[i], func(t *rollout.Target, v rollout.Verdict) bool {
			isOther := t.Group == group && t.Node != verdict.Node
			return isOther && (t.Visit.Admitted || v.Phase == rollout.PhaseFailed)
		})...)
	}
	return all[:min(len(all), maxCauses)]
}

// explainWave explains why the targets of an earlier compartment are not complete.
func (x *explainer) explainWave(verdict rollout.Verdict) []explanation {
	before := rollout.ParseGroupRef(verdict.Why.About)
	var all []explanation
	for i := range x.snapshot.Rollouts {
		all = append(all, x.explainFirst(&x.snapshot.Rollouts[i], func(t *rollout.Target, v rollout.Verdict) bool {
			isOpen := v.Phase != rollout.PhaseFinished || v.Why.Reason == rollout.ReasonSoak || v.Why.Reason == rollout.ReasonHealthGate
			isExcluded := v.Why.Reason == rollout.ReasonIgnored || v.Why.Reason == rollout.ReasonTaintNotTolerated
			return t.Group == before && t.Node != verdict.Node && isOpen && !isExcluded
		})...)
	}
	return all[:min(len(all), maxCauses)]
}

// explainFirst explains each reason once, for the first matching targets of a rollout.
func (x *explainer) explainFirst(r *rollout.Rollout, matches func(*rollout.Target, rollout.Verdict) bool) []explanation {
	var all []explanation
	index := map[rollout.Reason]int{}
	for i, verdict := range x.reportOf(r.Ref).Verdicts {
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
		e := x.explain(r, verdict)
		e.Nodes = 1
		all = append(all, e)
	}
	appendCounts(all)
	return all
}
