// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// TestCompletion: what is in flight ends after the usual time, and waiting targets follow in batches of the strategy within the limit.
func TestCompletion(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	minute := func(n int) time.Time { return now.Add(time.Duration(n) * time.Minute) }
	frozen := &rollout.Why{Reason: rollout.ReasonWindow, Text: "closed"}
	for name, c := range map[string]struct {
		inFlight, waiting int
		change            func(s *rollout.Snapshot, r *rollout.Rollout, g *rollout.Group)
		at                time.Time
		takes             time.Duration
	}{
		"window":           {2, 10, func(_ *rollout.Snapshot, _ *rollout.Rollout, g *rollout.Group) { g.Limit = 2 }, minute(16), 5 * 20 * time.Minute},
		"limit of rollout": {2, 10, func(_ *rollout.Snapshot, r *rollout.Rollout, g *rollout.Group) { g.Limit, r.Limit = 4, 2 }, minute(16), 5 * 20 * time.Minute},
		"linear": {1, 9, func(_ *rollout.Snapshot, _ *rollout.Rollout, g *rollout.Group) {
			g.Pace, g.Memory = rollout.Pace{Kind: rollout.PaceLinear, Initial: 1, Delta: 1, PassPercent: 100}, rollout.Memory{Batch: 1, Open: 1, From: 1}
		}, minute(16), 3 * 20 * time.Minute},
		"soak": {1, 4, func(_ *rollout.Snapshot, _ *rollout.Rollout, g *rollout.Group) {
			g.Pace, g.Soak, g.Memory = rollout.Pace{Kind: rollout.PaceFixed, Initial: 2, PassPercent: 100}, 10*time.Minute, rollout.Memory{Batch: 1, Open: 1, From: 1}
		}, minute(16), 2 * 30 * time.Minute},
		"last ones": {2, 0, func(*rollout.Snapshot, *rollout.Rollout, *rollout.Group) {}, minute(16), 0},
		"overdue": {2, 0, func(_ *rollout.Snapshot, r *rollout.Rollout, _ *rollout.Group) {
			r.Targets[0].Visit.AdmittedAt = minute(-30)
		}, minute(16), 0},
		"all overdue": {1, 0, func(_ *rollout.Snapshot, r *rollout.Rollout, _ *rollout.Group) {
			r.Targets[0].Visit.AdmittedAt = minute(-30)
		}, minute(10), 0},
		"stuck": {2, 3, func(_ *rollout.Snapshot, r *rollout.Rollout, _ *rollout.Group) {
			r.Targets[0].Visit.AdmittedAt = minute(-61)
		}, time.Time{}, 0},
		"nothing learnt": {2, 3, func(s *rollout.Snapshot, _ *rollout.Rollout, _ *rollout.Group) { s.Times = rollout.Times{} }, time.Time{}, 0},
		"paused":         {2, 3, func(_ *rollout.Snapshot, r *rollout.Rollout, _ *rollout.Group) { r.Paused = true }, time.Time{}, 0},
		"stopped": {2, 3, func(_ *rollout.Snapshot, _ *rollout.Rollout, g *rollout.Group) {
			g.Pace.Kind, g.Memory = rollout.PaceFixed, rollout.Memory{Stopped: true, From: 1, Batch: 1}
		}, time.Time{}, 0},
		"no budget": {0, 3, func(_ *rollout.Snapshot, _ *rollout.Rollout, g *rollout.Group) { g.Limit = 0 }, time.Time{}, 0},
		"closed": {1, 2, func(_ *rollout.Snapshot, _ *rollout.Rollout, g *rollout.Group) {
			g.Limit, g.Frozen, g.Until = 1, frozen, minute(60)
		}, minute(60), 40 * time.Minute},
		"closed for ever": {1, 2, func(_ *rollout.Snapshot, _ *rollout.Rollout, g *rollout.Group) { g.Frozen = frozen }, time.Time{}, 0},
		"blocked are left": {1, 2, func(_ *rollout.Snapshot, r *rollout.Rollout, g *rollout.Group) {
			g.Limit, r.Targets[1].Blocked = 1, &rollout.Why{Reason: rollout.ReasonIgnored}
		}, minute(16), 20 * time.Minute},
		"finished": {0, 0, func(*rollout.Snapshot, *rollout.Rollout, *rollout.Group) {}, time.Time{}, 0},
		"one stays blocked": {0, 1, func(_ *rollout.Snapshot, r *rollout.Rollout, _ *rollout.Group) {
			r.Targets[0].Blocked = &rollout.Why{Reason: rollout.ReasonIgnored}
		}, time.Time{}, 0},
	} {
		ref := rollout.ParseRef("Skyhook/demo")
		group := rollout.ParseGroupRef("Skyhook/demo")
		s := rollout.Snapshot{Now: now, Groups: []rollout.Group{{Ref: group, Ledger: ref, Limit: rollout.Unlimited, Pace: rollout.Pace{Kind: rollout.PaceWindow}}}, Rollouts: []rollout.Rollout{{Ref: ref}}}
		r := &s.Rollouts[0]
		for i := range c.inFlight + c.waiting {
			target := &rollout.Target{Node: fmt.Sprint("n", i), Group: group, Tasks: []rollout.Task{{ID: "a", State: rollout.StatePending, Recorded: rollout.StatePending}}}
			if i < c.inFlight {
				target.Visit.Admitted, target.Visit.AdmittedAt, target.Visit.Batch = true, minute(-4), 1
				target.Tasks[0] = rollout.Task{ID: "a", State: rollout.StateRunning, Recorded: rollout.StateRunning, Object: rollout.TaskObject{Name: "pod"}}
			}
			s.Nodes = append(s.Nodes, rollout.Node{Name: target.Node, Ready: true})
			r.Targets = append(r.Targets, target)
		}
		s.Times = rollout.NewTimes([]rollout.Rollout{{Ref: ref, Targets: []*rollout.Target{{Tasks: make([]rollout.Task, 1), Visit: rollout.Visit{Runs: []rollout.Runs{{Stages: []rollout.StageTime{{Stage: "a", Seconds: 20 * 60}}}}}}}}})
		s.Ledgers = []rollout.Ledger{{Owner: ref, Epoch: 1}}
		c.change(&s, r, &s.Groups[0])
		if c.inFlight > 0 && s.Groups[0].Limit == rollout.Unlimited && s.Groups[0].Pace.Kind == rollout.PaceWindow && c.waiting > 0 {
			s.Groups[0].Limit = c.inFlight
		}
		if got := Decide(s).Reports[0].Completion; !got.At.Equal(c.at) || got.Waiting != c.takes {
			t.Errorf("%s: %s and %s, want %s and %s", name, got.At, got.Waiting, c.at, c.takes)
		}
	}
}

