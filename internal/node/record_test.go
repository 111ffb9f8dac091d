// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"maps"
	"slices"
	"testing"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// newRecord returns the record of a Skyhook with a finished package and one in its apply stage, and their nodeState.
func newRecord() (SkyhookRecord, v1alpha1.NodeState) {
	state := v1alpha1.NodeState{
		"done|1.0.0":    {Name: "done", Version: "1.0.0", Stage: v1alpha1.StageConfig, State: v1alpha1.StateComplete},
		"running|1.0.0": {Name: "running", Version: "1.0.0", Stage: v1alpha1.StageApply, State: v1alpha1.StateInProgress},
	}
	return SkyhookRecord{
		Node: "uid-n1", Skyhook: "uid-demo", State: HashState(FormatState(state)), Visit: Visit{Admission: 3, Admitted: true, Generation: 5}, Offset: 2,
		Held: &Held{At: someTime, WasCordoned: true},
		Packages: map[string]*PackageRecord{
			"done|1.0.0":    {At: "config/complete", Generation: 4},
			"running|1.0.0": {At: "apply/in_progress", Goal: GoalInstall, Generation: 9},
		},
	}, state
}

func TestEffective(t *testing.T) {
	rec, state := newRecord()
	edited := maps.Clone(state)
	entry := edited["running|1.0.0"]
	entry.Stage = v1alpha1.StageConfig
	edited["running|1.0.0"] = entry
	for _, c := range []struct {
		name          string
		node, skyhook string
		state         v1alpha1.NodeState
		admitted      bool
		held          bool
		packages      []string
	}{
		{"same node, Skyhook and nodeState", "uid-n1", "uid-demo", state, true, true, []string{"done|1.0.0", "running|1.0.0"}},
		{"the record of another node", "uid-n2", "uid-demo", state, false, false, nil},
		{"nodeState was removed", "uid-n1", "uid-demo", nil, false, true, nil},
		{"an entry of nodeState was edited", "uid-n1", "uid-demo", edited, true, true, []string{"done|1.0.0"}},
		{"the record of an earlier Skyhook", "uid-n1", "uid-new", state, false, true, []string{"done|1.0.0"}},
	} {
		got := rec.Effective(c.node, c.skyhook, HashState(FormatState(c.state)), c.state)
		if got.Admission != 3 || got.Admitted != c.admitted || (got.Held != nil) != c.held {
			t.Errorf("%s: %+v", c.name, got)
		}
		if keys := slices.Sorted(maps.Keys(got.Packages)); !slices.Equal(keys, c.packages) {
			t.Errorf("%s: the packages %v count, want %v", c.name, keys, c.packages)
		}
	}
	if original, _ := newRecord(); original.String() != rec.String() {
		t.Errorf("Effective changed the record to %s", rec)
	}
}

func TestEffectiveOfAnEarlierSkyhookContinuesItsIDs(t *testing.T) {
	rec, state := newRecord()
	hash := HashState(FormatState(state))
	got := rec.Effective("uid-n1", "uid-new", hash, state)
	if got.Owner != "uid-demo" || got.Offset != 9 || !got.Packages["done|1.0.0"].Kept {
		t.Errorf("owner %s, offset %d, package %+v", got.Owner, got.Offset, got.Packages["done|1.0.0"])
	}
	if got.State != "" {
		t.Error("an incomplete record has the hash of the nodeState")
	}
	delete(rec.Packages, "running|1.0.0")
	rec.Kept, rec.Owner = true, "uid-first"
	got = rec.Effective("uid-n1", "uid-new", hash, state)
	if got.State != hash || got.Owner != "uid-first" || got.Offset != 7 {
		t.Errorf("state %s, owner %s, offset %d of a kept record", got.State, got.Owner, got.Offset)
	}
}

func TestKeepSkyhook(t *testing.T) {
	rec, state := newRecord()
	n := Parse(newNode(map[string]string{
		v1alpha1.PrefixNodeState + "demo": FormatState(state), v1alpha1.PrefixRecord + "demo": rec.String(), cordonDemo: "true",
		v1alpha1.PrefixStatus + "demo": "complete",
	}), nil)
	delete(rec.Packages, "running|1.0.0")
	delete(state, "running|1.0.0")
	text := FormatState(state)
	after := n.With(n.KeepSkyhook("demo", text, SkyhookRecord{Node: "uid-n1", Skyhook: "uid-demo", Kept: true, Packages: rec.Packages}))
	kept := after.Skyhook("demo")
	if !kept.IsKept() || kept.StateText != text || len(kept.Record.Packages) != 1 || !after.IsKnown() {
		t.Errorf("the node has the annotations %v", after.Annotations)
	}
	if holds := after.Holds(nil); len(holds) > 0 {
		t.Errorf("the holds %v are left", holds)
	}
}

// The release of one NodeOp does not uncordon a node that another NodeOp or a Skyhook holds.
func TestReleaseOfANodeOpKeepsOtherHolds(t *testing.T) {
	const first, second = "aaaaaaaa-0000-4000-8000-000000000001", "bbbbbbbb-0000-4000-8000-000000000002"
	owner := rollout.Ref{Kind: KindNodeOp, Namespace: "default", Name: "first"}
	for _, c := range []struct {
		name              string
		skyhook, otherOp  bool
		wantUnschedulable bool
	}{
		{"a second NodeOp", false, true, true},
		{"a Skyhook", true, false, true},
		{"both", true, true, true},
		{"no other hold", false, false, false},
	} {
		raw := newNode(map[string]string{})
		addNodeOpHold(raw, "first", first, false)
		if c.otherOp {
			addNodeOpHold(raw, "second", second, false)
		}
		if c.skyhook {
			raw.Annotations[cordonDemo] = "true"
		}
		n := Parse(raw, nil)
		if got := n.Cordon(n.Holds(nil)).Release(owner); got.Unschedulable != c.wantUnschedulable {
			t.Errorf("%s: after the release the node is unschedulable: %v, want %v", c.name, got.Unschedulable, c.wantUnschedulable)
		}
	}
}
