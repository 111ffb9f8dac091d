// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

func TestGrowth(t *testing.T) {
	for _, c := range []struct {
		alive, roots uint64
		want         int
	}{
		{0, 0, leastGrowth},
		{roomyHeap / 4, 0, 300},
		{roomyHeap / 4, roomyHeap / 4, 150},
		{roomyHeap / 2, 0, 100},
		{roomyHeap * 3 / 4, 0, leastGrowth}, // 33 would be less than the least
		{roomyHeap, 0, leastGrowth},
		{100 * roomyHeap, roomyHeap, leastGrowth},
	} {
		if got := growth(c.alive, c.roots); got != c.want {
			t.Errorf("growth(%d MiB, %d MiB) is %d, want %d", c.alive>>20, c.roots>>20, got, c.want)
		}
	}
}

// Each collection sets the growth anew, the second as well as the first.
func TestAdaptsAfterEachCollection(t *testing.T) {
	before := debug.SetGCPercent(-1)
	defer debug.SetGCPercent(before)
	runtime.SetFinalizer(&canary{}, func(*canary) { adapt() })
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
