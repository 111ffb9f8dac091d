// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster/gates"
	"github.com/skyhook-k8s/skyhook/internal/policy"
)

// TestNodeOpPolicy runs a NodeOp under a policy that allows one node at a time, and none while its gate does not pass.
func TestNodeOpPolicy(t *testing.T) {
	var value atomic.Int64
	value.Store(7)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"status":"success","data":{"resultType":"scalar","result":[0,"%d"]}}`, value.Load())
	}))
	defer server.Close()
	s := newScenario(t, 2)
	s.Apply(policyYAML(fmt.Sprintf(`  health: {prometheus: [{name: errors, url: %q, query: errors, atMost: "5"}]}`, server.URL)))
	s.createNodeOp("up", "deploymentPolicy: careful")
	s.nodeOpPasses(4, gates.AnswerLifetime)
	if n := len(s.listJobs()); n != 0 {
		t.Errorf("%d Jobs were made before the gate passed", n)
	}
	if p := s.getPolicy(); !slices.Contains(p.Finalizers, v1alpha1.FinalizerDeploymentPolicy) {
		t.Error("the policy may be deleted though a NodeOp names it")
	}
	value.Store(5)
	for range 4 {
		s.now = s.now.Add(gates.AnswerLifetime)
		s.nodeOpPass(s.cluster)
	}
	if n := len(s.listJobs()); n != 1 {
		t.Errorf("%d Jobs run at once, want 1", n)
	}
	if done := s.finishNodeOp("up", true); done.Status.Phase != opv1.PhaseCompleted || done.Status.Completed != 2 {
		t.Errorf("it ended as %+v", done.Status)
	}
}

// TestNodeOpSoak: a node on which a NodeOp is done keeps its slot in the budget until it has soaked, as with a Skyhook.
func TestNodeOpSoak(t *testing.T) {
	s := newScenario(t, 2)
	s.Apply(policyYAML("  soak: 10m\n"))
	s.createNodeOp("up", "deploymentPolicy: careful")
	s.nodeOpPasses(6, time.Second)
	s.endJobs(true)
	s.nodeOpPasses(6, time.Second)
	if n := len(s.listJobs()); n != 1 {
		t.Errorf("%d Jobs were made before the first node has soaked", n)
	}
	s.now = s.now.Add(10 * time.Minute)
	s.nodeOpPasses(6, time.Second)
	if n := len(s.listJobs()); n != 2 {
		t.Errorf("%d Jobs were made after it, want 2", n)
	}
	if done := s.finishNodeOp("up", true); done.Status.Phase != opv1.PhaseCompleted {
		t.Errorf("it ended as %+v", done.Status)
	}
}

// TestFinishedNodeOpFreesItsSlot: the last admission of a NodeOp is still written in the policy when its record is gone from the node. Other
// users of the budget go on, also if no operator lives as long as an admission counts that was not seen.
func TestFinishedNodeOpFreesItsSlot(t *testing.T) {
	s := newScenario(t, 2)
	pass := func() {
		t.Helper()
		o, plan := s.decide(s.cluster)
		for _, p := range o.Objects.Policies {
			_, err := s.cluster.UpdatePolicyStatus(context.Background(), p, policy.BuildStatus(p, o.Objects.PolicyUsers(plan)[p.Name], plan.Groups, s.now))
			s.Must(err)
		}
		s.pass()
		s.nodeOpPass(s.cluster)
		s.now = s.now.Add(time.Second)
	}
	s.Apply(policyYAML("  scope: Policy\n"))
	s.createNodeOp("up", "deploymentPolicy: careful")
	for range 20 {
		pass()
		s.endJobs(true)
	}
	if op := s.getNodeOp("up"); op.Status.Phase != opv1.PhaseCompleted {
		t.Fatalf("it ended as %+v", op.Status)
	}
	if a := s.getPolicy().Status.Internal.Admission; a == nil || len(a.Seats) != 1 || a.Seats[0].Rollout != "NodeOp/default/up" {
		t.Fatalf("the policy does not list the last admission of the NodeOp: %+v", a)
	}
	s.Apply(withPolicy(demo))
	for range 6 {
		s.cluster = s.newCluster(s.requests) // another operator
		pass()
	}
	if n := s.CountAdmitted(); n != 1 {
		t.Errorf("%d nodes are admitted after the NodeOp has finished: %s", n, s.verdict("demo", "n1"))
	}
}

// TestNodeOpLeavesUnderPolicy: a node that is no longer selected stays in the group of the policy until it is released.
func TestNodeOpLeavesUnderPolicy(t *testing.T) {
	s := newScenario(t, 1)
	s.Apply(policyYAML(""))
	s.createNodeOp("up", "deploymentPolicy: careful\n  cordon: true")
	s.nodeOpPasses(6, time.Second)
	if n := s.GetNode("n1"); !n.Spec.Unschedulable {
		t.Fatalf("the node is not held: %v", n.Annotations)
	}
	s.Patch(s.getPolicy(), `{"spec":{"scope":"Policy"}}`)
	s.Patch(s.GetNode("n1"), `{"metadata":{"labels":{"pool":null}}}`)
	s.endJobs(true)
	s.nodeOpPasses(6, time.Second)
	if n := s.GetNode("n1"); n.Spec.Unschedulable {
		_, plan := s.decide(s.cluster)
		t.Errorf("the node stays cordoned: %v", plan.Reports)
	}
}

// TestNodeOpMaxPrivileges: a NodeOp does not begin under a policy that limits what pods may do, and says why.
func TestNodeOpMaxPrivileges(t *testing.T) {
	for most, jobs := range map[string]int{"Services": 0, "Full": 1} {
		t.Run(most, func(t *testing.T) {
			s := newScenario(t, 1)
			s.Apply(policyYAML("  maxPrivileges: " + most + "\n"))
			s.createNodeOp("up", "deploymentPolicy: careful")
			s.nodeOpPasses(4, time.Second)
			said := fmt.Sprint(s.getNodeOp("up").Status.Conditions)
			if n := len(s.listJobs()); n != jobs || strings.Contains(said, "and a NodeOp has full") == (jobs > 0) {
				t.Errorf("there are %d Jobs, and it says %s", n, said)
			}
		})
	}
}
