// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

func TestGrowthPercent(t *testing.T) {
	for _, c := range []struct {
		alive, roots uint64
		want         int
	}{
		{0, 0, usualGrowth},
		{smallHeap / 4, 0, 300},
		{smallHeap / 4, smallHeap / 4, 150},
		{smallHeap / 2, 0, 100},
		{smallHeap * 3 / 4, 0, usualGrowth}, // 33 would be less
		{smallHeap, 0, usualGrowth},
		{largestGrowth * 3 / 2, 0, usualGrowth},
		{largestGrowth * 3 / 2, largestGrowth / 2, 50},
		{largestGrowth * 2, 0, 50},
		{100 * smallHeap, smallHeap, minGrowth},
	} {
		if got := growthPercent(c.alive, c.roots); got != c.want {
			t.Errorf("growthPercent(%d MiB, %d MiB) is %d, want %d", c.alive>>20, c.roots>>20, got, c.want)
		}
	}
}

// Each collection sets the growth anew, the second as well as the first.
func TestAdaptsAfterEachCollection(t *testing.T) {
	before := debug.SetGCPercent(-1)
	defer debug.SetGCPercent(before)
	runtime.SetFinalizer(&canary{}, func(*canary) { adaptGC() })
	for i := range 3 {
		debug.SetGCPercent(1000 + i)
		deadline := time.Now().Add(time.Minute)
		for {
			runtime.GC()
			now := debug.SetGCPercent(1000 + i)
			if now != 1000+i {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("collection %d did not set the growth", i+1)
			}
			time.Sleep(time.Millisecond)
		}
	}
}
