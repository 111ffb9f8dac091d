// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// Most of what a pass allocates is garbage when it ends, and memory costs more than collecting it. So the heap grows by
// usualGrowth percent between collections. A small heap may grow to smallHeap, because collecting it more often takes CPU
// time and saves little memory. That of a large fleet grows by largestGrowth at most, but by minGrowth percent at least.
const (
	smallHeap     = 40 << 20
	usualGrowth   = 60
	largestGrowth = 56 << 20
	minGrowth     = 40
)

// growthPercent is the GC percentage for a heap with this much live data. It applies to the live heap and the GC roots.
func growthPercent(live, roots uint64) int {
	percentOf := func(growth uint64) int { return int(growth * 100 / (live + roots)) }
	switch {
	case live == 0:
		return usualGrowth
	case live < smallHeap:
		return max(usualGrowth, percentOf(smallHeap-live))
	}
	return max(minGrowth, min(usualGrowth, percentOf(largestGrowth)))
}

// readHeap returns the size of the live heap after the last collection, and of the GC roots: stacks and globals.
func readHeap() (live, roots uint64) {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64(), samples[1].Value.Uint64() + samples[2].Value.Uint64()
}

// canary is an unreferenced object, whose finalizer runs after each collection. It has a pointer, or else it would share
// a tiny-allocator block with others and live as long as they do.
type canary struct{ _ *canary }

// adaptGC sets the GC percentage now, and again after each collection.
func adaptGC() {
	debug.SetGCPercent(growthPercent(readHeap()))
	runtime.SetFinalizer(&canary{}, func(*canary) { adaptGC() })
}
