// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import "slices"

// Decide says what to do next. It is the only place where anything is decided.
//
// It evaluates the gates of every target, advances what is in flight, learns from the batches that ended, admits more,
// and removes taints where everything required is finished.
func Decide(s Snapshot) Plan {
	return newPlanner(&s).decide()
}

func (p *planner) decide() Plan {
	p.releaseLeftHolds()
	p.taintNewNodes()
	for i := range p.targets {
		t := &p.targets[i]
		t.verdict = p.evaluateGates(t)
		p.advance(t)
	}
	p.admitTargets()
	p.untaintFinished()
	plan := p.buildPlan()
	plan.Actions = slices.DeleteFunc(plan.Actions, p.isOnSendingNode)
	return plan
}

// isOnSendingNode reports whether an earlier plan is still being applied to the node of an action. The targets there are
// judged like all others and keep their reservations, but the next actions wait for the outcome of the earlier ones.
func (p *planner) isOnSendingNode(a Action) bool {
	n := p.byName[a.Node]
	return n != nil && n.Sending
}

// A gate is a question asked about a target that owes work. The first that says no is the verdict.
type gate struct {
	ofRollout bool // the same for all targets of a rollout that are not in flight
	onlyNew   bool // asked before admission only: what is in flight goes on
	blocks    func(*planner, *targetState) (Verdict, bool)
}

// gates is the specification of who may be worked on, top to bottom.
var gates = []gate{
	{blocks: isFinished},
	{blocks: isBlocked},
	{blocks: isNodeGone},
	{ofRollout: true, blocks: isRolloutPaused},
	{onlyNew: true, blocks: isGivenUp},
	{ofRollout: true, onlyNew: true, blocks: isBehindBarrier},
	{onlyNew: true, blocks: isBehindEarlierRollout},
	{onlyNew: true, blocks: isNodeOccupied},
	{onlyNew: true, blocks: isNodeNotReady},
}

// evaluateGates walks the gates. A target that passes them all goes on, or stands for admission.
func (p *planner) evaluateGates(t *targetState) Verdict {
	for i := range gates {
		if gates[i].onlyNew && t.target.Admitted {
			continue
		}
		if v, no := gates[i].blocks(p, t); no {
			return v
		}
	}
	t.passesGates = true
	if !t.target.Admitted {
		t.group.candidates++
		if t.rollout.Deleting {
			t.group.deletions++
		}
	}
	return Verdict{}
}

func isFinished(_ *planner, t *targetState) (Verdict, bool) {
	switch {
	case t.invalid != nil || !t.exists:
		return Verdict{}, false
	case t.target.Leaving && !t.target.Admitted:
		return Verdict{Phase: PhaseFinished, Why: Why{Reason: ReasonLeft, Text: "the node is no longer selected"}}, true
	case t.hasWork || t.target.Leaving:
		return Verdict{}, false
	case t.target.Unproven != nil:
		return Verdict{Phase: PhaseFinished, Why: withDefaultReason(t.target.Unproven, ReasonHealthGate)}, true
	case t.isSoaking:
		return Verdict{Phase: PhaseFinished, Why: Why{Reason: ReasonSoak, Since: t.soakedAt.Add(-t.group.Soak),
			Text: "everything is done; it counts when the node has stayed ready for " + t.group.Soak.String()}}, true
	}
	return Verdict{Phase: PhaseFinished, Why: Why{Reason: ReasonFinished, Text: "nothing is owed"}}, true
}

func isBlocked(_ *planner, t *targetState) (Verdict, bool) {
	switch {
	case t.invalid != nil:
		return Verdict{Phase: PhaseBlocked, Why: *t.invalid}, true
	case t.exists && t.target.Blocked != nil && (t.isUnreadable() || !t.target.Leaving):
		return Verdict{Phase: PhaseBlocked, Why: withDefaultReason(t.target.Blocked, ReasonInvalidSpec)}, true
	}
	return Verdict{}, false
}

func isNodeGone(_ *planner, t *targetState) (Verdict, bool) {
	if t.exists {
		return Verdict{}, false
	}
	why := Why{Reason: ReasonNodeGone, About: "Node " + t.target.Node, Text: "the node does not exist any more"}
	if t.node != nil && !t.target.Gone {
		why.Text = "the node was replaced by another of the same name"
	}
	if t.rollout.Deleting {
		why.Reason = ReasonGiveUp
		return Verdict{Phase: PhaseFailed, Why: why}, true
	}
	return Verdict{Phase: PhaseFinished, Why: why}, true
}

func isRolloutPaused(_ *planner, t *targetState) (Verdict, bool) {
	switch {
	case t.rollout.Broken != nil:
		return Verdict{Phase: PhaseBlocked, Why: withDefaultReason(t.rollout.Broken, ReasonInvalidSpec)}, true
	case t.target.Leaving && t.target.Admitted: // nothing starts there, paused or not; the node is given back
		return Verdict{}, false
	case t.rollout.Paused && t.rollout.Yields:
		return Verdict{Phase: PhaseDisabled, Why: t.rollout.reasonToWait(ReasonDisabled)}, true
	case t.rollout.Paused:
		return Verdict{Phase: PhasePaused, Why: t.rollout.reasonToWait(ReasonPaused)}, true
	}
	return Verdict{}, false
}

func isGivenUp(_ *planner, t *targetState) (Verdict, bool) {
	if !t.target.Skipped || t.rollout.Deleting {
		return Verdict{}, false
	}
	why := Why{Reason: ReasonDrainTimeout, Text: "the drain took too long and the node was given back"}
	for i := range t.target.Tasks {
		if task := &t.target.Tasks[i]; task.hasFinallyFailed() {
			why = withDefaultReason(task.Why, ReasonStageFailed)
		}
	}
	return Verdict{Phase: PhaseFailed, Why: why}, true
}

func isBehindBarrier(_ *planner, t *targetState) (Verdict, bool) {
	if t.rollout.barrier == nil {
		return Verdict{}, false
	}
	return Verdict{Phase: PhaseWaiting, Why: t.rollout.barrier.reasonToWait(ReasonBarrier)}, true
}

// isBehindEarlierRollout keeps the order between rollouts of one kind on one node. Who is disabled or cannot be compiled
// does not make others wait; who is at work on the node does, whatever its kind: see nodeOccupied.
func isBehindEarlierRollout(_ *planner, t *targetState) (Verdict, bool) {
	for e := t.node.firstTarget; e != nil && e != t; e = e.nextOnNode {
		if e.exists && e.rollout.Sequence == t.rollout.Sequence && e.isUnfinished() && !e.rollout.isBypassed() {
			return Verdict{Phase: PhaseWaiting, Why: e.rollout.reasonToWait(ReasonEarlierRollout)}, true
		}
	}
	return Verdict{}, false
}

func isNodeOccupied(_ *planner, t *targetState) (Verdict, bool) {
	if o := t.node.occupant; o != nil && o != t {
		return Verdict{Phase: PhaseWaiting, Why: o.rollout.reasonToWait(ReasonOccupied)}, true
	}
	return Verdict{}, false
}

func isNodeNotReady(_ *planner, t *targetState) (Verdict, bool) {
	if t.node.Ready {
		return Verdict{}, false
	}
	return Verdict{Phase: PhaseWaiting, Why: notReadyReason(t.node.Node)}, true
}
