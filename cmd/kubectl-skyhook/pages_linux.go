// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import "golang.org/x/sys/unix"

// heap is what a command about some thousand nodes needs.
const heap = 192 << 20

// takeLargePages asks the kernel for pages of 2 MB instead of 4 KB: a command that reads many
// nodes and ends spends a quarter of its time on page faults otherwise. The memory is only reserved here; the collector
// gives it to other processes on demand.
func takeLargePages() {
	_ = unix.Madvise(make([]byte, heap), unix.MADV_HUGEPAGE) // without it everything is as it was
}
