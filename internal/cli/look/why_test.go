// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package look

import (
	"strings"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/cluster"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/view"
)

// TestEveryReasonIsExplained checks that an explanation has the sentence of the status, since when, and what would help, for
// each reason to wait.
func TestEveryReasonIsExplained(t *testing.T) {
	now := time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC)
	for _, want := range rollout.WaitReasons() {
		v := rollout.Verdict{Node: "n1", Phase: rollout.PhaseWaiting, Why: rollout.Why{
			Reason: want, Text: "it waits for Pod shop/" + string(want), Since: now.Add(-5 * time.Minute)}}
		s := &view.Cluster{
			Objects:  &cluster.Objects{},
			Snapshot: rollout.Snapshot{Now: now, Rollouts: []rollout.Rollout{{Ref: rollout.ParseRef("Skyhook/demo"), Sequence: "Skyhook", Targets: []*rollout.Target{{Node: "n1"}}}}},
			Plan:     rollout.Plan{Reports: []rollout.Report{{Rollout: rollout.ParseRef("Skyhook/demo"), Verdicts: []rollout.Verdict{v}}}},
		}
		b := view.NewExplainer(s).Explain(&s.Snapshot.Rollouts[0], v)
		got := FormatExplanations([]view.Explanation{b}, 0)
		for _, text := range []string{string(want) + ": " + v.Why.Text, "for 5m", "→ " + v.Why.Remedy("demo", "n1", "")} {
			if !strings.Contains(got, text) {
				t.Errorf("%s is explained without %q:\n%s", want, text, got)
			}
		}
	}
}
