// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// advancer continues the work on targets that are in flight.
type advancer struct{ *planner }

// advance takes a target as far as it can go now:
//
//	hold → wait → evict → (gone) → run → record → … → release → retire
//
// Outcomes are recorded in any case. Tasks start only on a target that passed the gates.
func (a advancer) advance(t *targetState) {
	isUnclear := t.invalid != nil || t.rollout.Broken != nil || t.isUnreadable()
	switch {
	case !t.exists:
		return
	case isUnclear:
		a.recallQueued(t, false)
		return
	case !t.target.Visit.Admitted:
		a.cleanUp(t)
		return
	}
	b, first := a.newBoard(t), len(a.plan.Actions)
	recorder{b}.recordOutcomes()
	switch {
	case t.mustRollBackWithOthers():
		retirer{b}.rollBack(rollout.WithDefaultReason(t.rollout.stopReason(), rollout.ReasonRolledBack))
	case b.isDone() && !b.isGoingOn():
		prover{b}.retireProven()
	case t.target.Leaving:
		retirer{b}.retireLeaving()
	case b.isDone():
		t.verdict = b.endingVerdict()
	case t.passesGates:
		a.advanceTasks(b)
	default:
		starter{b}.yield()
	}
	a.recallQueued(t, b.continues)
	b.markWaiting(a.plan.Actions[first:])
}

// advanceTasks starts tasks, unless the target is given up: on deletion if no task can succeed, and in a rollout that
// tries each target once if it failed. A target that can roll back does so instead of trying again.
func (a advancer) advanceTasks(b *taskBoard) {
	r := b.target.rollout
	isGivenUp := r.Deleting && b.isHopeless()
	hasFailed := r.Once && b.target.hasFailed
	failure := b.findFinalFailure()
	switch {
	case isGivenUp:
		retirer{b}.giveUp()
	case failure != nil && b.target.target.MayRollBack():
		retirer{b}.rollBack(rollout.WithDefaultReason(failure.Why, rollout.ReasonStageFailed))
	case hasFailed && !b.isWorking():
		retirer{b}.retireFailed()
	default:
		starter{b}.startTasks()
		b.target.verdict = b.verdict
		if b.target.target.Rollback.Cause != nil {
			b.target.verdict.Why.Text = rollout.Shorten("on the way back: " + b.verdict.Why.Text)
		}
		if failure != nil && b.target.target.Rollback.IfFailed {
			b.target.verdict.Why = b.target.target.WithRefusal(b.target.verdict.Why)
		}
	}
}

// cleanUp removes what is left on a node that is not in flight.
func (a advancer) cleanUp(t *targetState) {
	isPaused := t.rollout.Paused && !t.target.Leaving
	if isPaused && t.hasWork {
		return
	}
	a.plan.sweepOrphans(t)
	a.sweepEnded(t)
	a.releaseHold(t)
	if t.rollout.Deleting && !t.hasWork {
		a.removeRecord(t)
	}
}

// notInProgress is why what is left on a node that is not in flight goes.
var notInProgress = rollout.Why{Reason: rollout.ReasonLeft, Text: "no work is in progress on the node"}

// sweepEnded deletes objects on a node that was given back while they failed. They were deleted with that, but a deletion may fail: then
// the kubelet starts them again and again, or they succeed later.
func (a advancer) sweepEnded(t *targetState) {
	isReturned := t.target.Leaving || isGivenUp(t)
	if !isReturned {
		return
	}
	for i := range t.target.Tasks {
		k := &t.target.Tasks[i]
		hasEnded := k.State == rollout.StateFailing || k.State == rollout.StateSucceeded
		if k.Object.Name != "" && hasEnded && !k.Object.Leaving && !k.Object.Queued {
			action := a.plan.addAction(t, rollout.VerbSweep, notInProgress)
			action.Task, action.Object = k.ID, k.Object.Name
		}
	}
}

// removeRecord removes the record of a deleted rollout from a node on which it has no work, once its objects are gone.
// It reports what is waited for.
func (a advancer) removeRecord(t *targetState) {
	if t.objects == 0 && !t.target.Wiped {
		a.plan.untaintRetired(t)
		a.plan.addAction(t, rollout.VerbRetire, doneReason).Wipe = true
		return
	}
	left := slices.Concat(t.target.Objects.Orphans, t.target.Objects.Going, t.target.Objects.Ended)
	if len(left) == 0 {
		return
	}
	a.plan.requestNext(t.target.Objects.GoneBy)
	isLate := !t.target.Objects.GoneBy.IsZero() && !a.plan.now.Before(t.target.Objects.GoneBy)
	t.verdict = remainingVerdict(t.node, left, isLate)
}

// remainingVerdict reports the objects that a deletion waits for. It is blocked if they do not go in time, or if their
// node is not ready, because nothing ends them there.
func remainingVerdict(node *nodeState, left []string, isLate bool) rollout.Verdict {
	v := rollout.Verdict{Phase: rollout.PhaseWaiting, Why: rollout.Why{
		Reason: rollout.ReasonPodLeaving,
		Text:   rollout.Shorten("the deletion waits until " + listNames(left, len(left)) + " is gone"),
		About:  left[0],
	}}
	switch {
	case !node.Ready:
		v.Phase = rollout.PhaseBlocked
		v.Why.Text = rollout.Shorten(v.Why.Text + ": the node is not ready; delete the node if it does not come back")
	case isLate:
		v.Phase = rollout.PhaseBlocked
		v.Why.Text = rollout.Shorten(v.Why.Text + ": it should be gone by now; see its finalizers, and the kubelet of the node")
	}
	return v
}

// releaseHold releases the hold on a node that is not in flight and has no object of the rollout: an interrupt that runs
// there may still end the boot. If this plan admits the target, it must hold its node again.
func (a advancer) releaseHold(t *targetState) {
	if !t.isHeld || t.objects > 0 || t.keepsHold() {
		return
	}
	t.isHeld = false
	a.plan.addAction(t, rollout.VerbRelease, notInProgress)
}

// sweepOrphans deletes objects on the node of a target that belong to none of its tasks, and those that check the node while no
// proof is waited for.
func (p *draftPlan) sweepOrphans(t *targetState) {
	for _, object := range t.target.Objects.Orphans {
		why := rollout.Why{Reason: rollout.ReasonReplaced, Text: "no pending work needs " + object, About: object}
		p.addAction(t, rollout.VerbSweep, why).Object = object
	}
}
