// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestEveryWaitHasARemedy: each reason to wait or to be stuck says what would end it, and no other does.
func TestEveryWaitHasARemedy(t *testing.T) {
	content := []Reason{ReasonWorking, ReasonFinished, ReasonOwed, ReasonQuiet, ReasonEnded, ReasonReplaced, ReasonLeft, ReasonNewNode, ReasonNodeBooted,
		ReasonCovered, ReasonRetry, ReasonOrphan, ReasonGiveUp}
	all := reasons(t)
	for name, r := range all {
		if r.IsWait() == slices.Contains(content, r) {
			t.Errorf("%s: Waits is %v", name, r.IsWait())
		}
	}
	if n := len(WaitReasons()); n+len(content) != len(all) {
		t.Errorf("%d reasons, of which %d are told", len(all), n)
	}
	for _, r := range WaitReasons() {
		why := Why{Reason: r, Text: "it waits for Pod a/b", Since: time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC)}
		said := Verdict{Node: "n7", Why: why}.Sentence("demo")
		if !strings.HasPrefix(said, "it waits for Pod a/b, since 2026-01-05T08:00:00Z (") || !strings.HasSuffix(said, ")") {
			t.Errorf("%s says %q", r, said)
		}
		if strings.Contains(said, "SKYHOOK") || strings.Contains(said, "NODE ") || strings.HasSuffix(said, ".)") {
			t.Errorf("%s says %q", r, said)
		}
	}
}

// TestWaitsHaveATime: whoever waits is told since when, at the longest.
func TestWaitsHaveATime(t *testing.T) {
	for name, change := range map[string]func(s *Snapshot, r *Rollout, t *Target){
		"not admitted": func(s *Snapshot, _ *Rollout, _ *Target) { s.Groups[0].Limit = 0 },
		"paused":       func(_ *Snapshot, r *Rollout, _ *Target) { r.Paused = true },
		"blocked":      func(_ *Snapshot, _ *Rollout, t *Target) { t.Blocked = &Why{Reason: ReasonIgnored} },
		"not ready":    func(s *Snapshot, _ *Rollout, _ *Target) { s.Nodes[0].Ready = false },
		"in flight": func(s *Snapshot, _ *Rollout, t *Target) {
			t.Admitted, t.AdmittedAt = true, s.Now.Add(-time.Hour)
			t.Tasks[0].After = []string{"x"}
		},
	} {
		s := one(func(s *Snapshot, r *Rollout, t *Target) {
			r.Since = s.Now.Add(-time.Hour)
			change(s, r, t)
		})
		if why := Decide(s).Reports[0].Verdicts[0].Why; !why.Since.Equal(s.Now.Add(-time.Hour)) && name != "in flight" || why.Since.IsZero() {
			t.Errorf("%s: %+v", name, why)
		}
	}
}
