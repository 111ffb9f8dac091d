// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import "slices"

// buildPlan puts the plan together.
func (p *planner) buildPlan() Plan {
	for i := range p.ledgers {
		if p.ledgers[i].mustWrite {
			p.plan.Ledgers = append(p.plan.Ledgers, p.ledgers[i].nextVersion())
		}
	}
	slices.SortFunc(p.plan.Ledgers, func(a, b Ledger) int { return a.Owner.Compare(b.Owner) })
	p.plan.Reports = make([]Report, len(p.Rollouts))
	for i := range p.rollouts {
		q := &p.rollouts[i]
		r := Report{Rollout: q.Ref, NextOrder: q.givenOrder, Verdicts: make([]Verdict, len(q.Targets))}
		open := q.omittedWork() > 0
		for j := range q.targets {
			t := &q.targets[j]
			t.verdict.Node = t.target.Node
			t.setVerdictSince()
			r.Verdicts[t.index] = t.verdict
			open = open || t.exists && t.isUnfinished() && (!t.isRetired || t.node.Sending) // what ends there may not have arrived
		}
		if !open { // what comes next is another rollout
			r.NextOrder = 0
		}
		p.plan.Reports[p.indexOfRollout(q.Rollout)] = r
	}
	p.plan.Groups = make([]GroupReport, len(p.groups))
	for i := range p.groups {
		p.plan.Groups[i] = p.groups[i].buildReport()
	}
	return p.plan
}

// setVerdictSince says since when a target waits where nobody knows it more exactly: no longer than it is in flight, or than the
// rollout owes something.
func (t *targetState) setVerdictSince() {
	why := &t.verdict.Why
	switch {
	case !why.Since.IsZero():
	case t.verdict.Phase == PhaseFinished:
		if why.Reason == ReasonHealthGate {
			why.Since = t.target.FinishedAt
		}
	case t.target.Admitted:
		why.Since = t.target.AdmittedAt
	case t.node != nil && !t.rollout.Since.IsZero():
		why.Since = laterOf(t.rollout.Since, t.node.Created)
	}
}

// indexOfRollout is where a rollout stands in the snapshot.
func (p *planner) indexOfRollout(r *Rollout) int {
	for i := range p.Rollouts {
		if &p.Rollouts[i] == r {
			return i
		}
	}
	return 0
}
