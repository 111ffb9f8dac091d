// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

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
	case !t.exists, isUnclear:
		return
	case !t.target.Admitted:
		a.cleanUp(t)
		return
	}
	b := a.newBoard(t)
	recorder{b}.recordOutcomes()
	switch {
	case b.isDone():
		retirer{b}.retireDone()
	case t.target.Leaving:
		retirer{b}.retireLeaving()
	case t.passesGates:
		a.advanceTasks(b)
	}
}

// advanceTasks starts tasks, unless the target is given up: on deletion if no task can succeed, and in a rollout that
// tries each target once if it failed.
func (a advancer) advanceTasks(b *taskBoard) {
	r := b.target.rollout
	isGivenUp := r.Deleting && b.isHopeless()
	hasFailed := r.Once && b.target.hasFailed
	switch {
	case isGivenUp:
		retirer{b}.giveUp()
	case hasFailed && !b.isWorking():
		retirer{b}.retireFailed()
	default:
		starter{b}.startTasks()
		b.target.verdict = b.verdict
	}
}

// cleanUp removes what is left on a node that is not in flight.
func (a advancer) cleanUp(t *targetState) {
	isPaused := t.rollout.Paused && !t.target.Leaving
	if isPaused && t.hasWork {
		return
	}
	a.plan.sweepStrays(t)
	a.releaseHold(t)
	isDeleted := t.rollout.Deleting && !t.hasWork
	if isDeleted {
		a.plan.untaintRetired(t)
		a.plan.addAction(t, VerbRetire, doneReason).Wipe = true
	}
}

// releaseHold releases the hold on a node that is not in flight. If this plan admits the target, it must hold its node
// again.
func (a advancer) releaseHold(t *targetState) {
	keepsHold := t.target.Skipped && t.rollout.KeepHeld && !t.rollout.Deleting
	if keepsHold || !t.isHeld {
		return
	}
	t.isHeld = false
	a.plan.addAction(t, VerbRelease, Why{Reason: ReasonLeft, Text: "no work is in progress on the node"})
}

// sweepStrays deletes objects on the node of a target that belong to none of its tasks.
func (p *draftPlan) sweepStrays(t *targetState) {
	for _, object := range t.target.Strays {
		why := Why{Reason: ReasonReplaced, Text: "no pending work needs " + object, About: object}
		p.addAction(t, VerbSweep, why).Object = object
	}
}
