// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

// gate is a check of a target. The first gate that a target does not pass gives its verdict.
type gate struct {
	ofRollout bool // the same for all targets of a rollout that are not in flight
	onlyNew   bool // checked before admission only: what is in flight continues
	check     func(*targetState) (v Verdict, stops bool)
}

// gates are all conditions under which a target may be worked on, in the order in which they are checked.
var gates = []gate{
	{check: checkFinished},
	{check: checkBlocked},
	{check: checkNodeGone},
	{check: checkPaused, ofRollout: true},
	{check: checkGivenUp, onlyNew: true},
	{check: checkBarrier, onlyNew: true, ofRollout: true},
	{check: checkEarlierRollouts, onlyNew: true},
	{check: checkOccupied, onlyNew: true},
	{check: checkReady, onlyNew: true},
}

// evaluateGates returns the verdict of the first gate that the target does not pass. A target that passes them all
// continues, or becomes a candidate for admission.
func evaluateGates(t *targetState) Verdict {
	for i := range gates {
		if gates[i].onlyNew && t.target.Admitted {
			continue
		}
		if v, stops := gates[i].check(t); stops {
			return v
		}
	}
	t.passesGates = true
	if !t.target.Admitted {
		t.group.addCandidate(t)
	}
	return Verdict{}
}

func checkFinished(t *targetState) (Verdict, bool) {
	if t.invalid != nil || !t.exists {
		return Verdict{}, false
	}
	hasLeft := t.target.Leaving && !t.target.Admitted
	if hasLeft {
		why := Why{Reason: ReasonLeft, Text: "the node is no longer selected"}
		return Verdict{Phase: PhaseFinished, Why: why}, true
	}
	if t.hasWork || t.target.Leaving {
		return Verdict{}, false
	}
	return Verdict{Phase: PhaseFinished, Why: t.finishedReason()}, true
}

// finishedReason returns why a target without work counts as finished, or does not count yet.
func (t *targetState) finishedReason() Why {
	switch {
	case t.target.Unproven != nil:
		return withDefaultReason(t.target.Unproven, ReasonHealthGate)
	case t.isSoaking:
		return Why{
			Reason: ReasonSoak,
			Text:   "all work is done; it counts when the node has been ready for " + t.group.Soak.String(),
			Since:  t.soakedAt.Add(-t.group.Soak),
		}
	}
	return Why{Reason: ReasonFinished, Text: "no work is pending"}
}

func checkBlocked(t *targetState) (Verdict, bool) {
	if t.invalid != nil {
		return Verdict{Phase: PhaseBlocked, Why: *t.invalid}, true
	}
	if !t.exists || t.target.Blocked == nil {
		return Verdict{}, false
	}
	isLeaving := t.target.Leaving && !t.isUnreadable()
	if isLeaving {
		return Verdict{}, false
	}
	if t.isExcludedBehindBarrier() {
		return checkBarrier(t)
	}
	return Verdict{Phase: PhaseBlocked, Why: withDefaultReason(t.target.Blocked, ReasonInvalidSpec)}, true
}

// isExcludedBehindBarrier reports whether a label or a taint excludes the node and the turn of the rollout has not come.
// It waits like all nodes of the rollout: what excludes it may be gone by then.
func (t *targetState) isExcludedBehindBarrier() bool {
	isExcluded := t.target.Blocked.Reason == ReasonIgnored || t.target.Blocked.Reason == ReasonTaintNotTolerated
	r := t.rollout
	isWaiting := r.barrier != nil && !r.Paused && r.Broken == nil
	return isExcluded && isWaiting && !t.target.Admitted
}

func checkNodeGone(t *targetState) (Verdict, bool) {
	if t.exists {
		return Verdict{}, false
	}
	why := Why{
		Reason: ReasonNodeGone,
		Text:   "the node no longer exists",
		About:  "Node " + t.target.Node,
	}
	if t.node != nil && !t.target.Gone {
		why.Text = "the node was replaced by another node of the same name"
	}
	if t.rollout.Deleting {
		why.Reason = ReasonGiveUp
		return Verdict{Phase: PhaseFailed, Why: why}, true
	}
	return Verdict{Phase: PhaseFinished, Why: why}, true
}

// checkPaused stops targets of a paused rollout. A node that is no longer selected is given back all the same: nothing
// starts on it.
func checkPaused(t *targetState) (Verdict, bool) {
	r := t.rollout
	if r.Broken != nil {
		return Verdict{Phase: PhaseBlocked, Why: withDefaultReason(r.Broken, ReasonInvalidSpec)}, true
	}
	isGivenBack := t.target.Leaving && t.target.Admitted
	if !r.Paused || isGivenBack {
		return Verdict{}, false
	}
	if r.Yields {
		return Verdict{Phase: PhaseDisabled, Why: r.reasonToWait(ReasonDisabled)}, true
	}
	return Verdict{Phase: PhasePaused, Why: r.reasonToWait(ReasonPaused)}, true
}

func checkGivenUp(t *targetState) (Verdict, bool) {
	if !t.target.Skipped || t.rollout.Deleting {
		return Verdict{}, false
	}
	why := Why{Reason: ReasonDrainTimeout, Text: "the drain took too long and the node was released"}
	for i := range t.target.Tasks {
		if task := &t.target.Tasks[i]; task.hasFinallyFailed() {
			why = withDefaultReason(task.Why, ReasonStageFailed)
		}
	}
	return Verdict{Phase: PhaseFailed, Why: why}, true
}

func checkBarrier(t *targetState) (Verdict, bool) {
	if t.rollout.barrier == nil {
		return Verdict{}, false
	}
	return Verdict{Phase: PhaseWaiting, Why: t.rollout.barrier.reasonToWait(ReasonBarrier)}, true
}

// checkEarlierRollouts keeps the order between rollouts of one sequence on one node. A rollout that is disabled or
// cannot be compiled makes no other wait, unless it occupies the node: see checkOccupied.
func checkEarlierRollouts(t *targetState) (Verdict, bool) {
	first := t.node.findTarget(func(e *targetState) bool { return e == t || t.isBehind(e) })
	if first == t {
		return Verdict{}, false
	}
	return Verdict{Phase: PhaseWaiting, Why: first.rollout.reasonToWait(ReasonEarlierRollout)}, true
}

// isBehind reports whether an earlier target of the node has to finish first.
func (t *targetState) isBehind(e *targetState) bool {
	if e.rollout.Sequence != t.rollout.Sequence || e.rollout.isBypassed() {
		return false
	}
	return e.exists && e.isUnfinished()
}

func checkOccupied(t *targetState) (Verdict, bool) {
	o := t.node.occupant
	if o == nil || o == t {
		return Verdict{}, false
	}
	return Verdict{Phase: PhaseWaiting, Why: o.rollout.reasonToWait(ReasonOccupied)}, true
}

func checkReady(t *targetState) (Verdict, bool) {
	if t.node.Ready {
		return Verdict{}, false
	}
	return Verdict{Phase: PhaseWaiting, Why: notReadyReason(t.node.Node)}, true
}
