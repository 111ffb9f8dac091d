// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"strconv"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// retirer gives nodes back.
type retirer struct{ *taskBoard }

// doneReason is why a target without work is retired.
var doneReason = rollout.Why{Reason: rollout.ReasonFinished, Text: "no work is pending"}

// retireDone retires a target whose outcomes are all recorded. One that rolled back stays a failure.
func (r retirer) retireDone() {
	if why := r.target.target.Rollback.Cause; why != nil {
		r.retireRolledBack(rollout.WithDefaultReason(why, rollout.ReasonRolledBack))
		return
	}
	if !r.retireUnfailed(doneReason) {
		return
	}
	t := r.target
	t.verdict = rollout.Verdict{Phase: rollout.PhaseFinished, Why: doneReason}
	isRemoved := t.rollout.Deleting && !t.node.Sending
	if isRemoved && t.group.usesBatches() && t.group.isMember(t) {
		t.group.goneNow++
	}
}

// retireLeaving lets the running task end on a node that is no longer selected, then gives the node back as it is.
func (r retirer) retireLeaving() {
	why := rollout.Why{Reason: rollout.ReasonLeft, Text: "the node is no longer selected"}
	r.sweepFailing(why)
	if r.isWorking() {
		why.Text += "; the running task may finish"
		r.target.verdict = rollout.Verdict{Phase: rollout.PhaseInFlight, Why: why}
		return
	}
	r.release(why)
	if r.awaitNodeNumber() {
		return
	}
	r.plan.addAction(r.target, rollout.VerbRetire, why)
	r.target.verdict = rollout.Verdict{Phase: rollout.PhaseFinished, Why: why}
}

// giveUp lets a deletion continue without this node: no task that is left there can succeed.
func (r retirer) giveUp() {
	why := rollout.Why{Reason: rollout.ReasonGiveUp, Text: "the deletion continues without this node"}
	if k := r.findFinalFailure(); k != nil {
		failure := k.Title() + " failed"
		if k.Why != nil {
			failure = k.Why.Text
		}
		why.Text = rollout.Shorten(why.Text + ": " + failure)
	}
	r.sweepFailing(why)
	if r.retireUnfailed(why) {
		r.target.verdict = rollout.Verdict{Phase: rollout.PhaseFailed, Why: why}
	}
}

// retireFailed retires a target that failed for good and is not tried again.
func (r retirer) retireFailed() {
	why := rollout.Why{Reason: rollout.ReasonStageFailed, Text: "it failed and is not retried"}
	if k := r.findFinalFailure(); k != nil {
		why = rollout.WithDefaultReason(k.Why, rollout.ReasonStageFailed)
	}
	r.sweepFailing(why)
	if !r.target.rollout.KeepHeld {
		r.release(why)
	}
	if r.awaitNodeNumber() {
		return
	}
	r.plan.addAction(r.target, rollout.VerbRetire, why).Skip = true
	r.target.verdict = rollout.Verdict{Phase: rollout.PhaseFailed, Why: why}
}

// rollBack records that the node rolls back to what was complete there before. What runs there ends first.
func (r retirer) rollBack(failure rollout.Why) {
	if r.isWorking() {
		why := rollout.Why{Reason: rollout.ReasonRolledBack, Text: rollout.Shorten("the node goes back when what runs there has ended: " + failure.Text), About: failure.About}
		r.target.verdict = rollout.Verdict{Phase: rollout.PhaseFailing, Why: why}
		return
	}
	r.sweepFailing(failure)
	r.plan.addAction(r.target, rollout.VerbRollback, failure)
	why := rollout.Why{Reason: rollout.ReasonRolledBack, Text: rollout.Shorten("the node goes back: " + failure.Text), About: failure.About}
	r.target.verdict = rollout.Verdict{Phase: rollout.PhaseFailing, Why: why}
}

// retireRolledBack gives a node back that has again what was complete before.
func (r retirer) retireRolledBack(why rollout.Why) {
	r.release(why)
	if r.awaitNodeNumber() {
		return
	}
	r.plan.addAction(r.target, rollout.VerbRetire, why).Skip = !r.target.target.Rollback.WithOthers
	r.target.verdict = rollout.Verdict{Phase: rollout.PhaseFailed, Why: why}
}

// retireSkipped gives a node back whose drain took too long. What runs there ends first.
func (r retirer) retireSkipped(why rollout.Why) {
	if r.isWorking() {
		r.reportVerdict(weightWaiting, rollout.PhaseInFlight, why)
		return
	}
	r.isNodeReturned = true
	if r.awaitNodeNumber() {
		r.reportVerdict(weightWaiting, rollout.PhaseInFlight, r.target.verdict.Why)
		return
	}
	r.sweepFailing(why)
	if r.target.rollout.Deleting {
		why.Reason = rollout.ReasonGiveUp
		r.retireUnfailed(why)
	} else {
		r.release(why)
		r.plan.addAction(r.target, rollout.VerbRetire, why).Skip = true
	}
	r.reportVerdict(weightSkipped, rollout.PhaseFailed, why)
}

// retireUnfailed releases the node and retires the target, as soon as its number is stored. It reports whether the
// target is retired.
func (r retirer) retireUnfailed(why rollout.Why) bool {
	t := r.target
	r.release(why)
	if r.awaitNodeNumber() {
		return false
	}
	t.isRetired = true
	r.plan.untaintRetired(t)
	r.plan.addAction(t, rollout.VerbRetire, why).Wipe = t.rollout.Deleting
	return true
}

func (r retirer) release(why rollout.Why) {
	if r.target.isHeld {
		r.plan.addAction(r.target, rollout.VerbRelease, why)
	}
}

// awaitNodeNumber sets the verdict if the number of the node is stored on the node only, and reports whether that is so. If
// the node were given back now, the next node could get the same number. The status stores the next number soon.
func (r retirer) awaitNodeNumber() bool {
	t := r.target
	hasNumber := t.rollout.Numbering.Stored && (t.target.Visit.Admitted || t.isAdmittedNow)
	isStored := !hasNumber || t.rollout.Numbering.Next > t.target.Visit.Order
	if isStored || !t.rollout.isOwnOrder(t.target.Visit.Order) {
		return false
	}
	number := strconv.Itoa(t.target.Visit.Order)
	t.verdict = rollout.Verdict{Phase: rollout.PhaseInFlight, Why: rollout.Why{
		Reason: rollout.ReasonLedger,
		Text:   "all work is done; the slot is freed when the number of the node, " + number + ", is stored",
	}}
	return true
}
