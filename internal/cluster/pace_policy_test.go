// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestSoak shows that a finished node keeps its slot in the budget until it has soaked.
func TestSoak(t *testing.T) {
	s := newScenario(t, 2)
	s.Apply(policyYAML("  soak: 10m\n"))
	s.Apply(withPolicy(demo))
	const soaks = "all work is done; it counts when the node has been ready for 10m0s"
	for range 30 {
		if s.passes(1); strings.HasPrefix(s.verdict("demo", "n1"), "Soak: ") {
			break
		}
	}
	if got := s.verdict("demo", "n1"); got != "Soak: "+soaks {
		t.Errorf("the verdict on n1 is %q", got)
	}
	if got := s.verdict("demo", "n2"); got != "Budget: the budget of 1 node is used: n1; n1: "+soaks {
		t.Errorf("the verdict on n2 is %q", got)
	}
	s.now = s.now.Add(9 * time.Minute)
	s.passes(5)
	if got := s.verdict("demo", "n2"); !strings.HasPrefix(got, "Budget: ") {
		t.Errorf("after nine minutes the verdict on n2 is %q", got)
	}
	s.now = s.now.Add(time.Minute)
	s.passUntilComplete("demo")
}

// TestTopology shows that nodes of one zone run one after the other while another zone goes on, and that nodes without a
// zone are not limited.
func TestTopology(t *testing.T) {
	const zone = "topology.kubernetes.io/zone"
	s := newScenario(t, 4)
	for node, in := range map[string]string{"n1": "a", "n2": "a", "n3": "b"} {
		n := s.GetNode(node)
		old := n.DeepCopy()
		n.Labels[zone] = in
		s.Must(s.Client.Patch(t.Context(), n, client.MergeFrom(old)))
	}
	s.Apply(strings.Replace(policyYAML("  maxUnavailablePerTopology: {topologyKey: "+zone+"}\n"), "budget: {count: 1}, strategy: {fixed: {}}", "budget: {count: 4}, strategy: {fixed: {initialBatch: 4}}", 1))
	s.Apply(withPolicy(demo))
	began := func(node string) bool {
		s.Helper()
		for _, e := range s.GetNode(node).Annotations {
			if strings.Contains(e, `"admission":1`) {
				return true
			}
		}
		return false
	}
	for range 10 {
		if s.pass(); began("n1") {
			break
		}
	}
	if !began("n1") || began("n2") || !began("n3") || !began("n4") {
		t.Errorf("n1 began: %v, n2: %v, n3: %v, n4: %v", began("n1"), began("n2"), began("n3"), began("n4"))
	}
	if got := s.verdict("demo", "n2"); got != "Topology: 1 node is busy in "+zone+" a" {
		t.Errorf("the verdict on n2 is %q", got)
	}
	s.passUntilComplete("demo")
}
