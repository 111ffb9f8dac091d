// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// parseReasons returns the constants in reason.go.
func parseReasons(t *testing.T) map[string]rollout.Reason {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../reason.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]rollout.Reason{}
	ast.Inspect(file, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok {
			for i, name := range v.Names {
				text, err := strconv.Unquote(v.Values[i].(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				out[name.Name] = rollout.Reason(text)
			}
		}
		return true
	})
	return out
}

// TestReasonsAreDocumented checks that docs/internals/engine.md has a row for every reason, and for no other.
func TestReasonsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/internals/engine.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, line := range strings.Split(string(page), "\n") {
		if cells := strings.Split(line, "|"); len(cells) > 3 && strings.HasPrefix(strings.TrimSpace(cells[1]), "`") {
			listed = append(listed, strings.Trim(strings.TrimSpace(cells[1]), "`"))
		}
	}
	declared := parseReasons(t)
	var known []string
	for name, r := range declared {
		known = append(known, string(r))
		if !slices.Contains(listed, string(r)) {
			t.Errorf("docs/internals/engine.md has no row for %s, which is %s", r, name)
		}
	}
	for _, r := range listed {
		if !slices.Contains(known, r) {
			t.Errorf("docs/internals/engine.md has a row for %s, which is no reason", r)
		}
	}
	if len(declared) < 40 {
		t.Errorf("only %d reasons were found in reason.go", len(declared))
	}
}

// newSnapshot returns a snapshot with one rollout and one task, with a change.
func newSnapshot(change func(s *rollout.Snapshot, r *rollout.Rollout, t *rollout.Target)) rollout.Snapshot {
	s := rollout.Snapshot{
		Now:    time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC),
		Nodes:  []rollout.Node{{Name: "n1", UID: "1", Ready: true}, {Name: "n2", UID: "2", Ready: true}},
		Groups: []rollout.Group{{Ref: rollout.ParseGroupRef("g"), Ledger: rollout.ParseRef("g"), Limit: 1, Pace: rollout.Pace{Kind: rollout.PaceWindow}}},
		Rollouts: []rollout.Rollout{{Ref: rollout.ParseRef("Skyhook/demo"), Sequence: "Skyhook", Priority: 200, Targets: []*rollout.Target{
			{Node: "n1", UID: "1", Group: rollout.ParseGroupRef("g"), Tasks: []rollout.Task{{ID: "a/apply", State: rollout.StatePending, Recorded: rollout.StatePending}}},
		}}},
	}
	if change != nil {
		change(&s, &s.Rollouts[0], s.Rollouts[0].Targets[0])
	}
	return s
}

// addRollout adds a rollout with one task on one node.
func addRollout(s *rollout.Snapshot, name string, priority int, node string) *rollout.Rollout {
	ref := rollout.ParseRef(name)
	s.Rollouts = append(s.Rollouts, rollout.Rollout{Ref: ref, Sequence: ref.Kind, Priority: priority, Targets: []*rollout.Target{
		{Node: node, UID: node[1:], Group: rollout.ParseGroupRef("g"), Tasks: []rollout.Task{{ID: "b/apply", State: rollout.StatePending, Recorded: rollout.StatePending}}},
	}})
	return &s.Rollouts[len(s.Rollouts)-1]
}

