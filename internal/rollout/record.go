// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"slices"
	"time"
)

// recorder records the outcomes of tasks and deletes the objects that are no longer needed.
type recorder struct{ *taskBoard }

// recordOutcomes records outcomes, then deletes objects. Until a task is recorded as done nothing that waits for it
// starts.
func (r recorder) recordOutcomes() {
	for i := range r.tasks {
		r.recordOutcome(&r.tasks[i])
	}
	for i := range r.tasks {
		r.sweepTask(&r.tasks[i])
	}
	if !r.target.rollout.Paused {
		r.plan.sweepOrphans(r.target)
	}
	r.markHopeless()
}

func (r recorder) recordOutcome(k *boardTask) {
	switch k.planned {
	case StateSucceeded:
		r.recordDone(k)
	case StateDone:
		if k.isInterrupt() {
			r.recordCovered(k)
		}
	case StateRunning:
		if k.isExpired(r.plan.now) {
			r.recordExpired(k)
		}
	case StateFailing:
		isRecorded := k.Recorded == StateFailing
		hasMoreAttempts := k.Attempts.Noted > 0 && k.Attempts.Failed > k.Attempts.Noted
		if !isRecorded || hasMoreAttempts {
			r.addRecord(k, withDefaultReason(k.Why, ReasonStageFailed))
		}
	}
}

// recordDone records a task that succeeded. The tasks that it covers come first: if its own record were written alone,
// they would run as well.
func (r recorder) recordDone(k *boardTask) {
	r.recordCovered(k)
	k.planned, k.isBusy = StateDone, false
	r.addRecord(k, Why{Reason: ReasonEnded, Text: k.title() + " succeeded"})
}

// recordCovered records the tasks that another task covers.
func (r recorder) recordCovered(by *boardTask) {
	for i := range r.tasks {
		k := &r.tasks[i]
		isCovered := k.CoveredBy == by.ID && k != by
		if isCovered && k.isPending() && !k.isBusy {
			k.planned = StateDone
			r.addRecord(k, Why{Reason: ReasonCovered, Text: "covered by " + by.title()})
		}
	}
}

// recordExpired records an attempt that took too long as failed. An attempt that is recorded already is only deleted.
func (r recorder) recordExpired(k *boardTask) {
	k.planned = StateFailing
	const precision = time.Second // of times on nodes
	isRecorded := k.Recorded == StateFailing && !k.Attempts.FailedAt.Add(precision).Before(k.expiresAt())
	if k.Object.Leaving || isRecorded {
		return
	}
	k.failures++
	k.lastFailure = r.plan.now
	r.addRecord(k, k.expiredReason(r.target.node.Node))
}

func (r recorder) addRecord(k *boardTask, why Why) {
	a := r.plan.addAction(r.target, VerbRecord, why)
	a.Task, a.State, a.Attempts = k.ID, k.planned, k.failures
}

// markWaiting marks the actions on a target that can wait: they only record and delete what succeeded, and another object is running there,
// whose outcome is recorded as well.
func (b *taskBoard) markWaiting(actions []Action) {
	isEnded := func(a Action) bool {
		k := b.find(func(k *boardTask) bool { return k.ID == a.Task })
		isPlainDone := k != nil && !k.isInterrupt() && !k.isPending()
		return isPlainDone && (a.Verb == VerbRecord || a.Verb == VerbSweep)
	}
	isOther := func(a Action) bool { return !isEnded(a) }
	if len(actions) == 0 || b.find((*boardTask).isRunning) == nil || slices.ContainsFunc(actions, isOther) {
		return
	}
	for i := range actions {
		actions[i].CanWait = true
	}
}

// sweepTask deletes the object of a task if its outcome is recorded or it cannot succeed.
func (r recorder) sweepTask(k *boardTask) {
	if k.Object.Name == "" {
		return
	}
	why, isObsolete := r.checkObsolete(k)
	switch {
	case isObsolete && !k.isPending() && r.isShared(k):
	case isObsolete && !k.Object.Leaving:
		r.addSweep(k, why)
	case !isObsolete && k.hasDeadline():
		r.plan.requestNext(k.expiresAt())
	}
}

// checkObsolete returns why the object of a task is no longer needed.
func (r recorder) checkObsolete(k *boardTask) (why Why, isObsolete bool) {
	isFailing := k.planned == StateFailing
	isStuck := isFailing || k.Why != nil
	switch {
	case !k.isPending():
		return Why{Reason: ReasonEnded, Text: "the outcome of " + k.title() + " is recorded"}, true
	case k.isExpired(r.plan.now):
		return k.expiredReason(r.target.node.Node), true
	case k.Object.Dead:
		return withDefaultReason(k.Why, ReasonPodLost), true
	case k.Object.Stale && isStuck && !r.target.rollout.Paused:
		return Why{Reason: ReasonReplaced, Text: "the definition of " + k.title() + " changed"}, true
	case isFailing && !r.target.rollout.Paused && r.hasReadyBehind(k):
		return Why{Reason: ReasonReplaced, Text: "other tasks wait behind " + k.title() + ", which failed"}, true
	case isFailing && !k.mayRetry():
		return withDefaultReason(k.Why, ReasonStageFailed), true
	}
	return Why{}, false
}
