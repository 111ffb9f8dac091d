// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout/engine"
)

// describeProgress describes the progress of a drain in a status, without times.
func describeProgress(d *v1alpha1.DrainProgress) string {
	if d == nil {
		return "none"
	}
	out := fmt.Sprintf("%d of %d", d.PodsLeft, d.PodsTotal)
	for _, p := range d.Slowest {
		out += fmt.Sprintf("; %s %s: %s", p.Pod, p.Reason, p.Message)
		if p.ExpectedEnd != nil {
			out += ", expected"
		}
	}
	return out
}

// skyhookProgress describes the only drain in the status of the Skyhook driver.
func (s *scenario) skyhookProgress() string {
	drains := s.GetSkyhook("driver").Status.Drains
	if len(drains) == 0 {
		return "none"
	}
	if len(drains) > 1 || drains[0].Node != "n1" || drains[0].Since.IsZero() {
		s.Errorf("drains are %+v", drains)
	}
	return describeProgress(&drains[0].DrainProgress)
}

// TestDrainProgress shows that a quick drain writes nothing about its progress, that one which takes longer is in the status with its
// slowest pods, and that the next leader knows how many pods there were.
func TestDrainProgress(t *testing.T) {
	s := newScenario(t, 1)
	s.Apply(protectedWorkload("job", "n1"))
	s.Apply(workload("web", "n1"))
	held := strings.Replace(workload("stuck", "n1"), "labels:", "finalizers: [example.com/backup], labels:", 1)
	s.Apply(held)
	s.createBudget("web", 0)
	s.SettlePods()
	s.Apply(driverWith("{}"))
	s.passes(4)
	s.requests.reset()
	s.passes(4)
	if got, all := s.skyhookProgress(), s.requests.list(); got != "none" || len(all) > 0 {
		t.Errorf("before it takes long the status has %s, and the requests are %v", got, all)
	}

	s.now = s.now.Add(engine.LongDrain)
	s.passes(4)
	want := "3 of 3; default/job ProtectedPod: must not be interrupted; default/stuck UpNext: has not been asked to leave yet; default/web UpNext: has not been asked to leave yet"
	if got := s.skyhookProgress(); got != want {
		t.Errorf("the status has %s\nwant %s", got, want)
	}
	isPatch := func(r string) bool { return strings.HasPrefix(r, "PATCH nodes/") }
	if all := slices.DeleteFunc(s.requests.list(), func(r string) bool { return !isPatch(r) }); len(all) != 1 {
		t.Errorf("the number is recorded with %v", all)
	}

	s.deleteWorkload("job")
	s.cluster = s.newCluster(s.requests)
	s.passes(4)
	s.now = s.now.Add(time.Hour) // the grace period is over
	s.passes(4)
	want = "2 of 3; default/web PodDisruptionBudget: cannot be evicted now: The disruption budget keep-web needs 1 healthy pods and has 1 currently; " +
		"default/stuck PodLeaving: is being deleted, and waits for its finalizers: example.com/backup, expected"
	if got := s.skyhookProgress(); got != want {
		t.Errorf("after another leader the status has %s\nwant %s", got, want)
	}

	s.deleteWorkload("web")
	s.deleteWorkload("stuck")
	pod := s.pod("stuck")
	pod.Finalizers = nil
	s.Must(s.Client.Update(context.Background(), pod))
	s.finish()
	if got := s.skyhookProgress(); got != "none" {
		t.Errorf("in the end the status has %s", got)
	}
	if record := s.GetNode("n1").Annotations[v1alpha1.PrefixRecord+"driver"]; strings.Contains(record, `"pods"`) {
		t.Errorf("in the end the record is %s", record)
	}
}

// TestNodeOpDrainProgress shows the same for a NodeOp.
func TestNodeOpDrainProgress(t *testing.T) {
	s := newScenario(t, 1)
	s.Apply(workload("web", "n1"))
	s.createBudget("web", 0)
	s.SettlePods()
	s.createNodeOp("up", "cordon: true\n  drainOptions: {enabled: true, force: true}")
	s.nodeOpPasses(4, 0)
	progress := func() string { return describeProgress(s.getNodeOp("up").Status.NodeStatuses["n1"].Drain) }
	if got := progress(); got != "none" {
		t.Errorf("at first the status has %s", got)
	}
	s.now = s.now.Add(engine.LongDrain)
	s.nodeOpPasses(3, 0)
	want := "1 of 1; default/web PodDisruptionBudget: cannot be evicted now: The disruption budget keep-web needs 1 healthy pods and has 1 currently"
	if got := progress(); got != want {
		t.Errorf("the status has %s\nwant %s", got, want)
	}
	s.deleteWorkload("web")
	if done := s.finishNodeOp("up", true); done.Status.Phase != opv1.PhaseCompleted || progress() != "none" {
		t.Errorf("it ended as %+v", done.Status)
	}
}

