// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine

import "github.com/skyhook-k8s/skyhook/internal/rollout"

// gate is a condition that stops a target. The first gate that stops it gives its verdict.
type gate struct {
	stops     func(*targetState) bool
	verdict   func(*targetState) rollout.Verdict // of a target that is stopped
	ofRollout bool                               // the same for all targets of a rollout that are not in flight
	onlyNew   bool                               // before admission only: what is in flight continues
}

// gates are all conditions that stop a target, in the order in which they are evaluated.
var gates = []gate{
	{stops: isFinished, verdict: finishedVerdict},
	{stops: isBlocked, verdict: blockedVerdict},
	{stops: isNodeGone, verdict: nodeGoneVerdict},
	{stops: isPaused, verdict: pausedVerdict, ofRollout: true},
	{stops: isGivenUp, verdict: givenUpVerdict, onlyNew: true},
	{stops: isStoppedByRollback, verdict: rollbackVerdict, onlyNew: true},
	{stops: isBehindBarrier, verdict: barrierVerdict, onlyNew: true, ofRollout: true},
	{stops: isBehindEarlier, verdict: earlierVerdict, onlyNew: true},
	{stops: isNodeOccupied, verdict: occupiedVerdict, onlyNew: true},
	{stops: isNodeUnavailable, verdict: unavailableVerdict, onlyNew: true},
}

// evaluateGates returns the verdict of the first gate that stops the target. A target that passes all gates continues, or
// becomes a candidate for admission.
func evaluateGates(t *targetState) rollout.Verdict {
	for i := range gates {
		if gates[i].onlyNew && t.target.Visit.Admitted {
			continue
		}
		if gates[i].stops(t) {
			return gates[i].verdict(t)
		}
	}
	t.passesGates = true
	if !t.target.Visit.Admitted {
		t.group.addCandidate(t)
	}
	return rollout.Verdict{}
}

func isFinished(t *targetState) bool {
	if t.invalid != nil || !t.exists {
		return false
	}
	if t.target.Leaving {
		return !t.target.Visit.Admitted
	}
	return !t.hasWork
}

func finishedVerdict(t *targetState) rollout.Verdict {
	if t.target.Leaving {
		return rollout.Verdict{Phase: rollout.PhaseFinished, Why: rollout.Why{Reason: rollout.ReasonLeft, Text: "the node is no longer selected"}}
	}
	if t.target.Rollback.Cause != nil {
		return rollout.Verdict{Phase: rollout.PhaseFailed, Why: rollout.WithDefaultReason(t.target.Rollback.Cause, rollout.ReasonRolledBack)}
	}
	return rollout.Verdict{Phase: rollout.PhaseFinished, Why: t.finishedReason()}
}

// finishedReason returns why a target without work counts as finished, or does not count yet.
func (t *targetState) finishedReason() rollout.Why {
	if t.soak.isOpen {
		return rollout.Why{
			Reason: rollout.ReasonSoak,
			Text:   "all work is done; it counts when the node has been ready for " + t.group.Soak.String(),
			Since:  t.soak.end.Add(-t.group.Soak),
		}
	}
	return rollout.Why{Reason: rollout.ReasonFinished, Text: "no work is pending"}
}

func isBlocked(t *targetState) bool {
	if t.invalid != nil {
		return true
	}
	isBlocked := t.exists && t.target.Blocked != nil
	isLeaving := t.target.Leaving && !t.isUnreadable()
	return isBlocked && !isLeaving
}

func blockedVerdict(t *targetState) rollout.Verdict {
	if t.invalid != nil {
		return rollout.Verdict{Phase: rollout.PhaseBlocked, Why: *t.invalid}
	}
	if t.isExcludedBehindBarrier() {
		return barrierVerdict(t)
	}
	return rollout.Verdict{Phase: rollout.PhaseBlocked, Why: rollout.WithDefaultReason(t.target.Blocked, rollout.ReasonInvalidSpec)}
}

// isExcludedBehindBarrier reports whether a label or a taint excludes the node while the rollout waits for a barrier. Its
// target waits like all targets of the rollout: the label or the taint may be gone by then.
func (t *targetState) isExcludedBehindBarrier() bool {
	r := t.rollout
	isWaiting := r.barrier != nil && !r.Paused && r.Broken == nil
	return t.isExcluded() && isWaiting && !t.target.Visit.Admitted
}

func isNodeGone(t *targetState) bool { return !t.exists }

func nodeGoneVerdict(t *targetState) rollout.Verdict {
	why := rollout.Why{
		Reason: rollout.ReasonNodeGone,
		Text:   "the node no longer exists",
		About:  "Node " + t.target.Node,
	}
	isReplaced := t.node != nil && !t.target.Gone
	if isReplaced {
		why.Text = "the node was replaced by another node of the same name"
	}
	if t.rollout.Deleting {
		why.Reason = rollout.ReasonGiveUp
		return rollout.Verdict{Phase: rollout.PhaseFailed, Why: why}
	}
	return rollout.Verdict{Phase: rollout.PhaseFinished, Why: why}
}

