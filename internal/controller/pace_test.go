// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"
)

// TestPace bounds the share of a core that the loop takes, however many passes are urgent, and how long an urgent pass waits.
func TestPace(t *testing.T) {
	const cpuTime, took = 20 * time.Millisecond, 50 * time.Millisecond
	start := time.Date(2026, 1, 7, 9, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		urgent   func(pass int) bool
		inFlight int
		passes   int // in ten seconds
	}{
		"none":         {func(int) bool { return false }, 0, 17},
		"all":          {func(int) bool { return true }, 0, 50 + int(urgentCredit/(urgentShare*cpuTime))},
		"one of two":   {func(pass int) bool { return pass%2 == 0 }, 0, 29},
		"one of ten":   {func(pass int) bool { return pass%10 == 0 }, 0, 18},
		"nine of ten":  {func(pass int) bool { return pass%10 > 0 }, 0, 50}, // the others rest as usual
		"all of few":   {func(int) bool { return true }, 45, 50 + int(urgentCredit/(urgentShare*cpuTime))},
		"all of many":  {func(int) bool { return true }, 250, 20},
		"none of many": {func(int) bool { return false }, 250, 17},
		"all of most":  {func(int) bool { return true }, 10000, 5},
	} {
		var p pace
		now, passes := start, 0
		for now.Before(start.Add(10 * time.Second)) {
			p.addPass(now, passCost{cpuTime, c.inFlight})
			passes++
			ended := now.Add(took)
			urgent := c.urgent(passes)
			next := p.nextStart(ended, urgent)
			if next.Before(ended.Add(shortestRest)) {
				t.Errorf("%s: rests %v", name, next.Sub(ended))
			}
			now = next
		}
		if passes < c.passes-3 || passes > c.passes+1 {
			t.Errorf("%s urgent: %d passes in ten seconds, want about %d", name, passes, c.passes)
		}
	}
	var p pace
	p.addPass(start, passCost{cpuTime: time.Hour})
	if got := p.nextStart(start, false).Sub(start); got != longestRest {
		t.Errorf("after a very long pass it rests %v", got)
	}
	p = pace{}
	p.addPass(start, passCost{cpuTime: cpuTime})
	if got := p.nextStart(start, true).Sub(start); got != shortestRest {
		t.Errorf("an urgent pass waits %v", got)
	}
	p.addPass(start.Add(time.Hour), passCost{cpuTime: cpuTime})
	if got := p.nextStart(start.Add(time.Hour), false).Sub(start.Add(time.Hour)); got != usualShare*cpuTime {
		t.Errorf("after an hour of rest it rests %v", got)
	}
}