// TestNodeOpWaitsBeforeCordon shows that a NodeOp with wait BeforeCordon neither cordons a node with protected pods nor takes a seat for
// it, that another node goes first, and that only the pods that its selectors choose have to leave.
func TestNodeOpWaitsBeforeCordon(t *testing.T) {
	s := newScenario(t, 2)
	s.Apply(strings.Replace(workload("job", "n1"), "labels: {", "labels: {protect: me, ", 1))
	s.Apply(workload("stays", "n1"))
	s.Apply(workload("stays-too", "n2"))
	s.SettlePods()
	s.createNodeOp("up", `cordon: true
  concurrency: 1
  drainOptions:
    enabled: true
    force: true
    wait: BeforeCordon
    podNonInterruptLabels: {matchLabels: {protect: me}}
    podSelector: {matchLabels: {gpu: "yes"}}`)
	for range 12 {
		s.nodeOpPasses(1, time.Second)
		s.endJobs(true)
		if n := s.GetNode("n1"); n.Spec.Unschedulable {
			t.Fatal("n1 is cordoned")
		}
	}
	op := s.getNodeOp("up")
	if op.Status.NodeStatuses["n2"].Phase != opv1.PhaseCompleted || op.Status.NodeStatuses["n1"].Phase != "" {
		t.Errorf("the nodes are %+v", op.Status.NodeStatuses)
	}
	s.requests.reset()
	s.nodeOpPasses(3, time.Second)
	if all := s.requests.list(); len(all) > 0 {
		t.Errorf("while n1 waits there are requests: %v", all)
	}
	s.deleteWorkload("job")
	if done := s.finishNodeOp("up", true); done.Status.Phase != opv1.PhaseCompleted || done.Status.Completed != 2 {
		t.Errorf("it ended as %+v", done.Status)
	}
	for _, name := range []string{"stays", "stays-too"} {
		if s.pod(name).DeletionTimestamp != nil {
			t.Errorf("%s leaves, though podSelector does not select it", name)
		}
	}
}

// TestNodeOpWaitTimeout shows what happens to a node of a NodeOp whose protected pod runs too long.
func TestNodeOpWaitTimeout(t *testing.T) {
	for _, c := range []struct {
		options string
		phase   opv1.Phase
		message string
		exists  bool
	}{
		{"wait: BeforeCordon, waitTimeout: 1h, onWaitTimeout: Skip", opv1.PhaseFailed, "protected pods were waited for longer than 1h0m0s, so others go on: pod default/job must not be interrupted", true},
		{"waitTimeout: 1h, onWaitTimeout: Skip", opv1.PhaseFailed, "protected pods were waited for longer than 1h0m0s, so others go on: pod default/job must not be interrupted", true},
		{"wait: BeforeCordon, waitTimeout: 1h, onWaitTimeout: Force", opv1.PhaseCompleted, "Job completed successfully", false},
		{"timeoutSeconds: 60, onTimeout: Wait, waitTimeout: 1h, onWaitTimeout: Force, disableEviction: true", opv1.PhaseCompleted, "Job completed successfully", false},
	} {
		t.Run(c.options, func(t *testing.T) {
			s := newScenario(t, 1)
			s.Apply(protectedWorkload("job", "n1"))
			s.SettlePods()
			s.createNodeOp("up", "cordon: true\n  uncordonOnFailure: true\n  drainOptions: {enabled: true, force: true, "+c.options+"}")
			s.nodeOpPasses(5, time.Second)
			if got := s.getNodeOp("up").Status.Phase; got == opv1.PhaseFailed || s.pod("job").DeletionTimestamp != nil {
				t.Fatalf("before the timeout it is %s", got)
			}
			s.now = s.now.Add(time.Hour)
			s.nodeOpPasses(6, time.Second)
			if !c.exists {
				s.deleteWorkload("job")
			}
			done := s.finishNodeOp("up", true)
			entry := done.Status.NodeStatuses["n1"]
			if done.Status.Phase != c.phase || !strings.Contains(entry.Message, c.message) {
				t.Errorf("it ended as %s with %q", done.Status.Phase, entry.Message)
			}
			if n := s.GetNode("n1"); n.Spec.Unschedulable {
				t.Error("n1 stays cordoned")
			}
			if isLeaving := c.exists && s.pod("job").DeletionTimestamp != nil; isLeaving {
				t.Error("the job was evicted")
			}
		})
	}
}
