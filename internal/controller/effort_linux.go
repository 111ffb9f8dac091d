// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"time"

	"golang.org/x/sys/unix"
)

// effort is how long the thread of the caller has computed. It goes on only while the thread does: waiting for a core that
// somebody else has is no effort. The caller is locked to its thread.
func effort() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0 // it has this clock; without, the loop rests the least
	}
	return time.Duration(t.Nano())
}