// TestGatesHaveReasons has, for each gate, a snapshot in which it is the first that stops the target, and checks its
// reason and sentence.
func TestGatesHaveReasons(t *testing.T) {
	cases := []struct {
		reason rollout.Reason
		change func(s *rollout.Snapshot, r *rollout.Rollout, t *rollout.Target)
	}{
		{rollout.ReasonFinished, func(_ *rollout.Snapshot, _ *rollout.Rollout, t *rollout.Target) { t.Tasks = nil }},
		{rollout.ReasonIgnored, func(_ *rollout.Snapshot, _ *rollout.Rollout, t *rollout.Target) {
			t.Blocked = &rollout.Why{Reason: rollout.ReasonIgnored}
		}},
		{rollout.ReasonNodeGone, func(_ *rollout.Snapshot, _ *rollout.Rollout, t *rollout.Target) { t.Node = "n9" }},
		{rollout.ReasonPaused, func(_ *rollout.Snapshot, r *rollout.Rollout, _ *rollout.Target) { r.Paused = true }},
		{rollout.ReasonDrainTimeout, func(_ *rollout.Snapshot, _ *rollout.Rollout, t *rollout.Target) { t.Visit.Skipped = true }},
		{rollout.ReasonRolledBack, func(_ *rollout.Snapshot, r *rollout.Rollout, _ *rollout.Target) {
			r.Rollback.Together, r.Rollback.Cause = true, &rollout.Why{Reason: rollout.ReasonRolledBack}
		}},
		{rollout.ReasonBarrier, func(s *rollout.Snapshot, _ *rollout.Rollout, _ *rollout.Target) {
			addRollout(s, "Skyhook/base", 1, "n2").Barrier = true
		}},
		{rollout.ReasonEarlierRollout, func(s *rollout.Snapshot, _ *rollout.Rollout, _ *rollout.Target) {
			addRollout(s, "Skyhook/base", 1, "n1")
		}},
		{rollout.ReasonOccupied, func(s *rollout.Snapshot, _ *rollout.Rollout, _ *rollout.Target) {
			addRollout(s, "NodeOp/fix", 900, "n1").Targets[0].Visit.Admitted = true
		}},
		{rollout.ReasonNodeNotReady, func(s *rollout.Snapshot, _ *rollout.Rollout, _ *rollout.Target) { s.Nodes[0].Ready = false }},
	}
	if len(cases) != len(gates) {
		t.Fatalf("there are %d gates and %d cases", len(gates), len(cases))
	}
	for i, c := range cases {
		s := newSnapshot(c.change)
		p := newPlanner(&s, &buffers{})
		target := &p.findRollout(rollout.ParseRef("Skyhook/demo")).targets[0]
		for j, g := range gates[:i+1] {
			stops := g.stops(target)
			if stops && j < i {
				t.Errorf("%s: gate %d stops the target before gate %d", c.reason, j, i)
			}
			if j == i && !stops {
				t.Errorf("%s: gate %d does not stop the target", c.reason, i)
			}
			if stops {
				requireReason(t, c.reason, g.verdict(target).Why)
			}
		}
		if v := Decide(s).Reports[0].Verdicts[0]; v.Why.Reason != c.reason || v.Phase == "" {
			t.Errorf("%s: the verdict is %+v", c.reason, v)
		}
	}
}

