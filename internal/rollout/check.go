// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import "time"

// Check is a look at the node of a target that changes nothing there and takes no slot: whether a finished one is still as it was left, or
// before its turn how much of the work the node needs. It ends as soon as something is done on the node.
type Check struct {
	Before  bool          // the turn of the target, which is not admitted without an answer
	Refused *Why          // what the answer says against an admission; with Before
	Due     time.Time     // of the next check; with Before that is how long the answer counts, and zero for none
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
func (c *Check) ExpiresAt() time.Time { return timeOr(c.Observed, c.Created).Add(c.Limit) }
