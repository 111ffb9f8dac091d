// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
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
	if !r.target.rollout.Paused || r.isDone() {
		r.plan.sweepOrphans(r.target)
	}
	r.markHopeless()
}

func (r recorder) recordOutcome(k *boardTask) {
	switch k.planned {
	case rollout.StateSucceeded:
		r.recordDone(k)
	case rollout.StateDone:
		if k.isInterrupt() {
			r.recordCovered(k)
		}
	case rollout.StateRunning:
		if k.IsExpired(r.plan.now) {
			r.recordExpired(k)
		}
	case rollout.StateFailing:
		isRecorded := k.Recorded == rollout.StateFailing
		hasMoreAttempts := k.Attempts.Noted > 0 && k.Attempts.Failed > k.Attempts.Noted
		if !isRecorded || hasMoreAttempts {
			r.addRecord(k, rollout.WithDefaultReason(k.Why, rollout.ReasonStageFailed))
		}
	}
}

// recordDone records a task that succeeded. The tasks that it covers come first: if its own record were written alone,
// they would run as well.
func (r recorder) recordDone(k *boardTask) {
	r.recordCovered(k)
	k.planned, k.isBusy = rollout.StateDone, false
	r.addRecord(k, rollout.Why{Reason: rollout.ReasonEnded, Text: k.Title() + " succeeded"})
}

// recordCovered records the tasks that another task covers.
func (r recorder) recordCovered(by *boardTask) {
	for i := range r.tasks {
		k := &r.tasks[i]
		isCovered := k.CoveredBy == by.ID && k != by
		if isCovered && k.isPending() && !k.isBusy {
			k.planned = rollout.StateDone
			r.addRecord(k, rollout.Why{Reason: rollout.ReasonCovered, Text: "covered by " + by.Title()})
		}
	}
}

// recordExpired records an attempt that took too long as failed. An attempt that is recorded already is only deleted.
func (r recorder) recordExpired(k *boardTask) {
	k.planned = rollout.StateFailing
	const precision = time.Second // of times on nodes
	isRecorded := k.Recorded == rollout.StateFailing && !k.Attempts.FailedAt.Add(precision).Before(k.ExpiresAt())
	if k.Object.Leaving || isRecorded {
		return
	}
	k.failures++
	k.lastFailure = r.plan.now
	r.addRecord(k, k.ExpiredReason(r.target.node.Node))
}

func (r recorder) addRecord(k *boardTask, why rollout.Why) {
	a := r.plan.addAction(r.target, rollout.VerbRecord, why)
	a.Task, a.State, a.Attempts = k.ID, k.planned, k.failures
}

// markWaiting marks the actions on a target that can wait: they only record and delete what succeeded, and another object is running there,
// whose outcome is recorded as well.
func (b *taskBoard) markWaiting(actions []rollout.Action) {
	isEnded := func(a rollout.Action) bool {
		k := b.find(func(k *boardTask) bool { return k.ID == a.Task })
		isPlainDone := k != nil && !k.isInterrupt() && !k.isPending()
		return isPlainDone && (a.Verb == rollout.VerbRecord || a.Verb == rollout.VerbSweep)
	}
	isOther := func(a rollout.Action) bool { return !isEnded(a) }
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
	case !isObsolete && k.HasDeadline():
		r.plan.requestNext(k.ExpiresAt())
	}
}

// checkObsolete returns why the object of a task is no longer needed.
func (r recorder) checkObsolete(k *boardTask) (why rollout.Why, isObsolete bool) {
	isFailing := k.planned == rollout.StateFailing
	isStuck := isFailing || k.Why != nil
	switch {
	case !k.isPending():
		return rollout.Why{Reason: rollout.ReasonEnded, Text: "the outcome of " + k.Title() + " is recorded"}, true
	case k.IsExpired(r.plan.now):
		return k.ExpiredReason(r.target.node.Node), true
	case k.Object.Dead:
		return rollout.WithDefaultReason(k.Why, rollout.ReasonPodLost), true
	case k.Object.Stale && isStuck && !r.target.rollout.Paused:
		return rollout.Why{Reason: rollout.ReasonReplaced, Text: "the definition of " + k.Title() + " changed"}, true
	case isFailing && !r.target.rollout.Paused && r.hasReadyBehind(k):
		return rollout.Why{Reason: rollout.ReasonReplaced, Text: "other tasks wait behind " + k.Title() + ", which failed"}, true
	case isFailing && !k.mayRetry():
		return rollout.WithDefaultReason(k.Why, rollout.ReasonStageFailed), true
	}
	return rollout.Why{}, false
}
