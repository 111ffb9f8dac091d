// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import "slices"

// Decide says what to do next. It is the only place where anything is decided.
//
// It judges every target by the gates, advances what is in flight, learns from the batches that ended, admits more,
// and takes taints away where everything required is finished.
func Decide(s Snapshot) Plan {
	f := survey(&s)
	f.releaseLeftHolds()
	f.taintNewNodes()
	for i := range f.posts {
		p := &f.posts[i]
		p.verdict = f.judge(p)
		f.advance(p)
	}
	f.admit()
	f.untaintFinished()
	return f.withoutSending(f.finish())
}

// withoutSending leaves the nodes alone where an earlier plan is still being carried out. They are judged like all others,
// so that what they take stays taken; what is to be done next is decided when it is known what became of the last.
func (f *fleet) withoutSending(p Plan) Plan {
	p.Actions = slices.DeleteFunc(p.Actions, func(a Action) bool {
		n := f.byName[a.Node]
		return n != nil && n.Sending
	})
	return p
}

// A gate is a question asked about a target that owes work. The first that says no is the verdict.
type gate struct {
	newcomers bool // asked before admission only: what is in flight goes on
	no        func(*fleet, *post) (Verdict, bool)
}

// gates is the specification of who may be worked on, top to bottom.
var gates = []gate{
	{no: nothingOwed},
	{no: cannotBeWorkedOn},
	{no: nodeGone},
	{no: rolloutPaused},
	{newcomers: true, no: gaveUpBefore},
	{newcomers: true, no: behindBarrier},
	{newcomers: true, no: earlierRolloutOwes},
	{newcomers: true, no: nodeOccupied},
	{newcomers: true, no: nodeNotReady},
}

// judge walks the gates. A target that passes them all goes on, or stands for admission.
func (f *fleet) judge(p *post) Verdict {
	for i := range gates {
		if gates[i].newcomers && p.t.Admitted {
			continue
		}
		if v, no := gates[i].no(f, p); no {
			return v
		}
	}
	p.passes = true
	if !p.t.Admitted {
		p.g.candidates++
		if p.q.Deleting {
			p.g.deletions++
		}
	}
	return Verdict{}
}

func nothingOwed(_ *fleet, p *post) (Verdict, bool) {
	switch {
	case p.odd != nil || !p.exists:
		return Verdict{}, false
	case p.t.Leaving && !p.t.Admitted:
		return Verdict{Phase: PhaseFinished, Why: Why{Reason: ReasonLeft, Text: "the node is no longer selected"}}, true
	case p.owes || p.t.Leaving:
		return Verdict{}, false
	case p.t.Unproven != nil:
		return Verdict{Phase: PhaseFinished, Why: because(p.t.Unproven, ReasonHealthGate)}, true
	case p.soaking:
		return Verdict{Phase: PhaseFinished, Why: Why{Reason: ReasonSoak, Since: p.proven.Add(-p.g.Soak),
			Text: "everything is done; it counts when the node has stayed ready for " + p.g.Soak.String()}}, true
	}
	return Verdict{Phase: PhaseFinished, Why: Why{Reason: ReasonFinished, Text: "nothing is owed"}}, true
}

func cannotBeWorkedOn(_ *fleet, p *post) (Verdict, bool) {
	switch {
	case p.odd != nil:
		return Verdict{Phase: PhaseBlocked, Why: *p.odd}, true
	case p.exists && p.t.Blocked != nil && (p.unreadable() || !p.t.Leaving):
		return Verdict{Phase: PhaseBlocked, Why: because(p.t.Blocked, ReasonInvalidSpec)}, true
	}
	return Verdict{}, false
}

func nodeGone(_ *fleet, p *post) (Verdict, bool) {
	if p.exists {
		return Verdict{}, false
	}
	why := Why{Reason: ReasonNodeGone, About: "Node " + p.t.Node, Text: "the node does not exist any more"}
	if p.n != nil && !p.t.Gone {
		why.Text = "the node was replaced by another of the same name"
	}
	if p.q.Deleting {
		why.Reason = ReasonGiveUp
		return Verdict{Phase: PhaseFailed, Why: why}, true
	}
	return Verdict{Phase: PhaseFinished, Why: why}, true
}

func rolloutPaused(_ *fleet, p *post) (Verdict, bool) {
	switch {
	case p.q.Broken != nil:
		return Verdict{Phase: PhaseBlocked, Why: because(p.q.Broken, ReasonInvalidSpec)}, true
	case p.t.Leaving && p.t.Admitted: // nothing starts there, paused or not; the node is given back
		return Verdict{}, false
	case p.q.Paused && p.q.Yields:
		return Verdict{Phase: PhaseDisabled, Why: p.q.says(ReasonDisabled)}, true
	case p.q.Paused:
		return Verdict{Phase: PhasePaused, Why: p.q.says(ReasonPaused)}, true
	}
	return Verdict{}, false
}

func gaveUpBefore(_ *fleet, p *post) (Verdict, bool) {
	if !p.t.Skipped || p.q.Deleting {
		return Verdict{}, false
	}
	why := Why{Reason: ReasonDrainTimeout, Text: "the drain took too long and the node was given back"}
	for i := range p.t.Tasks {
		if t := &p.t.Tasks[i]; t.finallyFailed() {
			why = because(t.Why, ReasonStageFailed)
		}
	}
	return Verdict{Phase: PhaseFailed, Why: why}, true
}

func behindBarrier(_ *fleet, p *post) (Verdict, bool) {
	if p.q.barrier == nil {
		return Verdict{}, false
	}
	return Verdict{Phase: PhaseWaiting, Why: p.q.barrier.says(ReasonBarrier)}, true
}

// earlierRolloutOwes keeps the order between rollouts of one kind on one node. Who is disabled or cannot be compiled
// does not make others wait; who is at work on the node does, whatever its kind: see nodeOccupied.
func earlierRolloutOwes(_ *fleet, p *post) (Verdict, bool) {
	for e := p.n.first; e != nil && e != p; e = e.next {
		if e.exists && e.q.Sequence == p.q.Sequence && e.unfinished() && !e.q.stepsAside() {
			return Verdict{Phase: PhaseWaiting, Why: e.q.says(ReasonEarlierRollout)}, true
		}
	}
	return Verdict{}, false
}

func nodeOccupied(_ *fleet, p *post) (Verdict, bool) {
	if o := p.n.occupant; o != nil && o != p {
		return Verdict{Phase: PhaseWaiting, Why: o.q.says(ReasonOccupied)}, true
	}
	return Verdict{}, false
}

func nodeNotReady(_ *fleet, p *post) (Verdict, bool) {
	if p.n.Ready {
		return Verdict{}, false
	}
	return Verdict{Phase: PhaseWaiting, Why: notReady(p.n.Node)}, true
}
