// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import "time"

// Backoff is how long to wait after a failed attempt before the next: 10 seconds after the first, twice as long after
// each further one, 5 minutes at most. It is what a kubelet does with a container that keeps failing.
func Backoff(attempts int) time.Duration {
	const first, longest = 10 * time.Second, 5 * time.Minute
	wait := first
	for ; attempts > 1 && wait < longest; attempts-- {
		wait *= 2
	}
	return min(wait, longest)
}

// defaultFinal is the number of failed attempts that make an outcome final when a task does not say.
const defaultFinal = 3

// isFinal says that so many failed attempts are a final failure of the task: its batch does not wait for it any longer.
// Unless it is Bounded it is tried again all the same.
func (t *Task) isFinal(attempts int) bool {
	limit := t.Retries
	if limit <= 0 {
		limit = defaultFinal
	}
	return attempts >= limit
}

func (t *Task) hasFinallyFailed() bool {
	return t.State != StateDone && t.State != StateSucceeded && t.isFinal(t.Attempts)
}

// isExpired says that the running attempt has taken longer than it may.
func (t *Task) isExpired(now time.Time) bool {
	return t.Object != "" && t.Limit > 0 && !t.Started.IsZero() && !now.Before(t.Started.Add(t.Limit))
}

// expiredReason is the failure of an attempt that has taken too long on this node. A reboot says which half is missing.
func (t *Task) expiredReason(n *Node) Why {
	why := Why{Reason: ReasonDeadline, Since: t.Started, Text: taskLabel(t) + " took longer than " + t.Limit.String()}
	if t.BootID != "" {
		switch {
		case !n.Ready:
			why.Reason = ReasonRebootTimeout
			why.Text = "the node did not come back from its reboot within " + t.Limit.String()
		case n.BootID == t.BootID:
			why.Reason = ReasonRebootNotStarted
			why.Text = "the node did not reboot within " + t.Limit.String()
		}
	}
	return why
}
