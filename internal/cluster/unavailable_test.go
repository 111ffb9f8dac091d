// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"strings"
	"testing"
	"time"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
)

// setUnschedulable cordons or uncordons a node as somebody else.
func (s *scenario) setUnschedulable(node string, yes bool) {
	s.Helper()
	n := s.GetNode(node)
	n.Spec.Unschedulable = yes
	s.Must(s.Client.Update(context.Background(), n))
}

// TestBudgetCountsUnavailable shows that a node which somebody else cordoned counts against a budget that counts it, whoever has the
// budget, and against no other.
func TestBudgetCountsUnavailable(t *testing.T) {
	for name, c := range map[string]struct{ policy, budget string }{
		"of the Skyhook":   {"", "interruptionBudget: {count: 1, countUnavailable: true}"},
		"of its policy":    {strings.Replace(policyYAML(""), "count: 1", "count: 1, countUnavailable: true", 1), "deploymentPolicy: careful"},
		"that counts none": {"", "interruptionBudget: {count: 1}"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScenario(t, 3)
			if c.policy != "" {
				s.Apply(c.policy)
			}
			s.setUnschedulable("n3", true)
			s.Apply(strings.Replace(demo, "  packages:", "  "+c.budget+"\n  packages:", 1))
			s.passes(6)
			if name == "that counts none" {
				s.passUntilComplete("demo")
				return
			}
			pods := strings.Join(s.podNodes(), " ")
			const want = "Budget: the budget of 1 node is used: n3; not ready, or cordoned by somebody else: n3"
			if got := s.verdict("demo", "n1"); pods != "" || got != want {
				t.Errorf("pods run on %q, and n1 waits for %q, want %q", pods, got, want)
			}
			s.setUnschedulable("n3", false)
			s.passUntilComplete("demo")
		})
	}
}

// TestConcurrencyCountsUnavailable shows that nodes which a NodeOp left cordoned after a failure count against its concurrency if it
// counts unavailable nodes, and not otherwise.
func TestConcurrencyCountsUnavailable(t *testing.T) {
	t.Run("without", func(t *testing.T) {
		s := newScenario(t, 2)
		if started := s.failFirst("false"); started != 2 {
			t.Errorf("%d Jobs were made after a failure, want 2", started)
		}
	})
	t.Run("with", func(t *testing.T) {
		s := newScenario(t, 2)
		if started := s.failFirst("true"); started != 1 {
			t.Errorf("%d Jobs were made while a failed node is cordoned, want 1", started)
		}
		for _, n := range []string{"n1", "n2"} {
			s.setUnschedulable(n, false)
		}
		s.nodeOpPasses(6, time.Second)
		if done := s.finishNodeOp("up", true); done.Status.Phase != opv1.PhaseFailed || done.Status.Completed != 1 {
			t.Errorf("it ended as %+v", done.Status)
		}
	})
}

// failFirst lets a NodeOp fail on its first node, and returns how many Jobs there are a few passes later.
func (s *scenario) failFirst(countUnavailable string) int {
	s.Helper()
	s.createNodeOp("up", "cordon: true\n  backoffLimit: 0\n  concurrency: 1\n  countUnavailable: "+countUnavailable)
	s.nodeOpPasses(6, time.Second)
	s.endJobs(false)
	s.nodeOpPasses(6, time.Second)
	return len(s.listJobs())
}
