// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// TestPutOffProgress: that a compact pod has gone on is recorded with what else changes on the node, or some seconds later by itself.
func TestPutOffProgress(t *testing.T) {
	began := time.Unix(1000, 0)
	now := began
	a := &applier{inFlight: newInFlight(1), apiWriter: apiWriter{options: &Options{Clock: func() time.Time { return now }}}}
	progress := func(task string) *nodeWork {
		return &nodeWork{node: "n1", adopted: []node.NamedEdit{{Done: []rollout.Action{{Verb: rollout.VerbRun, Task: task}}}}}
	}
	isPutOff := func(after time.Duration, w *nodeWork) bool {
		now = began.Add(after)
		p := a.newPass(&Compiled{Objects: &Objects{Lists: Lists{Nodes: []*node.Node{{Name: "n1"}}, places: map[string]int{"n1": 0}}}})
		out := (&workCollector{pass: p}).putOffProgress(w)
		a.unrecorded = p.putOff
		return out
	}
	const config, interrupt = "tuning|1.0.0/config", "tuning|1.0.0/interrupt"
	withAction, twoRecords, twoPods := progress(config), progress(config), progress(config)
	twoPods.adopted = append(twoPods.adopted, twoPods.adopted...)
	withAction.actions = []rollout.Action{{Verb: rollout.VerbRecord}}
	twoRecords.adopted = append(twoRecords.adopted, node.NamedEdit{})
	beside := &nodeWork{node: "n1", actions: []rollout.Action{{Verb: rollout.VerbRecord, CanWait: true}, {Verb: rollout.VerbSweep, CanWait: true}}}
	last := &nodeWork{node: "n1", actions: append([]rollout.Action{{Verb: rollout.VerbRetire}}, beside.actions...)}
	onlyRecord := &nodeWork{node: "n1", adopted: []node.NamedEdit{{}}}
	for _, step := range []struct {
		what  string
		after time.Duration
		work  *nodeWork
		want  bool
	}{
		{"a stage began", 0, progress(config), true},
		{"so did the next one", MaxUnrecorded - time.Second, progress(config), true},
		{"and one of another pod", MaxUnrecorded - time.Second, twoPods, true},
		{"the first of them began long ago", MaxUnrecorded, progress(config), false},
		{"another one begins after these were recorded", MaxUnrecorded + time.Second, progress(config), true},
		{"something is done on the node", MaxUnrecorded + time.Second, withAction, false},
		{"that was recorded with it", 2*MaxUnrecorded + time.Second, progress(config), true},
		{"an interrupt began", 2*MaxUnrecorded + time.Second, progress(interrupt), false},
		{"another rollout records something", 2*MaxUnrecorded + time.Second, twoRecords, false},
		{"something else is recorded", 2*MaxUnrecorded + time.Second, onlyRecord, false},
		{"a pod ended beside another one", 3 * MaxUnrecorded, beside, true},
		{"the other one ended", 3*MaxUnrecorded + time.Second, last, false},
	} {
		if got := isPutOff(step.after, step.work); got != step.want {
			t.Errorf("%s: put off: %v, want %v", step.what, got, step.want)
		}
		if _, err := a.inFlight.takeOutcome(); err != nil {
			t.Error(err)
		}
	}
	isPutOff(0, progress(config))
	if out, _ := a.inFlight.takeOutcome(); !out.RetryAt.Equal(began.Add(MaxUnrecorded)) {
		t.Errorf("the next pass is asked for at %s, want %s", out.RetryAt, began.Add(MaxUnrecorded))
	}
}
