// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"encoding/json"
	"math/rand"
	"reflect"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/rollout/engine"
)

// TestInvalidInput decides on invalid snapshots: names that are listed twice or unknown, states that contradict each
// other, times out of order. Decide must not panic, and every target must have a verdict.
func TestInvalidInput(t *testing.T) {
	for seed := range int64(20000) {
		s := newInvalidSnapshot(rand.New(rand.NewSource(seed)))
		plan := engine.Decide(s)
		for i, r := range plan.Reports {
			if len(r.Verdicts) != len(s.Rollouts[i].Targets) || r.Rollout != s.Rollouts[i].Ref {
				t.Fatalf("seed %d: report %d is for %s and has %d verdicts", seed, i, r.Rollout, len(r.Verdicts))
			}
			for j, v := range r.Verdicts {
				if v.Why.Reason == "" || v.Why.Text == "" || v.Phase == "" || v.Node != s.Rollouts[i].Targets[j].Node {
					t.Fatalf("seed %d: incomplete verdict: %+v", seed, v)
				}
			}
		}
	}
}

// TestSnapshotRoundTrip checks that a saved snapshot leads to the same plan.
func TestSnapshotRoundTrip(t *testing.T) {
	for seed := range int64(200) {
		s := newInvalidSnapshot(rand.New(rand.NewSource(seed)))
		data, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var back rollout.Snapshot
		if err := json.Unmarshal(data, &back); err != nil {
			t.Fatal(err)
		}
		if one, two := engine.Decide(s), engine.Decide(back); !reflect.DeepEqual(one, two) {
			t.Fatalf("seed %d:\n%+v\n%+v", seed, one, two)
		}
	}
}

func newInvalidSnapshot(r *rand.Rand) rollout.Snapshot {
	base := time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC)
	name := func() string { return []string{"", "a", "b", "c", "Skyhook/a", "x|1/apply"}[r.Intn(6)] }
	yes := func() bool { return r.Intn(3) == 0 }
	at := func() time.Time {
		if yes() {
			return time.Time{}
		}
		return base.Add(time.Duration(r.Intn(7200)-3600) * time.Second)
	}
	why := func() *rollout.Why {
		if yes() {
			return &rollout.Why{Reason: rollout.Reason([]string{"", "StateUnreadable", "ImagePull"}[r.Intn(3)])}
		}
		return nil
	}
	state := func() rollout.State {
		return []rollout.State{"", "odd", rollout.StatePending, rollout.StateRunning, rollout.StateFailing, rollout.StateSucceeded, rollout.StateDone}[r.Intn(7)]
	}
	s := rollout.Snapshot{Now: at()}
	for range r.Intn(4) {
		n := rollout.Node{Name: name(), UID: name(), Created: at(), Ready: r.Intn(4) > 0, Cordoned: yes(), Tainted: yes(), Known: yes(), Self: yes()}
		for range r.Intn(2) {
			n.Holds = append(n.Holds, rollout.Hold{Owner: rollout.ParseRef(name()), Orphan: yes()})
		}
		s.Nodes = append(s.Nodes, n)
	}
	for range r.Intn(3) {
		s.Groups = append(s.Groups, rollout.Group{Ref: rollout.ParseGroupRef(name()), Ledger: rollout.ParseRef(name()), Limit: r.Intn(4) - 2, Taken: []string{name()}, Frozen: why(), Failed: why(), Until: at(),
			Pace: rollout.Pace{Kind: rollout.PaceKind([]string{"", "window", "fixed", "linear", "exponential", "whole"}[r.Intn(6)]),
				Initial: r.Intn(4) - 1, Delta: r.Intn(4) - 1, Factor: r.Intn(4) - 1, StopAfter: r.Intn(3) - 1, SafetyLimit: r.Intn(200)},
			Memory: rollout.Memory{Batch: r.Intn(3) - 1, Open: r.Intn(4) - 1, From: int64(r.Intn(4) - 1), LastSize: r.Intn(4) - 1, LastFailed: yes(), Stopped: yes()},
			Soak:   time.Duration(r.Intn(3)) * time.Second, Spread: rollout.Spread{Limit: r.Intn(3) - 1}, Reset: yes()})
		s.Ledgers = append(s.Ledgers, rollout.Ledger{Owner: rollout.ParseRef(name()), Epoch: int64(r.Intn(3)), Admitting: []rollout.Reservation{{Rollout: rollout.ParseRef(name()), Node: name(), Group: rollout.ParseGroupRef(name()), Since: at()}}})
	}
	for range r.Intn(4) {
		q := rollout.Rollout{Ref: rollout.ParseRef(name()), Sequence: name(), Priority: r.Intn(3), Barrier: yes(), Paused: yes(), Yields: yes(), Deleting: yes(), Broken: why(), Serial: yes(),
			Taint: rollout.Taint{Required: yes(), NewNodes: yes()}, Once: yes(), KeepHeld: yes(), Numbering: rollout.Numbering{Next: r.Intn(3) - 1},
			Drain: rollout.Drain{Timeout: time.Duration(r.Intn(3)) * time.Second, OnTimeout: rollout.DrainTimeout([]string{"", "Wait", "Skip", "Force"}[r.Intn(4)])}}
		for range r.Intn(4) {
			g := rollout.Target{Node: name(), UID: name(), Group: rollout.ParseGroupRef(name()), Place: name(), Visit: rollout.Visit{Admitted: yes(), Admission: r.Intn(3), Batch: int64(r.Intn(3)), AdmittedAt: at(), FinishedAt: at(), Skipped: yes()},
				Drain: rollout.DrainProgress{HeldAt: at(), PodsSeen: yes()}, Blocked: why(), Leaving: yes(), Gone: yes()}
			if yes() {
				g.Proof = &rollout.Proof{Missing: why(), Since: at(), Observed: at(), Timeout: time.Duration(r.Intn(3)-1) * time.Second, Release: yes()}
			}
			for range r.Intn(3) {
				g.Drain.Pods = append(g.Drain.Pods, rollout.Pod{Name: name(), Wait: yes(), Leaving: yes(), Refused: name(), RetryAt: at(), Keep: name()})
			}
			for range r.Intn(5) {
				g.Tasks = append(g.Tasks, rollout.Task{ID: name(), Label: name(), After: []string{name()}[:r.Intn(2)], Need: rollout.Need(r.Intn(4) - 1), Strength: r.Intn(3),
					State: state(), Recorded: state(), Object: rollout.TaskObject{Name: name(), Stale: yes(), Dead: yes(), Leaving: yes()}, Lost: yes(), Why: why(), Attempts: rollout.Attempts{Failed: r.Intn(6) - 1, Noted: r.Intn(3), FailedAt: at(), Started: at()},
					Retries: r.Intn(4) - 1, Bounded: yes(), Limit: time.Duration(r.Intn(3)) * time.Minute, CoveredBy: name(), BootID: name()})
			}
			q.Targets = append(q.Targets, &g)
		}
		s.Rollouts = append(s.Rollouts, q)
	}
	return s
}
