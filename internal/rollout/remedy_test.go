// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestWaitReasonsHaveRemedies checks that the reasons to wait, and no others, have a remedy.
func TestWaitReasonsHaveRemedies(t *testing.T) {
	others := []Reason{ReasonWorking, ReasonFinished, ReasonOwed, ReasonQuiet, ReasonEnded, ReasonReplaced, ReasonLeft, ReasonNewNode, ReasonNodeBooted,
		ReasonCovered, ReasonRetry, ReasonDrift, ReasonOrphan, ReasonGiveUp}
	all := parseReasons(t)
	for name, r := range all {
		if r.IsWait() == slices.Contains(others, r) {
			t.Errorf("%s: IsWait is %v", name, r.IsWait())
		}
	}
	if n := len(WaitReasons()); n+len(others) != len(all) {
		t.Errorf("%d reasons, of which %d are reasons to wait", len(all), n)
	}
	for _, r := range WaitReasons() {
		why := Why{Reason: r, Text: "it waits for Pod a/b", Since: time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC)}
		sentence := Verdict{Node: "n7", Why: why}.Sentence("demo")
		if !strings.HasPrefix(sentence, "it waits for Pod a/b, since 2026-01-05T08:00:00Z (") || !strings.HasSuffix(sentence, ")") {
			t.Errorf("the sentence of %s is %q", r, sentence)
		}
		if strings.Contains(sentence, "SKYHOOK") || strings.Contains(sentence, "NODE ") || strings.HasSuffix(sentence, ".)") {
			t.Errorf("the sentence of %s is %q", r, sentence)
		}
	}
}

// TestVerdictsHaveSince checks that the verdict of a waiting target has a time.
func TestVerdictsHaveSince(t *testing.T) {
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
		s := newSnapshot(func(s *Snapshot, r *Rollout, t *Target) {
			r.Since = s.Now.Add(-time.Hour)
			change(s, r, t)
		})
		if why := Decide(s).Reports[0].Verdicts[0].Why; !why.Since.Equal(s.Now.Add(-time.Hour)) && name != "in flight" || why.Since.IsZero() {
			t.Errorf("%s: %+v", name, why)
		}
	}
}
