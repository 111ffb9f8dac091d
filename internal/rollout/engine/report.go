// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// reporter completes the plan: ledgers, and reports of rollouts and groups.
type reporter struct{ *planner }

func (r reporter) buildPlan() rollout.Plan {
	plan := r.plan.Plan
	for i := range r.ledgers {
		if r.ledgers[i].mustWrite {
			plan.Ledgers = append(plan.Ledgers, r.ledgers[i].nextVersion())
		}
	}
	slices.SortFunc(plan.Ledgers, func(a, b rollout.Ledger) int { return a.Owner.Compare(b.Owner) })
	plan.Reports = make([]rollout.Report, len(r.rollouts))
	estimates := newEstimator(r.planner)
	for i := range r.rollouts {
		q := &r.rollouts[i]
		plan.Reports[q.index] = q.buildReport()
		plan.Reports[q.index].Draining = q.listDrains(plan.Draining)
		plan.Maintenance = append(plan.Maintenance, q.listMaintenance()...)
		plan.Reports[q.index].Completion = estimates.estimate(q)
	}
	plan.Groups = make([]rollout.GroupReport, len(r.groups))
	for i := range r.groups {
		plan.Groups[i] = r.groups[i].buildReport()
	}
	slices.Sort(plan.Look)
	plan.Look = slices.Compact(plan.Look)
	slices.SortFunc(plan.Draining, func(a, b rollout.Drained) int { return cmp.Or(a.Rollout.Compare(b.Rollout), cmp.Compare(a.UID, b.UID)) })
	slices.SortFunc(plan.Maintenance, compareMaintenance)
	return plan
}

// buildReport reports the verdicts of a rollout. When nothing is open, the next admission begins another rollout.
func (r *rolloutState) buildReport() rollout.Report {
	verdicts := make([]rollout.Verdict, len(r.targets))
	isOpen := r.OmittedWork() > 0
	for i := range r.targets {
		t := &r.targets[i]
		isOpen = isOpen || t.isOpen()
		t.completeVerdict()
		verdicts[t.index] = t.verdict
	}
	report := rollout.Report{Rollout: r.Ref, Verdicts: verdicts}
	if isOpen {
		report.NextOrder = r.givenOrder
	}
	return report
}

// isOpen reports whether a target is unfinished after this plan. One that this plan retires is open while an earlier
// plan is still being applied to its node: the retirement may not be applied yet.
func (t *targetState) isOpen() bool {
	if !t.exists || !t.isUnfinished() {
		return false
	}
	return !t.isRetired || t.node.Sending
}

// completeVerdict sets the node of the verdict, and since when the target waits unless that is known more exactly: no
// longer than it is admitted, or than the rollout has work.
func (t *targetState) completeVerdict() {
	t.verdict.Node = t.target.Node
	if t.verdict.Why.Since.IsZero() {
		t.verdict.Why.Since = t.waitsSince()
	}
	if why := &t.verdict.Why; !why.Reason.IsOfGroup() && (why.Reason != rollout.ReasonProtectedPod || t.waitsFirst()) {
		t.rollout.Defaults.Explain(why)
	}
}

func (t *targetState) waitsSince() (since time.Time) {
	switch {
	case t.verdict.Phase == rollout.PhaseFinished:
		if t.verdict.Why.Reason == rollout.ReasonHealthGate {
			since = t.target.Visit.FinishedAt
		}
	case t.target.Visit.Admitted:
		since = t.target.Visit.AdmittedAt
	case t.node != nil && !t.rollout.Since.IsZero():
		since = rollout.LaterOf(t.rollout.Since, t.node.Created)
	}
	return since
}

// findReason returns why candidates wait, if one does for this reason. What rollouts wait for differs with the first wave only.
func (g *groupState) findReason(reason rollout.Reason) *rollout.Why {
	why := g.waitReasons[string(reason)]
	for i := 0; why == nil && reason == rollout.ReasonWave && i < len(g.wave.asking); i++ {
		why = g.waitReasons[string(reason)+g.wave.asking[i].Ref.String()]
	}
	return why
}

// buildReport reports how far the group is. Of several reasons to wait it reports the most important one.
func (g *groupState) buildReport() rollout.GroupReport {
	report := rollout.GroupReport{
		Group:    g.Ref,
		Memory:   g.memory,
		Matched:  g.Total,
		Ceiling:  g.Limit,
		Busy:     len(g.usage.busy),
		Finished: g.Finished,
		Failed:   g.Failures,
		Waiting:  g.candidates.total,
		InFlight: g.inFlight,
	}
	if g.Frozen != nil && g.candidates.total > 0 {
		report.Why = g.Frozen
		return report
	}
	if report.Why = g.closing; report.Why != nil {
		return report
	}
	for _, reason := range []rollout.Reason{rollout.ReasonWave, rollout.ReasonApproval, rollout.ReasonStopped, rollout.ReasonLedger, rollout.ReasonBudget, rollout.ReasonBatch} {
		if why := g.findReason(reason); why != nil {
			report.Why = why
			break
		}
	}
	return report
}
