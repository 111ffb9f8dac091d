// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"fmt"
	"slices"
	"testing"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/report"
)

// TestTalliesAreBounded checks that a node that names thousands of packages does not make a series of each.
func TestTalliesAreBounded(t *testing.T) {
	w := newTestCluster(t)
	s := w.apply("{metadata: {name: demo}, spec: {packages: {tuning: {version: 1.0.0, image: example.org/p}}}}")
	state := v1alpha1.NodeState{}
	for i := range 1000 {
		name := fmt.Sprintf("p%04d", i)
		state[name+"|1.0.0"] = v1alpha1.PackageStatus{Name: name, Version: "1.0.0", Stage: v1alpha1.StageApply, State: v1alpha1.StateComplete}
	}
	w.addNode("n1").Annotations["skyhook.nvidia.com/nodeState_demo"] = node.FormatState(state)
	first := w.compile(s).Tallies()
	if len(first) != report.MaxTallies+1 {
		t.Errorf("there are %d tallies", len(first))
	}
	counted := 0
	for _, tally := range first {
		counted += tally.States[v1alpha1.StateComplete]
	}
	if counted != len(state) {
		t.Errorf("%d of %d packages are counted", counted, len(state))
	}
	name := func(t report.Tally) string { return t.Name }
	for range 5 {
		if again := w.compile(s).Tallies(); !slices.EqualFunc(first, again, func(a, b report.Tally) bool { return name(a) == name(b) }) {
			t.Fatal("the names differ from time to time")
		}
	}
	if !slices.ContainsFunc(first, func(t report.Tally) bool { return t.Name == "tuning" }) {
		t.Error("the package of the spec is not told apart")
	}
}
