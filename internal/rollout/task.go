// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import "time"

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
	UnpulledSince time.Time // when this process observed that first, see Durations; zero if unknown
}

// Attempts are the attempts of a task in this admission.
type Attempts struct {
	Failed   int       // with the current definition, including those that the object counts
	Noted    int       // failed ones as recorded; 0 if unknown: then Failed alone never leads to a Record
	FailedAt time.Time // end of the last failed attempt
	Started  time.Time // of the running attempt
	Ended    time.Time // of the attempt that succeeded, by the clock of the node; zero if unknown, and of interrupts
	Observed time.Time // when this process observed that attempt first, see Durations; zero if unknown
}
