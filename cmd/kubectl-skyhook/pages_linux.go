// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import "golang.org/x/sys/unix"

// heap is what a command about some thousand nodes needs.
const heap = 192 << 20

// takeLargePages has the kernel give memory in pages of 2 MB instead of 4 KB, where it has them: a command that reads many
// nodes and ends spends a quarter of its time on getting memory otherwise. The memory is only named here; the collector
// gives it to other processes on demand.
func takeLargePages() {
	_ = unix.Madvise(make([]byte, heap), unix.MADV_HUGEPAGE) // without it everything is as it was
}
