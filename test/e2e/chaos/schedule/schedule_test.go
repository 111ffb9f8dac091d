// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"strings"
	"testing"
	"time"
)

var nodes = []string{"n1", "n2", "n3", "n4"}

// TestSeed: a seed gives the same schedule each time, and another seed another one.
func TestSeed(t *testing.T) {
	one, again, other := TimeLine(New(7, 30*time.Minute, nodes)), TimeLine(New(7, 30*time.Minute, nodes)), TimeLine(New(8, 30*time.Minute, nodes))
	if one != again {
		t.Error("the same seed gave two schedules")
	}
	if one == other {
		t.Error("two seeds gave the same schedule")
	}
}

// TestLongRun: in half an hour each kind of fault happens, the power is cut in each stage, each status is answered, and the operator
// is killed at least 50 times.
func TestLongRun(t *testing.T) {
	for seed := range uint64(200) {
		kills, kinds, stages, answered := 0, map[Kind]int{}, map[string]int{}, map[int]int{}
		for _, e := range New(seed, 30*time.Minute, nodes) {
			kinds[e.Kind]++
			stages[e.Stage]++
			answered[e.Code]++
			if e.IsKill() {
				kills++
			}
		}
		if kills < 50 {
			t.Errorf("seed %d: the operator is killed %d times", seed, kills)
		}
		for _, l := range append(lanes, lane{kinds: killing}) {
			for _, kind := range l.kinds {
				if kinds[kind] == 0 {
					t.Errorf("seed %d: this never happens: %s", seed, kind)
				}
			}
		}
		if len(stages) < 1+min(len(Stages), kinds[CutPower]) {
			t.Errorf("seed %d: the power is cut %d times, during %v", seed, kinds[CutPower], stages)
		}
		for _, code := range codes {
			if answered[code] == 0 {
				t.Errorf("seed %d: writes are never refused with %d: %v", seed, code, answered)
			}
		}
	}
}

// TestOneNodeAtATime: what a fault broke works again before the run ends, and before the next node breaks.
func TestOneNodeAtATime(t *testing.T) {
	for seed := range uint64(200) {
		for _, length := range []time.Duration{5 * time.Minute, 30 * time.Minute} {
			var until time.Duration
			for _, e := range New(seed, length, nodes) {
				if e.At+e.For > length {
					t.Fatalf("seed %d: %s: it lasts longer than the run", seed, e)
				}
				if e.Node == "" || e.Kind == HideImages {
					continue
				}
				if e.At < until {
					t.Fatalf("seed %d: %s: another node is broken", seed, e)
				}
				until = e.At + e.For
			}
		}
	}
}

// TestShortRun: even five minutes kill the operator several times and break nodes.
func TestShortRun(t *testing.T) {
	for seed := range uint64(200) {
		kills, ofNodes := 0, 0
		for _, e := range New(seed, 3*time.Minute, nodes) {
			if e.IsKill() {
				kills++
			}
			if e.Node != "" {
				ofNodes++
			}
		}
		if kills < 4 || ofNodes < 2 {
			t.Errorf("seed %d: %d kills, %d faults of nodes", seed, kills, ofNodes)
		}
	}
}

func TestTimeLine(t *testing.T) {
	got := TimeLine([]Event{
		{At: 62 * time.Second, Kind: DieAfter, Index: 3, For: 9 * time.Second},
		{At: 70 * time.Second, Kind: CutPower, Node: "n2", Stage: "config", For: 30 * time.Second},
		{At: 80 * time.Second, Kind: RefuseWrites, Code: 409, For: 8 * time.Second},
		{At: 90 * time.Second, Kind: WrongClock, Node: "n1", Skew: -time.Minute, For: 40 * time.Second},
		{At: 95 * time.Second, Kind: CutWatches},
	})
	want := strings.TrimPrefix(`
   1m2s  kill the operator after a write, before its response number 4, 9s
  1m10s  cut the power on n2 during config, 30s
  1m20s  refuse writes of the operator with 409, 8s
  1m30s  set the clock wrong on n1 by -1m0s, 40s
  1m35s  cut the operator's watches
`, "\n")
	if got != want {
		t.Errorf("the time line is\n%s\nwant\n%s", got, want)
	}
}
