// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"slices"
	"time"
)

// Need is what a task requires of its node.
type Need int

// The needs, weakest first.
const (
	NeedNothing Need = iota // it runs beside workloads
	NeedDrained             // the node is held by this rollout and drained
	NeedAlone               // drained, no other task of ours runs, and every outcome is recorded: an interrupt
)

// State is the progress of a task.
type State string

// The states of a task. Running, Failing and Succeeded come from its object (a pod, a job), or, if that is gone, from the
// record on the node like Done.
const (
	StatePending   State = "pending"   // no object, and no outcome is recorded
	StateRunning   State = "running"   // its object exists and runs, or waits to run (image pull, …: see Task.Why)
	StateFailing   State = "failing"   // the current attempt failed; it is retried by the kubelet, or by a new object after Backoff
	StateSucceeded State = "succeeded" // its object succeeded; not recorded yet
	StateDone      State = "done"      // recorded
)

// Task is one thing to run on a node.
type Task struct {
	ID        string   // unique in the target, for example "tuning|1.1.0/apply"
	Label     string   // for messages: "tuning apply"
	After     []string // IDs that must be Done first
	Need      Need
	Reboot    bool          // of an Alone task: it reboots the node
	Strength  int           // of an Alone task: of several that are ready the strongest runs and covers the others
	Retries   int           // failed attempts after which a failure is final; 0 for the default of three
	Bounded   bool          // Retries was set: after it the task is not retried until its definition changes or a rerun
	Limit     time.Duration // how long one attempt may take
	Uninstall bool          // an uninstall task: if it fails for good on deletion, the node is given up
	Exclusive string        // tasks of a rollout with the same key start one at a time; empty for no limit
	Joins     bool          // it may run in one object with tasks that it waits for, or that wait for it
	// with Joins: also with others of which this is true
	JoinsSiblings bool

	State          State
	Recorded       State     // as recorded on the node; it differs from State if an outcome must be recorded
	Lost           bool      // recorded as Running or Failing, but its object is gone: run it again
	CoveredBy      string    // ID of the task that covers this one, as recorded
	BootID         string    // of a reboot: the boot before it; for the reason of a missed deadline
	ExclusiveUntil time.Time // until when the object keeps the others from starting; zero if it does not
	Why            *Why      // as the object reports it: image pull, step failed, …
	Object         TaskObject
	Attempts       Attempts
}

// TaskObject is the object that runs a task.
type TaskObject struct {
	Name          string    // empty if none exists
	Stale         bool      // it was created from an older definition and may be replaced at once
	Dead          bool      // it cannot continue (rejected, evicted, its node shut down): sweep it, then run the task again
	Leaving       bool      // one of this name is still being deleted: no other can be created yet
	Queued        bool      // the task is running, in the sense that its object will begin with it when the tasks before it have ended
	Unpulled      bool      // it cannot run, because an image cannot be pulled
	UnpulledSince time.Time // when this process observed that first, see timing.Durations; zero if unknown
}

// Attempts are the attempts of a task in this admission.
type Attempts struct {
	Failed   int       // with the current definition, including those that the object counts
	Noted    int       // failed ones as recorded; 0 if unknown: then Failed alone never leads to a Record
	FailedAt time.Time // end of the last failed attempt
	Started  time.Time // of the running attempt
	Ended    time.Time // of the attempt that succeeded, by the clock of the node; zero if unknown, and of interrupts
	Observed time.Time // when this process observed that attempt first, see timing.Durations; zero if unknown
}

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

// IsFinal reports whether this many failed attempts are a final failure of the task: its batch does not wait for it any
// longer. Unless the task is Bounded it is tried again all the same.
func (t *Task) IsFinal(attempts int) bool {
	limit := t.Retries
	if limit <= 0 {
		limit = defaultFinal
	}
	return attempts >= limit
}

// HasFinallyFailed reports whether the outcome of the task is a final failure.
func (t *Task) HasFinallyFailed() bool {
	hasSucceeded := t.State == StateDone || t.State == StateSucceeded
	return !hasSucceeded && t.IsFinal(t.Attempts.Failed)
}

// MayRun reports whether an object may be running for the task.
func (t *Task) MayRun() bool {
	if t.Object.Name == "" {
		return t.Object.Leaving
	}
	return t.State != StateDone && t.State != StateSucceeded
}

// Title names the task in sentences.
func (t *Task) Title() string {
	if t.Label != "" {
		return t.Label
	}
	return t.ID
}

// unpulledLimit is how long it may be that an image cannot be pulled until the attempt counts as failed. The kubelet has tried several
// times by then.
const unpulledLimit = 5 * time.Minute

// HasDeadline reports whether the running attempt may take a limited time only.
func (t *Task) HasDeadline() bool {
	return (t.Limit > 0 || t.Object.Unpulled) && !t.Attempts.Started.IsZero()
}

// ExpiresAt returns when the deadline of the running attempt passes. It counts from when the attempt was observed, because
// Started is a time of another clock.
func (t *Task) ExpiresAt() time.Time {
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

// IsExpired reports whether the running attempt takes longer than it may.
func (t *Task) IsExpired(now time.Time) bool {
	isLimited := t.Object.Name != "" && t.HasDeadline()
	return isLimited && !now.Before(t.ExpiresAt())
}

// ExpiredReason returns the failure of an attempt that took too long on this node. For a reboot it is the phase that did
// not happen.
func (t *Task) ExpiredReason(n *Node) Why {
	if t.Object.Unpulled && t.Why != nil && t.ExpiresAt().Equal(t.unpulledAt()) {
		return Why{Reason: ReasonImagePull, Text: t.Why.Text, About: t.Why.About, Since: t.Attempts.Started}
	}
	why := Why{
		Reason: ReasonDeadline,
		Text:   t.Title() + " took longer than " + t.Limit.String(),
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

// IsLike reports whether two tasks have the same name and wait for the same tasks.
func (t *Task) IsLike(other *Task) bool {
	return t.ID == other.ID && slices.Equal(t.After, other.After)
}

// HasTimesOf reports whether the times that timing.Durations replaces are those of another task.
func (t *Task) HasTimesOf(o *Task) bool {
	return t.Attempts.FailedAt.Equal(o.Attempts.FailedAt) && t.Attempts.Observed.Equal(o.Attempts.Observed) && t.Object.UnpulledSince.Equal(o.Object.UnpulledSince)
}

// LaterOf returns the later of two times.
func LaterOf(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
