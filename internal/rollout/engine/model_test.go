// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"flag"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/sim"
)

var runs = flag.Int("runs", 10000, "how many random rollouts to compare with the model")

// modelBatches implements the documentation of batches in the simplest way: without ledgers, memory and passes. It
// returns the nodes of each batch in the format of runBatches.
func modelBatches(nodes []string, limit int, pace rollout.Pace, failing []string, held bool) string {
	var out strings.Builder
	waiting := slices.Clone(nodes)
	ended, stuck := 0, 0 // stuck: failed and still using a slot
	last, lastFailed, inARow := 0, false, 0
	for len(waiting) > 0 {
		free := len(nodes)
		if limit != rollout.Unlimited {
			free = limit - stuck
		}
		if free <= 0 {
			break
		}
		slow := lastFailed && 100*ended/len(nodes) < pace.SafetyLimit
		want := pace.Initial
		if last > 0 {
			switch pace.Kind {
			case rollout.PaceLinear:
				want = last + pace.Delta
				if slow {
					want = last - pace.Delta
				}
			case rollout.PaceExponential:
				want = last * pace.Factor
				if slow {
					want = last / pace.Factor
				}
			}
		}
		if pace.Kind == rollout.PaceWhole {
			want = len(nodes)
		}
		size := min(max(1, want), free, len(waiting))
		batch := waiting[:size]
		waiting = waiting[size:]
		fmt.Fprintf(&out, "%d: %s\n", size, strings.Join(batch, " "))

		lost := 0
		for _, n := range batch {
			if slices.Contains(failing, n) {
				lost++
			}
		}
		if held {
			stuck += lost
		}
		ended += size
		last, lastFailed = size, 100*(size-lost)/size < pace.PassPercent
		inARow++
		if !lastFailed {
			inARow = 0
		}
		if lastFailed && pace.StopAfter > 0 && inARow >= pace.StopAfter && 100*ended/len(nodes) < pace.SafetyLimit {
			break
		}
	}
	return out.String()
}

// TestBatchesEqualModel compares the engine with the model, in random groups with random failures.
func TestBatchesEqualModel(t *testing.T) {
	for seed := range *runs {
		r := rand.New(rand.NewSource(int64(seed)))
		held := r.Intn(2) == 0
		pace := rollout.Pace{
			Kind:    []rollout.PaceKind{rollout.PaceFixed, rollout.PaceLinear, rollout.PaceExponential, rollout.PaceWhole}[r.Intn(4)],
			Initial: 1 + r.Intn(4), Delta: 1 + r.Intn(3), Factor: 2 + r.Intn(2),
			PassPercent: 1 + r.Intn(100), SafetyLimit: 1 + r.Intn(100), StopAfter: r.Intn(4),
		}
		limit := rollout.Unlimited
		if r.Intn(3) > 0 {
			limit = 1 + r.Intn(6)
		}
		var names, failing []string
		for i := range 1 + r.Intn(14) {
			names = append(names, fmt.Sprintf("n%02d", i))
			if r.Intn(100) < 25 {
				failing = append(failing, names[i])
			}
		}
		compareWithModel(t, names, limit, pace, failing, held)
	}
}

// TestBatchesEqualModelForEachFailure compares them for each strategy and each set of failing nodes.
func TestBatchesEqualModelForEachFailure(t *testing.T) {
	names := []string{"n0", "n1", "n2", "n3", "n4", "n5", "n6"}
	for _, pace := range []rollout.Pace{
		{Kind: rollout.PaceFixed, Initial: 2, PassPercent: 100, SafetyLimit: 50, StopAfter: 1},
		{Kind: rollout.PaceLinear, Initial: 1, Delta: 1, PassPercent: 60, SafetyLimit: 50, StopAfter: 2},
		{Kind: rollout.PaceExponential, Initial: 1, Factor: 2, PassPercent: 100, SafetyLimit: 80},
		{Kind: rollout.PaceWhole, PassPercent: 100, SafetyLimit: 50},
	} {
		for set := range 1 << len(names) {
			var failing []string
			for i, name := range names {
				if set&(1<<i) != 0 {
					failing = append(failing, name)
				}
			}
			compareWithModel(t, names, rollout.Unlimited, pace, failing, false)
			compareWithModel(t, names, 2, pace, failing, set%2 == 0)
		}
	}
}

// compareWithModel runs a rollout of one task and compares its batches with those of the model. With held, a node that
// failed for good keeps its slot.
func compareWithModel(t *testing.T, names []string, limit int, pace rollout.Pace, failing []string, held bool) {
	t.Helper()
	s := rollout.Snapshot{Now: time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC)}
	s.Groups = []rollout.Group{{Ref: rollout.ParseGroupRef("g"), Ledger: rollout.ParseRef("g"), Limit: limit, Pace: pace}}
	target := rollout.Rollout{Ref: rollout.ParseRef("Skyhook/demo"), Sequence: "Skyhook", Numbering: rollout.Numbering{Stored: true}}
	for i, name := range names {
		s.Nodes = append(s.Nodes, rollout.Node{Name: name, UID: name, Ready: true, Created: s.Now.Add(time.Duration(i) * time.Second)})
		k := rollout.Task{ID: "a/apply", Label: "a apply", State: rollout.StatePending, Recorded: rollout.StatePending, Retries: 3, Bounded: true}
		if held {
			k.Need = rollout.NeedDrained
		}
		target.Targets = append(target.Targets, &rollout.Target{Node: name, UID: name, Group: rollout.ParseGroupRef("g"), Tasks: []rollout.Task{k}})
	}
	s.Rollouts = []rollout.Rollout{target}
	got, want := runBatches(sim.New(s), rollout.ParseRef("Skyhook/demo"), failing), modelBatches(names, limit, pace, failing, held)
	if got != want {
		t.Fatalf("%+v, limit %d, %d nodes, failing %v, held %v\n got\n%swant\n%s", pace, limit, len(names), failing, held, got, want)
	}
}
