// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// TestWaitReasonsHaveRemedies checks that the reasons to wait, and no others, have a remedy.
func TestWaitReasonsHaveRemedies(t *testing.T) {
	others := []rollout.Reason{rollout.ReasonWorking, rollout.ReasonFinished, rollout.ReasonOwed, rollout.ReasonQuiet, rollout.ReasonEnded, rollout.ReasonReplaced, rollout.ReasonLeft, rollout.ReasonNewNode, rollout.ReasonNodeBooted,
		rollout.ReasonCovered, rollout.ReasonRetry, rollout.ReasonDrift, rollout.ReasonOrphan, rollout.ReasonGiveUp}
	all := parseReasons(t)
	for name, r := range all {
		if r.IsWait() == slices.Contains(others, r) {
			t.Errorf("%s: IsWait is %v", name, r.IsWait())
		}
	}
	if n := len(rollout.WaitReasons()); n+len(others) != len(all) {
		t.Errorf("%d reasons, of which %d are reasons to wait", len(all), n)
	}
	for _, r := range rollout.WaitReasons() {
		why := rollout.Why{Reason: r, Text: "it waits for Pod a/b", Since: time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC)}
		sentence := rollout.Verdict{Node: "n7", Why: why}.Sentence("demo")
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
	for name, change := range map[string]func(s *rollout.Snapshot, r *rollout.Rollout, t *rollout.Target){
		"not admitted": func(s *rollout.Snapshot, _ *rollout.Rollout, _ *rollout.Target) { s.Groups[0].Limit = 0 },
		"paused":       func(_ *rollout.Snapshot, r *rollout.Rollout, _ *rollout.Target) { r.Paused = true },
		"blocked": func(_ *rollout.Snapshot, _ *rollout.Rollout, t *rollout.Target) {
			t.Blocked = &rollout.Why{Reason: rollout.ReasonIgnored}
		},
		"not ready": func(s *rollout.Snapshot, _ *rollout.Rollout, _ *rollout.Target) { s.Nodes[0].Ready = false },
		"in flight": func(s *rollout.Snapshot, _ *rollout.Rollout, t *rollout.Target) {
			t.Visit.Admitted, t.Visit.AdmittedAt = true, s.Now.Add(-time.Hour)
			t.Tasks[0].After = []string{"x"}
		},
	} {
		s := newSnapshot(func(s *rollout.Snapshot, r *rollout.Rollout, t *rollout.Target) {
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
		"NodeOp/ops/reboot/__default__":      "kubectl skyhook approve nodeop/ops/reboot default",
		"Skyhook/demo/$(touch x);echo `id`":  "kubectl skyhook approve skyhook/demo '$(touch x);echo `id`'",
		"DeploymentPolicy/careful/canary-10": "kubectl skyhook approve deploymentpolicy/careful canary-10",
	} {
		if got := (rollout.Why{Reason: rollout.ReasonApproval, About: about}).Remedy("other", "n1", ""); got != want {
			t.Errorf("%s: %s", about, got)
		}
	}
}

// TestApprovalsAreForOneThing checks that an approval is for exactly what a rollout begins.
func TestApprovalsAreForOneThing(t *testing.T) {
	a, b := rollout.ParseRef("Skyhook/a"), rollout.ParseRef("Skyhook/b")
	both := rollout.NewVersions(a, "1").Merge(rollout.NewVersions(b, "2"))
	for _, c := range []struct {
		name     string
		approval rollout.Approval
		want     bool
	}{
		{"none is required", rollout.Approval{}, true},
		{"nothing is approved", rollout.Approval{Required: true, Of: "1"}, false},
		{"the same", rollout.Approval{Required: true, Of: "1", Given: "1"}, true},
		{"something else", rollout.Approval{Required: true, Of: "1", Given: "2"}, false},
		{"unknown", rollout.Approval{Required: true}, false},
		{"the same of one of two", rollout.Approval{Required: true, Of: both, Given: rollout.NewVersions(a, "1")}, true},
		{"the other of two", rollout.Approval{Required: true, Of: both, Given: rollout.NewVersions(b, "2")}, false},
		{"the hash of another", rollout.Approval{Required: true, Of: both, Given: rollout.NewVersions(a, "2")}, false},
		{"the scope changed", rollout.Approval{Required: true, Of: both, Given: "1"}, false},
		{"one hash for too many", rollout.Approval{Required: true, Of: "12", Given: "12"}, true},
	} {
		if got := c.approval.Includes(a); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
