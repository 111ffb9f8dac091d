// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"reflect"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// TestBudgets checks that percentages are rounded down, to at least one node, and that a budget of 0 admits nothing.
func TestBudgets(t *testing.T) {
	share, n := func(i int32) *int32 { return &i }, func(i int64) *int64 { return &i }
	for _, c := range []struct {
		percent *int32
		count   *int64
		nodes   int
		window  bool
		want    int
	}{
		{share(25), nil, 10, false, 2}, {share(30), nil, 10, false, 3}, {share(10), nil, 5, false, 1}, {share(33), nil, 6, false, 1}, {share(1), nil, 100, false, 1},
		{share(50), nil, 0, false, 0}, {nil, n(7), 3, false, 7},
		{share(0), nil, 10, true, 0}, {nil, n(0), 10, true, 0}, {nil, nil, 10, true, rollout.Unlimited}, {share(33), nil, 3, true, 1}, {share(50), nil, 0, true, 1},
	} {
		r := compartment{budget: v1alpha1.Budget{Percent: c.percent, Count: c.count}, isWindow: c.window}
		if got := r.budgetLimit(c.nodes); got != c.want {
			t.Errorf("%v%% or %v of %d nodes is %d, want %d", c.percent, c.count, c.nodes, got, c.want)
		}
	}
}

// TestLedger checks that admissions and batches in a status are converted without loss.
func TestLedger(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	l := rollout.Ledger{Owner: rollout.ParseRef("Skyhook/demo"), Epoch: 4, Admitting: []rollout.Reservation{
		{Rollout: rollout.ParseRef("Skyhook/demo"), Node: "n1", Group: rollout.ParseGroupRef("Skyhook/demo/__default__"), Batch: 4, Since: now},
		{Rollout: rollout.ParseRef("Skyhook/other"), Node: "n2", Group: rollout.ParseGroupRef("Skyhook/demo/racks"), Order: 7, Batch: 3, Since: now},
	}}
	back := NewGrouping(&Input{Rollout: rollout.ParseRef("Skyhook/demo"), Memory: v1alpha1.Memory{Admission: ToAdmission(l)}}).Ledger()
	if !reflect.DeepEqual(back, l) {
		t.Errorf("%+v is converted to %+v", l, back)
	}
	m := rollout.Memory{
		Batch: 3, ConsecutiveFailures: 1, Completed: 5, Failed: 2, LastSize: 4, LastFailed: true, Stopped: true, StoppedBy: "gate", Open: 6, From: 9, Gone: 1,
		For: "abc", Resumed: "now",
	}
	owner := rollout.ParseRef("Skyhook/demo")
	all, batches := ToCompartmentStatuses(owner, []rollout.GroupReport{{Group: rollout.ParseGroupRef("Skyhook/demo/racks"), Memory: m}})
	if back := ReadMemory(all, v1alpha1.Memory{Batches: batches}, "racks"); back != m {
		t.Errorf("%+v is converted to %+v", m, back)
	}
	for _, m := range []rollout.Memory{{}, {ConsecutiveFailures: 2}} {
		if got, want := *toBatchState(m), (v1alpha1.BatchState{CurrentBatch: 1, ConsecutiveFailures: int32(m.ConsecutiveFailures)}); got != want {
			t.Errorf("%+v is stored as %+v, want %+v", m, got, want)
		}
	}
}
