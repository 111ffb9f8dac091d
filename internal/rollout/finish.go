// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import "slices"

// finish puts the plan together.
func (f *fleet) finish() Plan {
	for i := range f.books {
		if f.books[i].write {
			f.plan.Ledgers = append(f.plan.Ledgers, f.books[i].next())
		}
	}
	slices.SortFunc(f.plan.Ledgers, func(a, b Ledger) int { return a.Owner.Compare(b.Owner) })
	f.plan.Reports = make([]Report, len(f.Rollouts))
	for i := range f.queues {
		q := &f.queues[i]
		r := Report{Rollout: q.Ref, NextOrder: q.given, Verdicts: make([]Verdict, len(q.Targets))}
		open := false
		for j := range q.posts {
			p := &q.posts[j]
			p.verdict.Node = p.t.Node
			p.sayWhen()
			r.Verdicts[p.index] = p.verdict
			open = open || p.exists && p.unfinished() && (!p.ended || p.n.Sending) // what ends there may not have arrived
		}
		if !open { // what comes next is another rollout
			r.NextOrder = 0
		}
		f.plan.Reports[f.place(q.Rollout)] = r
	}
	f.plan.Groups = make([]GroupReport, len(f.pools))
	for i := range f.pools {
		f.plan.Groups[i] = f.pools[i].report()
	}
	return f.plan
}

// sayWhen says since when a target waits where nobody knows it more exactly: no longer than it is in flight, or than the
// rollout owes something.
func (p *post) sayWhen() {
	why := &p.verdict.Why
	switch {
	case !why.Since.IsZero():
	case p.verdict.Phase == PhaseFinished:
		if why.Reason == ReasonHealthGate {
			why.Since = p.t.FinishedAt
		}
	case p.t.Admitted:
		why.Since = p.t.AdmittedAt
	case p.n != nil && !p.q.Since.IsZero():
		why.Since = latest(p.q.Since, p.n.Created)
	}
}

// place is where a rollout stands in the snapshot.
func (f *fleet) place(r *Rollout) int {
	for i := range f.Rollouts {
		if &f.Rollouts[i] == r {
			return i
		}
	}
	return 0
}
