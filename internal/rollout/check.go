// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import "time"

// Check is the check whether the node of a finished target is still as it was left. It changes nothing there, takes no slot, and
// ends as soon as something is done on the node.
type Check struct {
	Due     time.Time     // of the next check
	Object  string        // name of the object that checks the node, if one exists; none of Orphans
	Created time.Time     // when that was created
	Ended   bool          // and has ended
	Keep    bool          // and stays when that is noted, so that people can read its log
	Going   bool          // an object of an earlier check has not ended: it is being deleted, or will be
	GoneBy  time.Time     // when that keeps no other node from being checked any more; zero if unknown
	Old     []string      // names of objects of earlier checks that nobody needs any more
	Limit   time.Duration // how long it may take
	// when this process observed the object first, see timing.Durations; zero if unknown
	Observed time.Time
}

// ExpiresAt returns when a check takes too long. It counts from when the object was observed, because Created may be a time of another
// clock.
func (d *Check) ExpiresAt() time.Time {
	if d.Observed.IsZero() {
		return d.Created.Add(d.Limit)
	}
	return d.Observed.Add(d.Limit)
}
