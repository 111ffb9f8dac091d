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
			t.Visit.Admitted, t.Visit.AdmittedAt = true, s.Now.Add(-time.Hour)
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

// TestApprovalRemedy checks that the remedy is a command that a shell reads as it is meant.
func TestApprovalRemedy(t *testing.T) {
	for about, want := range map[string]string{
		"Skyhook/demo/rest":                  "kubectl skyhook approve skyhook/demo rest",
		"DeploymentPolicy/careful/2. it's":   `kubectl skyhook approve deploymentpolicy/careful '2. it'\''s'`,
		"NodeOp/ops/reboot/__default__":      "kubectl skyhook approve nodeop/ops/reboot __default__",
		"Skyhook/demo/$(touch x);echo `id`":  "kubectl skyhook approve skyhook/demo '$(touch x);echo `id`'",
		"DeploymentPolicy/careful/canary-10": "kubectl skyhook approve deploymentpolicy/careful canary-10",
	} {
		if got := (Why{Reason: ReasonApproval, About: about}).Remedy("other", "n1", ""); got != want {
			t.Errorf("%s: %s", about, got)
		}
	}
}

// TestApprovalsAreForOneThing checks that an approval is for exactly what a rollout begins.
func TestApprovalsAreForOneThing(t *testing.T) {
	a, b := ParseRef("Skyhook/a"), ParseRef("Skyhook/b")
	both := NewVersions(a, "1").Merge(NewVersions(b, "2"))
	for _, c := range []struct {
		name     string
		approval Approval
		want     bool
	}{
		{"none is required", Approval{}, true},
		{"nothing is approved", Approval{Required: true, Of: "1"}, false},
		{"the same", Approval{Required: true, Of: "1", Given: "1"}, true},
		{"something else", Approval{Required: true, Of: "1", Given: "2"}, false},
		{"unknown", Approval{Required: true}, false},
		{"the same of one of two", Approval{Required: true, Of: both, Given: NewVersions(a, "1")}, true},
		{"the other of two", Approval{Required: true, Of: both, Given: NewVersions(b, "2")}, false},
		{"the hash of another", Approval{Required: true, Of: both, Given: NewVersions(a, "2")}, false},
		{"the scope changed", Approval{Required: true, Of: both, Given: "1"}, false},
		{"one hash for too many", Approval{Required: true, Of: "12", Given: "12"}, true},
	} {
		if got := c.approval.Includes(a); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
