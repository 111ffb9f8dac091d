// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"time"

	"golang.org/x/sys/unix"
)

// threadCPUTime is the CPU time of the calling thread, without the time it waited for a core. The caller is locked to its
// thread.
func threadCPUTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0 // then the loop rests as briefly as it may
	}
	return time.Duration(t.Nano())
}
