// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import "time"

// Pull is the pull of the images that a target needs, before its turn. Its object holds nothing, takes no slot, and is of no admission.
// The target is admitted when its images are on the node.
type Pull struct {
	Needed    bool      // the target has work and is not admitted
	Object    string    // name of the object that pulls, if one exists; none of Orphans
	Created   time.Time // when that was created
	Ended     bool      // every image is on the node, or the node cannot run the object
	Failed    *Why      // what cannot be pulled, and is tried again; or the object was refused
	RetryAt   time.Time // until when no object is created, because one was refused; zero if none was
	Leaving   bool      // an object of that name is being deleted: no other can be created yet
	Old       []string  // names of objects that nobody needs any more
	Exclusive []PullKey // images whose digests are not recorded yet
	// when this process observed the object first, see timing.Durations; zero if unknown
	Observed time.Time
}

// PullKey is a Task.Exclusive, and until when the pull keeps others from starting; zero if it does not.
type PullKey struct {
	Key   string
	Until time.Time
}

// pullLimit is after how long a pull has failed of which nothing is known: its pod does not start, or the kubelet is silent.
const pullLimit = 30 * time.Minute

// LateAt returns when a pull that goes on has failed; zero if none does.
func (p *Pull) LateAt() time.Time {
	if p.Object == "" || p.Ended || p.Failed != nil {
		return time.Time{}
	}
	return timeOr(p.Observed, p.Created).Add(pullLimit)
}

// Failure returns why a pull fails; nil for one that does not.
func (p *Pull) Failure(now time.Time) *Why {
	if late := p.LateAt(); !late.IsZero() && !now.Before(late) {
		return &Why{Reason: ReasonImagePull, Text: "its images are not on the node after " + pullLimit.String() + ": see pod " + p.Object, About: p.Object}
	}
	return p.Failed
}

// UnpulledAt returns from when on a pull that fails counts as failed.
func (p *Pull) UnpulledAt() time.Time { return timeOr(p.Observed, p.Created).Add(unpulledLimit) }
