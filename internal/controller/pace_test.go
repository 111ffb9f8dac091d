// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"
)

// TestPace holds what a loop takes of a core, whoever is in a hurry, and that nobody in a hurry waits long for what others
// had looked at.
func TestPace(t *testing.T) {
	const thought, took = 20 * time.Millisecond, 50 * time.Millisecond
	dawn := time.Date(2026, 1, 7, 9, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		hurried func(pass int) bool
		passes  int // in ten seconds
	}{
		"nobody":      {func(int) bool { return false }, 17},
		"everybody":   {func(int) bool { return true }, 50 + int(urgentCredit/(urgentShare*thought))},
		"one of two":  {func(pass int) bool { return pass%2 == 0 }, 29},
		"one of ten":  {func(pass int) bool { return pass%10 == 0 }, 18},
		"nine of ten": {func(pass int) bool { return pass%10 > 0 }, 50}, // the others wait until all is paid for
	} {
		var p pace
		now, passes := dawn, 0
		for now.Before(dawn.Add(10 * time.Second)) {
			p.addPass(now, thought)
			passes++
			ended := now.Add(took)
			hurried := c.hurried(passes)
			next := p.nextStart(ended, hurried)
			if next.Before(ended.Add(shortestRest)) {
				t.Errorf("%s: rests %v", name, next.Sub(ended))
			}
			now = next
		}
		if passes < c.passes-3 || passes > c.passes+1 {
			t.Errorf("%s in a hurry: %d passes in ten seconds, want about %d", name, passes, c.passes)
		}
	}
	var p pace
	p.addPass(dawn, time.Hour)
	if got := p.nextStart(dawn, false).Sub(dawn); got != longestRest {
		t.Errorf("after a very long pass it rests %v", got)
	}
	p = pace{}
	p.addPass(dawn, thought)
	if got := p.nextStart(dawn, true).Sub(dawn); got != shortestRest {
		t.Errorf("who is in a hurry waits %v", got)
	}
	p.addPass(dawn.Add(time.Hour), thought)
	if got := p.nextStart(dawn.Add(time.Hour), false).Sub(dawn.Add(time.Hour)); got != usualShare*thought {
		t.Errorf("after an hour of rest it rests %v", got)
	}
}
