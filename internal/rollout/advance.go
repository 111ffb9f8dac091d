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
	isUnknown := !t.exists || t.invalid != nil || t.rollout.Broken != nil || t.isUnreadable()
	if isUnknown {
		return
	}
	if !t.target.Admitted {
		a.cleanUp(t)
		return
	}
	b := a.newBoard(t)
	recorder{b}.recordOutcomes()
	retire := retirer{b}
	switch {
	case b.isDone():
		retire.retireDone()
	case t.target.Leaving:
		retire.retireLeaving()
	case !t.passesGates:
		return
	case t.rollout.Deleting && b.isHopeless():
		retire.giveUp()
	case t.rollout.Once && t.hasFailed && !b.isWorking():
		retire.retireFailed()
	default:
		starter{b}.startTasks()
		t.verdict = b.verdict
	}
}

// cleanUp removes what is left on a node that is not in flight.
func (a advancer) cleanUp(t *targetState) {
	isPaused := t.rollout.Paused && !t.target.Leaving
	if isPaused && t.hasWork {
		return
	}
	a.plan.sweepStrays(t)
	keepsHold := t.target.Skipped && t.rollout.KeepHeld && !t.rollout.Deleting
	if t.isHeld && !keepsHold {
		t.isHeld = false // if this plan admits the target, it must hold its node again
		a.plan.addAction(t, VerbRelease, Why{Reason: ReasonLeft, Text: "nothing is under way on the node"})
	}
	if t.rollout.Deleting && !t.hasWork {
		a.plan.untaintRetired(t)
		a.plan.addAction(t, VerbRetire, doneReason).Wipe = true
	}
}

// sweepStrays deletes objects on the node of a target that belong to none of its tasks.
func (p *draftPlan) sweepStrays(t *targetState) {
	for _, object := range t.target.Strays {
		why := Why{Reason: ReasonReplaced, Text: object + " belongs to nothing that is owed", About: object}
		p.addAction(t, VerbSweep, why).Object = object
	}
}
