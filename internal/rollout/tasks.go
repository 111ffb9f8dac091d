// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import "time"

// Backoff returns how long to wait after a failed attempt before the next: 10 seconds after the first, twice as long
// after each further one, at most 5 minutes. The kubelet waits as long before it restarts a container.
func Backoff(attempts int) time.Duration {
	const first, longest = 10 * time.Second, 5 * time.Minute
	wait := first
	for ; attempts > 1 && wait < longest; attempts-- {
		wait *= 2
	}
	return min(wait, longest)
}

// defaultFinal is the number of failed attempts that are a final failure of a task without Retries.
const defaultFinal = 3

// isFinal reports whether this many failed attempts are a final failure of the task: its batch does not wait for it any
// longer. Unless the task is Bounded it is tried again all the same.
func (t *Task) isFinal(attempts int) bool {
	limit := t.Retries
	if limit <= 0 {
		limit = defaultFinal
	}
	return attempts >= limit
}

// hasFinallyFailed reports whether the outcome of the task is a final failure.
func (t *Task) hasFinallyFailed() bool {
	hasSucceeded := t.State == StateDone || t.State == StateSucceeded
	return !hasSucceeded && t.isFinal(t.Attempts.Failed)
}

// mayRun reports whether an object may be running for the task.
func (t *Task) mayRun() bool {
	if t.Object.Name == "" {
		return t.Object.Leaving
	}
	return t.State != StateDone && t.State != StateSucceeded
}

// title names the task in sentences.
func (t *Task) title() string {
	if t.Label != "" {
		return t.Label
	}
	return t.ID
}

// unpulledLimit is how long it may be that an image cannot be pulled until the attempt counts as failed. The kubelet has tried several
// times by then.
const unpulledLimit = 5 * time.Minute

// hasDeadline reports whether the running attempt may take a limited time only.
func (t *Task) hasDeadline() bool {
	return (t.Limit > 0 || t.Object.Unpulled) && !t.Attempts.Started.IsZero()
}

// expiresAt returns when the deadline of the running attempt passes. It counts from when the attempt was observed, because
// Started is a time of another clock.
func (t *Task) expiresAt() time.Time {
	at := timeOr(t.Attempts.Observed, t.Attempts.Started).Add(t.Limit)
	pulled := t.unpulledAt()
	if t.Object.Unpulled && (t.Limit <= 0 || pulled.Before(at)) {
		return pulled
	}
	return at
}

// unpulledAt returns when an attempt has failed whose image cannot be pulled.
func (t *Task) unpulledAt() time.Time {
	return timeOr(t.Object.UnpulledSince, t.Attempts.Started).Add(unpulledLimit)
}

// timeOr returns a time, or another one if it is zero.
func timeOr(at, otherwise time.Time) time.Time {
	if at.IsZero() {
		return otherwise
	}
	return at
}

// isExpired reports whether the running attempt takes longer than it may.
func (t *Task) isExpired(now time.Time) bool {
	isLimited := t.Object.Name != "" && t.hasDeadline()
	return isLimited && !now.Before(t.expiresAt())
}

// expiredReason returns the failure of an attempt that took too long on this node. For a reboot it is the phase that did
// not happen.
func (t *Task) expiredReason(n *Node) Why {
	if t.Object.Unpulled && t.Why != nil && t.expiresAt().Equal(t.unpulledAt()) {
		return Why{Reason: ReasonImagePull, Text: t.Why.Text, About: t.Why.About, Since: t.Attempts.Started}
	}
	why := Why{
		Reason: ReasonDeadline,
		Text:   t.title() + " took longer than " + t.Limit.String(),
		Since:  t.Attempts.Started,
	}
	switch {
	case t.BootID == "":
		return why
	case !n.Ready:
		why.Reason = ReasonRebootTimeout
		why.Text = "the node did not come back from its reboot within " + t.Limit.String()
	case n.BootID == t.BootID:
		why.Reason = ReasonRebootNotStarted
		why.Text = "the node did not reboot within " + t.Limit.String()
	}
	return why
}
