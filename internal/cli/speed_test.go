// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/cli/look"
	"github.com/skyhook-k8s/skyhook/internal/cluster"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/view"
)

// newPacedView returns a rollout with nodes that finished this many minutes ago, and some that are not finished.
func newPacedView(minutes []float64, left int) *view.Cluster {
	now := time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC)
	r := rollout.Rollout{Ref: rollout.ParseRef("NodeOp/ops/demo"), Sequence: "NodeOp"}
	report := rollout.Report{Rollout: r.Ref}
	for i, m := range minutes {
		node := fmt.Sprintf("done%d", i)
		r.Targets = append(r.Targets, &rollout.Target{Node: node, Visit: rollout.Visit{FinishedAt: now.Add(-time.Duration(m * float64(time.Minute)))}})
		report.Verdicts = append(report.Verdicts, rollout.Verdict{Node: node, Phase: rollout.PhaseFinished})
	}
	for i := range left {
		node := fmt.Sprintf("left%d", i)
		r.Targets = append(r.Targets, &rollout.Target{Node: node})
		report.Verdicts = append(report.Verdicts, rollout.Verdict{Node: node, Phase: rollout.PhaseWaiting, Why: rollout.Why{Reason: rollout.ReasonBudget, Text: "the budget of 1 node is used"}})
	}
	return &view.Cluster{Snapshot: rollout.Snapshot{Now: now, Rollouts: []rollout.Rollout{r}}, Plan: rollout.Plan{Reports: []rollout.Report{report}}, Objects: &cluster.Objects{}}
}

// TestEstimateSpeed checks the estimate from the nodes that finished during the last hour; too few give none.
func TestEstimateSpeed(t *testing.T) {
	for _, c := range []struct {
		what    string
		minutes []float64
		left    int
		perHour float64
		text    string
	}{
		{"one every ten minutes", []float64{50, 40, 30, 20, 10, 0}, 12, 6, "2h"},
		{"the last one a while ago", []float64{50, 40, 30, 20, 10}, 4, 4.8, "50m"},
		{"long ago counts for nothing", []float64{600, 500, 20, 10, 0}, 3, 6, "30m"},
		{"many at once", []float64{4, 2, 2, 2, 2}, 100, 60, "1h40m"},
		{"rounded to ten minutes beyond an hour", []float64{30, 17, 4}, 7, 4, "1h50m"},
		{"seconds are not foreseen", []float64{2, 1.9, 1.8, 1.7}, 1, 90, "1m"},
		{"hundreds an hour, without a fraction", []float64{4.9, 4.5, 4, 3.5, 3, 2.5, 2, 1.5, 1, 0.5}, 10, 110, "5m"},
		{"days", []float64{40, 20, 0}, 100, 3, "1d9h"},
		{"one says nothing", []float64{10}, 5, 0, ""},
		{"all at the same time say nothing", []float64{10, 10, 10}, 5, 0, ""},
		{"less than a minute says nothing", []float64{0.5, 0.3, 0.1}, 5, 0, ""},
		{"nothing is left", []float64{30, 20, 10}, 0, 0, ""},
	} {
		s := newPacedView(c.minutes, c.left)
		st := view.SummarizeRollout(s, &s.Snapshot.Rollouts[0])
		if st.PerHour != c.perHour || st.Left != c.text {
			t.Errorf("%s: %v nodes an hour, %q left, want %v and %q", c.what, st.PerHour, st.Left, c.perHour, c.text)
		}
		p := &output.Printer{}
		screen, line := look.FormatRolloutDetails(&st, p, false), look.FormatOverview(p, []view.RolloutStatus{st})
		if c.text == "" && strings.Contains(screen, "speed") {
			t.Errorf("%s: the screen says\n%s", c.what, screen)
		}
		speed := fmt.Sprintf("  speed     %g nodes an hour, about %s left\n", c.perHour, c.text)
		if c.text != "" && (!strings.Contains(screen, speed) || !strings.Contains(line, "  "+c.text+"  ")) {
			t.Errorf("%s: want %q on the screen and %q in the line:\n%s\n%s", c.what, speed, c.text, screen, line)
		}
		s.Snapshot.Rollouts[0].Paused = true
		if st := view.SummarizeRollout(s, &s.Snapshot.Rollouts[0]); st.PerHour != 0 || st.Left != "" {
			t.Errorf("%s, but paused: %v nodes an hour, %q left", c.what, st.PerHour, st.Left)
		}
	}
}
