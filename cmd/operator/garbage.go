// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// When the heap is collected. What a pass makes is garbage when it ends, and memory is dearer than the work of collecting
// it: the heap grows by leastGrowth percent. But a small heap may grow to roomyHeap, because collecting it more often
// would cost time and save no memory that somebody counts on.
const (
	roomyHeap   = 40 << 20
	leastGrowth = 60
)

// growth is by how many percent a heap may grow of which this much is alive. The percentage is of that and of the roots.
func growth(alive, roots uint64) int {
	if alive == 0 || alive >= roomyHeap {
		return leastGrowth
	}
	return max(leastGrowth, int((roomyHeap-alive)*100/(alive+roots)))
}

// left is how much of the heap the last collection left, and what it looked through beside it: stacks and globals.
func left() (alive, roots uint64) {
	of := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
	metrics.Read(of)
	return of[0].Value.Uint64(), of[1].Value.Uint64() + of[2].Value.Uint64()
}

// canary is an object of which nobody knows: every collection finds it dead. It has a pointer, or else it would share a
// block with others and live as long as they do.
type canary struct{ _ *canary }

// adapt sets the growth of the heap now, and anew after each collection.
func adapt() {
	debug.SetGCPercent(growth(left()))
	runtime.SetFinalizer(&canary{}, func(*canary) { adapt() })
}
