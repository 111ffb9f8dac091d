// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import "time"

// Objects are the objects of a target on its node, or going away there, apart from those of tasks, proof, drift and pull.
type Objects struct {
	Orphans []string  // objects of ours on the node that belong to no task
	Going   []string  // objects that are being deleted before they succeeded: an interrupt waits until they are gone
	Ended   []string  // objects that are being deleted after they succeeded; listed for a rollout that is deleted
	GoneBy  time.Time // when all that are being deleted should be gone; zero if unknown
	Queues  []Queue   // objects that will go on with a task that has not begun
}

// Queue is an object that runs several tasks one after the other, and has not begun with all of them. When one has ended, it begins
// with the next by itself, unless it is told before to end there.
type Queue struct {
	Object   string
	Unwanted bool // what comes next is not what a task would run now
	Recalled bool // it was told to end before its next task
}
