// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/rollout/engine"
	"github.com/skyhook-k8s/skyhook/internal/rollout/timing"
	"github.com/skyhook-k8s/skyhook/internal/sim"
)

// TestLookIsBounded has a protected pod on each of 300 nodes but the last. How many nodes are listed is bounded in each pass, and
// the last one is found nevertheless.
func TestLookIsBounded(t *testing.T) {
	const nodes = 300
	ref := rollout.Ref{Kind: "Skyhook", Name: "demo"}
	group := rollout.GroupRef{Owner: ref, Compartment: "__default__"}
	s := rollout.Snapshot{
		Now:    time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC),
		Groups: []rollout.Group{{Ref: group, Ledger: ref, Limit: 2, Pace: rollout.Pace{Kind: rollout.PaceWindow}}},
		Rollouts: []rollout.Rollout{{
			Ref: ref, UID: "demo", Drain: rollout.Drain{WaitFirst: true},
		}},
	}
	for i := range nodes {
		name := fmt.Sprintf("n%03d", i)
		s.Nodes = append(s.Nodes, rollout.Node{Name: name, UID: name, Ready: true, Known: true})
		target := rollout.Target{Node: name, UID: name, Group: group, Tasks: []rollout.Task{{ID: "apply", Need: rollout.NeedDrained, State: rollout.StatePending, Recorded: rollout.StatePending}}}
		if i < nodes-1 {
			target.Drain.Pods = []rollout.Pod{{Namespace: "jobs", Name: name, UID: name, Wait: true}}
		}
		s.Rollouts[0].Targets = append(s.Rollouts[0].Targets, &target)
	}
	c, d := sim.New(s), timing.NewDurations()
	seen, most := map[string]bool{}, 0
	for pass := 0; pass < 200; pass++ {
		v := c.View()
		d.Measure(&v.Snapshot)
		plan := engine.Decide(v.Snapshot)
		for _, node := range plan.Look {
			seen[node] = true
		}
		most = max(most, len(plan.Look))
		for _, a := range plan.Actions {
			if a.Node != "n299" {
				t.Fatalf("%s of %s, which has a protected pod", a.Verb, a.Node)
			}
			if a.Verb == rollout.VerbHold {
				if most > 204 || len(seen) != nodes {
					t.Errorf("at most %d nodes were listed in one pass, and %d at all; want at most 204 and %d", most, len(seen), nodes)
				}
				checkLookAgain(t, c, d)
				return
			}
		}
		if err := c.Apply(v, plan); err != nil {
			t.Fatal(err)
		}
	}
	t.Errorf("the node without a protected pod was not found; %d nodes were listed", len(seen))
}

// checkLookAgain checks that nodes beyond those that stay listed are listed again after a while, and not sooner.
func checkLookAgain(t *testing.T, c *sim.Cluster, d *timing.Durations) {
	t.Helper()
	c.RemovePod("n250", "n250")
	decide := func() rollout.Plan {
		v := c.View()
		d.Measure(&v.Snapshot)
		plan := engine.Decide(v.Snapshot)
		if err := c.Apply(v, plan); err != nil {
			t.Fatal(err)
		}
		return plan
	}
	first := decide()
	if len(first.Look) > 204 || first.Next.IsZero() {
		t.Errorf("%d nodes are listed, and the next pass is at %s", len(first.Look), first.Next)
	}
	advanceClock(c, first.Next.Sub(c.State.Now))
	for range 200 {
		for _, a := range decide().Actions {
			if a.Node == "n250" && a.Verb == rollout.VerbAdmit {
				return
			}
		}
		advanceClock(c, time.Second)
	}
	t.Error("the node on which the protected pod ended was not found")
}
