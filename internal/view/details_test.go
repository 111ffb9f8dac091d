// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"testing"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// TestPackageIsCompleteWhereItIs: no open task is not complete: a node that went back has other packages, or the same version
// with another definition.
func TestPackageIsCompleteWhereItIs(t *testing.T) {
	wanted := v1alpha1.Package{Version: "2.0.0", Image: "registry.example/driver"}
	removed := v1alpha1.Package{Version: "2.0.0", Uninstall: &v1alpha1.Uninstall{Enabled: true, Apply: true}}
	hash := plan.NewDefinition("driver", wanted).Hash
	back := rollout.Target{Rollback: rollout.Rollback{Cause: &rollout.Why{Reason: rollout.ReasonRolledBack}}}
	has := func(version string, state v1alpha1.State, hash string) *node.SkyhookState {
		key := "driver|" + version
		return &node.SkyhookState{
			State:  v1alpha1.NodeState{key: {Name: "driver", Version: version, State: state}},
			Record: node.SkyhookRecord{Packages: map[string]*node.PackageRecord{key: {Hash: hash}}},
		}
	}
	for name, c := range map[string]struct {
		target rollout.Target
		on     *node.SkyhookState
		spec   v1alpha1.Package
		want   Package
	}{
		"complete":                        {rollout.Target{}, has("2.0.0", v1alpha1.StateComplete, hash), wanted, Package{Complete: 1}},
		"complete, edited since":          {rollout.Target{}, has("2.0.0", v1alpha1.StateComplete, "other"), wanted, Package{Complete: 1}},
		"went back to another version":    {back, has("1.0.0", v1alpha1.StateComplete, "other"), wanted, Package{Failed: 1}},
		"went back to another definition": {back, has("2.0.0", v1alpha1.StateComplete, "other"), wanted, Package{Failed: 1}},
		"went back with others":           {back, has("2.0.0", v1alpha1.StateComplete, hash), wanted, Package{Complete: 1}},
		"nothing is known":                {rollout.Target{}, &node.SkyhookState{}, wanted, Package{Waiting: 1}},
		"uninstalled as asked":            {rollout.Target{}, &node.SkyhookState{}, removed, Package{Complete: 1}},
	} {
		got := Package{Name: "driver"}
		if countPackage(&got, &c.target, c.on, c.spec); got.Complete != c.want.Complete || got.Failed != c.want.Failed || got.Waiting != c.want.Waiting {
			t.Errorf("%s: counted %+v, want %+v", name, got, c.want)
		}
	}
}

// Of 60 packages each depends on all before it, and two on each other, as they may in a dump.
func TestColumnsOfManyDependencies(t *testing.T) {
	packages := map[string]v1alpha1.Package{"missing": {DependsOn: map[string]v1alpha1.PackageVersion{"nosuch": "1.0.0"}}}
	for n := range 60 {
		after := map[string]v1alpha1.PackageVersion{}
		for m := range n {
			after[fmt.Sprintf("p%02d", m)] = "1.0.0"
		}
		packages[fmt.Sprintf("p%02d", n)] = v1alpha1.Package{DependsOn: after}
	}
	packages["p00"] = v1alpha1.Package{DependsOn: map[string]v1alpha1.PackageVersion{"p01": "1.0.0"}}
	columns := columnsOf(packages)
	if columns["missing"] != 1 || columns["p01"] != 0 || columns["p00"] != 1 || columns["p02"] != 2 || columns["p59"] != 59 {
		t.Errorf("columns %v", columns)
	}
}
