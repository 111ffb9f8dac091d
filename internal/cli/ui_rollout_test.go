// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"testing"
	"time"
)

// TestLongSimulation: a simulation that takes longer than a page computes says so, and nothing of an end that it did not reach.
func TestLongSimulation(t *testing.T) {
	var out bytes.Buffer
	s := newUISource(newFactory(Line{Stdout: &out, Stderr: &out}), viewOptions{from: "testdata/dumps/windows.yaml"})
	if err := s.loadDirectly(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		most  time.Duration
		isCut bool
	}{{0, true}, {time.Hour, false}} {
		simulated := newSimulation(s.view, s.view.simulateForPages(nil, c.most), nil)
		p := simulated.Rollouts[0].Progress
		if simulated.Cut != c.isCut || p.Cut != c.isCut || c.isCut && (simulated.Complete || p.End != nil) {
			t.Errorf("at most %s: cut %v and %v, complete %v, end %v", c.most, simulated.Cut, p.Cut, simulated.Complete, p.End)
		}
	}
}
