// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Protected pods are those that must not be interrupted. With Drain.WaitFirst a node that has one is neither admitted nor
// cordoned, and others go first. The pods of candidates are not known without being listed: the plan says of which nodes
// (Plan.Look).

// Limits of what is listed for candidates: nodes with protected pods that stay listed, so that their end is seen at once,
// and further nodes of which it is found out in one pass whether they have protected pods.
const (
	maxWatched = 200
	maxLooks   = 20
)

// lookInterval is how long a node with protected pods beyond maxWatched is not listed again.
const lookInterval = time.Minute

// waitOutcome is what the wait for protected pods leads to.
type waitOutcome int

const (
	waitOver   waitOutcome = iota // there are none, or they are evicted like others
	waitOn                        // they are waited for
	waitGiveUp                    // they were waited for too long: others go on
)

// waitsFirst reports whether the node must have no protected pod before it is cordoned.
func (t *targetState) waitsFirst() bool {
	return t.rollout.Drain.WaitFirst && !t.isHeld && t.target.NeedsDrain()
}

// checkProtected decides about the protected pods on the node of a target, whose pods are listed, and says what is waited for.
func (p *draftPlan) checkProtected(t *targetState) (waitOutcome, rollout.Why) {
	if !t.target.HasProtectedPod() {
		return waitOver, rollout.Why{}
	}
	why := t.drainReason(p.now)
	if since := t.target.Drain.ProtectedSince; !since.IsZero() {
		why.Since = since
	}
	drain := t.rollout.Drain
	if !p.checkWaitDeadline(t) {
		return waitOn, why
	}
	late := "protected pods were waited for longer than " + drain.WaitTimeout.String()
	switch drain.OnWaitTimeout {
	case rollout.DrainForce:
		return waitOver, rollout.Why{}
	case rollout.DrainSkip:
		why.Reason, why.Text = rollout.ReasonDrainTimeout, rollout.Shorten(late+", so others go on: "+why.Text)
		return waitGiveUp, why
	}
	why.Reason, why.Text = rollout.ReasonDrainTimeout, rollout.Shorten(late+": "+why.Text)
	return waitOn, why
}

// checkWaitDeadline requests a pass for the end of the time for which protected pods are waited for, and reports whether it is over.
func (p *draftPlan) checkWaitDeadline(t *targetState) bool {
	timeout, since := t.rollout.Drain.WaitTimeout, t.target.Drain.ProtectedSince
	if timeout <= 0 || since.IsZero() {
		return false
	}
	deadline := since.Add(timeout)
	p.requestNext(deadline)
	return !p.now.Before(deadline)
}

// lookAt has the next snapshot list the pods on the node of a target.
func (p *draftPlan) lookAt(t *targetState) { p.Look = append(p.Look, t.target.Node) }

// countProtected counts a candidate that waits for protected pods, and reports whether it does: a batch is not open for it.
func (p *planner) countProtected(t *targetState) bool {
	isCandidate := t.passesGates && !t.target.Visit.Admitted
	if !isCandidate || !t.waitsFirst() {
		return false
	}
	due := t.target.Drain.ProtectedAt.Add(lookInterval) // then its pods are listed again, for which it needs a place in a batch
	isWaiting := !t.target.Drain.ProtectedAt.IsZero() && p.Now.Before(due)
	if t.target.Drain.PodsSeen {
		outcome, _ := p.plan.checkProtected(t)
		isWaiting = outcome != waitOver
	} else if isWaiting {
		p.plan.requestNext(due)
	}
	if isWaiting {
		t.group.candidates.protected++
	}
	return isWaiting
}

// podLooker decides of which candidates of a rollout the pods are listed.
type podLooker struct {
	plan      *draftPlan
	watched   int  // candidates with protected pods that stay listed
	looks     int  // candidates whose pods are listed anew
	isGivenUp bool // the last candidate waited for protected pods for too long
}

// checkProtected stops candidates on whose nodes protected pods are known to run. It holds before the limits do: such a
// candidate takes no slot.
func (l *podLooker) checkProtected(t *targetState) *rollout.Why {
	if !t.waitsFirst() || !t.target.Drain.PodsSeen || !t.target.HasProtectedPod() {
		return nil
	}
	if l.watched < maxWatched {
		l.watched++
		l.plan.lookAt(t)
	}
	outcome, why := l.plan.checkProtected(t)
	if outcome == waitOver {
		return nil
	}
	l.isGivenUp = outcome == waitGiveUp
	return &why
}

// look returns why a candidate that may be admitted otherwise waits until its pods are listed; nil if they are. They are
// listed unless that is done already for enough others, given the free slots.
func (l *podLooker) look(t *targetState, slots int) *rollout.Why {
	if !t.waitsFirst() {
		return nil
	}
	if t.target.Drain.PodsSeen {
		l.plan.lookAt(t) // until it is held
		return nil
	}
	if l.watched >= maxWatched && l.wasProtected(t) {
		l.plan.requestNext(t.target.Drain.ProtectedAt.Add(lookInterval))
		return &rollout.Why{
			Reason: rollout.ReasonProtectedPod,
			Text:   "a pod that must not be interrupted ran there when its pods were listed last; they are listed again every " + lookInterval.String(),
			Since:  t.target.Drain.ProtectedSince,
		}
	}
	slots = min(slots, max(1, t.group.free), maxLooks)
	if l.looks < min(2*slots, maxLooks) {
		l.looks++
		l.plan.lookAt(t)
	}
	return &rollout.Why{Reason: rollout.ReasonUpNext, Text: "its pods are listed before it is admitted"}
}

// wasProtected reports whether a protected pod ran on a node when its pods were listed last, not long ago.
func (l *podLooker) wasProtected(t *targetState) bool {
	return !t.target.Drain.ProtectedAt.IsZero() && l.plan.now.Before(t.target.Drain.ProtectedAt.Add(lookInterval))
}

// postpone gives back a node that is not drained yet, because of protected pods: others go first, and it becomes a
// candidate again. What runs there ends first. It stays in flight if tasks failed or the node rolls back: that would be
// forgotten.
func (r retirer) postpone(why rollout.Why) {
	hasFailed := r.find(func(k *boardTask) bool { return k.isPending() && k.failures > 0 }) != nil
	if r.isWorking() || hasFailed || r.target.target.Rollback.Cause != nil {
		r.reportVerdict(weightWaiting, rollout.PhaseInFlight, why)
		return
	}
	r.isNodeReturned = true
	if r.awaitNodeNumber() {
		r.reportVerdict(weightWaiting, rollout.PhaseInFlight, r.target.verdict.Why)
		return
	}
	r.release(why)
	r.plan.addAction(r.target, rollout.VerbRetire, why).Postpone = true
	r.reportVerdict(weightSkipped, rollout.PhaseWaiting, why)
}

// hasBegunDrained reports whether work that needs the drained node has begun and must continue.
func (b *taskBoard) hasBegunDrained() bool {
	isDoneDrained := func(i int) bool { return !b.tasks[i].isPending() && b.tasks[i].Need != rollout.NeedNothing }
	return b.find(func(k *boardTask) bool {
		if !k.isPending() {
			return false
		}
		hasBegun := k.Need != rollout.NeedNothing && (k.planned != rollout.StatePending || k.hasBegun())
		return hasBegun || slices.ContainsFunc(b.dependenciesOf(k), isDoneDrained)
	}) != nil
}