// isPaused reports whether the rollout of a target is paused or cannot be compiled. A paused rollout still gives back a
// node that is no longer selected: nothing starts on it.
func isPaused(t *targetState) bool {
	isGivenBack := t.target.Leaving && t.target.Visit.Admitted
	isPaused := t.rollout.Paused && !isGivenBack
	return isPaused || t.rollout.Broken != nil
}

func pausedVerdict(t *targetState) rollout.Verdict {
	r := t.rollout
	switch {
	case r.Broken != nil:
		return rollout.Verdict{Phase: rollout.PhaseBlocked, Why: rollout.WithDefaultReason(r.Broken, rollout.ReasonInvalidSpec)}
	case r.Yields:
		return rollout.Verdict{Phase: rollout.PhaseDisabled, Why: r.reasonToWait(rollout.ReasonDisabled)}
	}
	return rollout.Verdict{Phase: rollout.PhasePaused, Why: r.reasonToWait(rollout.ReasonPaused)}
}

func isGivenUp(t *targetState) bool { return t.target.Visit.Skipped && !t.rollout.Deleting }

func givenUpVerdict(t *targetState) rollout.Verdict {
	why := rollout.Why{Reason: rollout.ReasonDrainTimeout, Text: "the drain took too long and the node was released"}
	if len(t.rollout.Handover) > 0 {
		why.Text = "the handover or the drain took too long and the node was released"
	}
	for i := range t.target.Tasks {
		if task := &t.target.Tasks[i]; task.HasFinallyFailed() {
			why = rollout.WithDefaultReason(task.Why, rollout.ReasonStageFailed)
		}
	}
	return rollout.Verdict{Phase: rollout.PhaseFailed, Why: why}
}

func isBehindBarrier(t *targetState) bool { return t.rollout.barrier != nil }

func barrierVerdict(t *targetState) rollout.Verdict {
	return rollout.Verdict{Phase: rollout.PhaseWaiting, Why: t.rollout.barrier.reasonToWait(rollout.ReasonBarrier)}
}

func isBehindEarlier(t *targetState) bool { return t.findEarlier() != nil }

func earlierVerdict(t *targetState) rollout.Verdict {
	e := t.findEarlier()
	why := e.rollout.reasonOfTurn(t.rollout)
	if e.isBack() {
		why.Text = rollout.Shorten(why.Text + "; it went back there, and waits for other packages")
	}
	return rollout.Verdict{Phase: rollout.PhaseWaiting, Why: why}
}

// findEarlier returns the first target of an earlier rollout of the sequence that must finish on the node first; nil if
// there is none. A rollout that is disabled or cannot be compiled makes no other wait, unless it occupies the node: see
// isNodeOccupied.
func (t *targetState) findEarlier() *targetState {
	for e := t.node.firstTarget; e != t; e = e.nextOnNode {
		isOfSequence := e.rollout.Sequence == t.rollout.Sequence && !e.rollout.isBypassed()
		isShared := e.isAdmittedHere() && t.joins()
		if isOfSequence && e.exists && e.isUnfinished() && !isShared {
			return e
		}
	}
	return nil
}

func isNodeOccupied(t *targetState) bool {
	return t.node.occupant != nil && t.node.occupant != t && !t.joins()
}

func occupiedVerdict(t *targetState) rollout.Verdict {
	return rollout.Verdict{Phase: rollout.PhaseWaiting, Why: t.node.occupant.rollout.reasonToWait(rollout.ReasonOccupied)}
}

func isNodeUnavailable(t *targetState) bool { return t.target.Avoided != nil || !t.node.Ready }

// checkClosing stops candidates within the margin before the window closes.
func checkClosing(t *targetState) *rollout.Why {
	g := t.group
	if g.Closing == nil || !g.now.Add(g.Closing.Margin).After(g.Closing.At) {
		return nil
	}
	g.closing = groupReasons{g}.closing()
	return g.closing
}

// forgetWindow forgets what holds until the next window when that is open.
func (g *groupState) forgetWindow() {
	if !g.Opens.IsZero() && !g.now.Before(g.Opens) {
		g.Held, g.Closing = nil, nil
	}
}

// checkHeld stops an admitted target from cordoning its node before the next window. It keeps its slot: stages may have run there,
// and its batch is open.
func (d drainer) checkHeld() *rollout.Why {
	g := d.target.group
	if g.Held == nil {
		return nil
	}
	d.plan.requestNext(g.Opens)
	why := rollout.WithDefaultReason(g.Held, rollout.ReasonWindow)
	return &why
}