// TestExpectedHold: a node is cordoned for as long as its stages usually take; without recorded stages nobody knows.
func TestExpectedHold(t *testing.T) {
	ref, group := rollout.ParseRef("Skyhook/demo"), rollout.ParseGroupRef("Skyhook/demo")
	target := &rollout.Target{Node: "n0", Group: group, Tasks: []rollout.Task{{ID: "a", Need: rollout.NeedDrained, State: rollout.StatePending, Recorded: rollout.StatePending}}}
	target.Visit.Admitted, target.Visit.Admission = true, 1
	s := rollout.Snapshot{
		Now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC), Nodes: []rollout.Node{{Name: "n0", Ready: true}}, Ledgers: []rollout.Ledger{{Owner: ref, Epoch: 1}},
		Groups: []rollout.Group{{Ref: group, Ledger: ref, Limit: 1, Pace: rollout.Pace{Kind: rollout.PaceWindow}}}, Rollouts: []rollout.Rollout{{Ref: ref, Targets: []*rollout.Target{target}}},
	}
	for _, want := range []time.Duration{0, 20 * time.Minute} {
		if a := Decide(s).Actions; len(a) != 1 || a[0].Verb != rollout.VerbHold || a[0].Expected != want {
			t.Errorf("the plan is %+v, want a hold of %s", a, want)
		}
		s.Times = rollout.NewTimes([]rollout.Rollout{{Ref: ref, Targets: []*rollout.Target{{Tasks: target.Tasks, Visit: rollout.Visit{Runs: []rollout.Runs{{Stages: []rollout.StageTime{{Stage: "a", Seconds: 20 * 60}}}}}}}}})
	}
}