// TestAdmissionChecksHaveReasons does the same for targets that pass the gates and are not admitted.
func TestAdmissionChecksHaveReasons(t *testing.T) {
	fixed := rollout.Pace{Kind: rollout.PaceFixed, Initial: 1, PassPercent: 100, SafetyLimit: 100}
	busy := func(s *rollout.Snapshot) { addRollout(s, "Skyhook/zz", 900, "n2").Targets[0].Visit.Admitted = true }
	for _, c := range []struct {
		reason rollout.Reason
		change func(s *rollout.Snapshot, r *rollout.Rollout, t *rollout.Target)
	}{
		{rollout.ReasonWindow, func(s *rollout.Snapshot, _ *rollout.Rollout, _ *rollout.Target) {
			s.Groups[0].Frozen = &rollout.Why{Reason: rollout.ReasonWindow}
		}},
		{rollout.ReasonStopped, func(s *rollout.Snapshot, _ *rollout.Rollout, _ *rollout.Target) {
			s.Groups[0].Memory.Stopped, s.Groups[0].Pace.StopAfter = true, 1
		}},
		{rollout.ReasonLedger, func(s *rollout.Snapshot, _ *rollout.Rollout, _ *rollout.Target) { s.Groups[0].Pace = fixed }},
		{rollout.ReasonBudget, func(s *rollout.Snapshot, _ *rollout.Rollout, _ *rollout.Target) { busy(s) }},
		{rollout.ReasonBudget, func(s *rollout.Snapshot, _ *rollout.Rollout, _ *rollout.Target) { s.Groups[0].Limit = 0 }},
		{rollout.ReasonWave, func(s *rollout.Snapshot, _ *rollout.Rollout, _ *rollout.Target) {
			s.Groups[0].After = []rollout.GroupRef{rollout.ParseGroupRef("gone")}
		}},
		{rollout.ReasonWave, func(s *rollout.Snapshot, _ *rollout.Rollout, _ *rollout.Target) {
			s.Groups[0].After = []rollout.GroupRef{s.Groups[0].Ref}
		}},
		{rollout.ReasonApproval, func(s *rollout.Snapshot, _ *rollout.Rollout, _ *rollout.Target) {
			s.Groups[0].Approval = rollout.Approval{Required: true, Of: "v1"}
		}},
		{rollout.ReasonApproval, func(s *rollout.Snapshot, _ *rollout.Rollout, _ *rollout.Target) {
			s.Groups[0].Approval = rollout.Approval{Required: true, Of: "v1", Given: "v0", By: "alice"}
		}},
		{rollout.ReasonBatch, func(s *rollout.Snapshot, _ *rollout.Rollout, _ *rollout.Target) {
			busy(s)
			s.Groups[0].Limit, s.Groups[0].Pace, s.Groups[0].Memory = 2, fixed, rollout.Memory{Batch: 1, Open: 1, From: 1}
		}},
		{rollout.ReasonTopology, func(s *rollout.Snapshot, _ *rollout.Rollout, t *rollout.Target) {
			busy(s)
			s.Groups[0].Limit, s.Groups[0].Spread, t.Place = 2, rollout.Spread{Key: "rack", Limit: 1}, "r1"
			s.Rollouts[1].Targets[0].Place = "r1"
		}},
		{rollout.ReasonLedger, func(s *rollout.Snapshot, _ *rollout.Rollout, _ *rollout.Target) {
			s.Groups[0].Limit = rollout.Unlimited
			s.Ledgers = []rollout.Ledger{{Owner: rollout.ParseRef("g"), Epoch: 1}}
			s.Nodes = append(s.Nodes, rollout.Node{Name: "n3", UID: "3"})
			for range rollout.MaxAdmitting {
				s.Ledgers[0].Admitting = append(s.Ledgers[0].Admitting, rollout.Reservation{Rollout: rollout.ParseRef("Skyhook/other"), Node: "n3", Group: rollout.ParseGroupRef("g"), Batch: 1, Since: s.Now})
			}
		}},
		{rollout.ReasonOccupied, func(s *rollout.Snapshot, _ *rollout.Rollout, _ *rollout.Target) {
			addRollout(s, "NodeOp/fix", 1, "n1")
			s.Groups[0].Limit = 2
		}},
	} {
		s := newSnapshot(c.change)
		plan := Decide(s)
		v := plan.Reports[0].Verdicts[0]
		requireReason(t, c.reason, v.Why)
		if v.Why.Reason != c.reason || v.Phase != rollout.PhaseWaiting {
			t.Errorf("%s: the verdict is %+v", c.reason, v)
		}
	}
}

func requireReason(t *testing.T, name rollout.Reason, why rollout.Why) {
	t.Helper()
	known := false
	for _, r := range parseReasons(t) {
		known = known || r == why.Reason
	}
	if !known || why.Text == "" || strings.HasSuffix(why.Text, ".") || len(why.Text) > rollout.MaxText {
		t.Errorf("%s: %q, %q", name, why.Reason, why.Text)
	}
}

func TestTruncate(t *testing.T) {
	if got := rollout.Shorten(strings.Repeat("ä", 300)); len(got) > rollout.MaxText || !utf8.ValidString(got) || !strings.HasSuffix(got, "…") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
	if got := rollout.Shorten("short"); got != "short" {
		t.Error(got)
	}
}
