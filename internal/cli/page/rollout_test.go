// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/view"
)

// TestLongSimulation: a simulation that takes longer than a page computes says so, and nothing of an end that it did not reach.
func TestLongSimulation(t *testing.T) {
	var out bytes.Buffer
	s := newUISource(session.NewFactory(nil, &out, &out, ""), session.ViewOptions{From: "../testdata/dumps/windows.yaml"})
	if err := s.loadDirectly(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		most  time.Duration
		isCut bool
	}{{0, true}, {time.Hour, false}} {
		simulated := view.NewSimulation(s.view, s.view.SimulateForPages(nil, c.most), nil)
		p := simulated.Rollouts[0].Progress
		if simulated.Cut != c.isCut || p.Cut != c.isCut || c.isCut && (simulated.Complete || p.End != nil) {
			t.Errorf("at most %s: cut %v and %v, complete %v, end %v", c.most, simulated.Cut, p.Cut, simulated.Complete, p.End)
		}
	}
}
