// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// driverWith is the Skyhook driver on one node at a time, with this drainConfig.
func driverWith(drainConfig string) string {
	return driver + "  interruptionBudget: {count: 1}\n  drainConfig: " + drainConfig + "\n"
}

func protectedWorkload(name, node string) string {
	return strings.Replace(workload(name, node), "labels:", `annotations: {skyhook.nvidia.com/do-not-interrupt: "true"}, labels:`, 1)
}

func (s *scenario) deleteWorkload(name string) {
	s.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	s.Must(s.Client.Delete(context.Background(), p, client.GracePeriodSeconds(0)))
}

// TestWaitBeforeCordon shows that a node with a protected pod is neither cordoned nor admitted while another goes first, that
// nothing is written for it meanwhile, and that it follows when the pod has ended.
func TestWaitBeforeCordon(t *testing.T) {
	s := newScenario(t, 2)
	s.Apply(protectedWorkload("job", "n1"))
	s.Apply(workload("web", "n1"))
	s.SettlePods()
	s.Apply(driverWith("{wait: BeforeCordon}"))
	for range 30 {
		s.passes(1)
		if n := s.GetNode("n1"); n.Spec.Unschedulable || n.Annotations[v1alpha1.PrefixCordon+"driver"] != "" {
			t.Fatalf("n1 is cordoned: %v, %v", n.Spec.Unschedulable, n.Annotations)
		}
	}
	status := s.GetSkyhook("driver").Status
	if status.NodeStatus["n2"] != v1alpha1.StatusComplete || status.NodeStatus["n1"] != v1alpha1.StatusWaiting || !s.podExists("web") {
		t.Errorf("the nodes are %v, the other pod is there: %v", status.NodeStatus, s.podExists("web"))
	}
	s.requests.reset()
	s.passes(3)
	if all := s.requests.list(); len(all) > 0 {
		t.Errorf("while n1 waits there are requests: %v", all)
	}
	s.deleteWorkload("job")
	s.finish()
	if got := s.GetSkyhook("driver").Status.NodeStatus["n1"]; got != v1alpha1.StatusComplete || s.podExists("web") {
		t.Errorf("n1 is %s, its pod is there: %v", got, s.podExists("web"))
	}
}

// TestWaitTimeoutSkips shows that a node whose protected pod runs too long is skipped until the Skyhook changes.
func TestWaitTimeoutSkips(t *testing.T) {
	s := newScenario(t, 1)
	s.Apply(protectedWorkload("job", "n1"))
	s.SettlePods()
	s.Apply(driverWith("{wait: BeforeCordon, waitTimeout: 1h, onWaitTimeout: Skip}"))
	s.passes(5)
	s.now = s.now.Add(time.Hour)
	s.passes(3)
	if got := s.GetSkyhook("driver").Status.NodeStatus["n1"]; got != v1alpha1.StatusErroring {
		t.Errorf("after the timeout n1 is %s", got)
	}
	s.requests.reset()
	s.passes(3)
	if all := s.requests.list(); len(all) > 0 {
		t.Errorf("a node that was skipped has requests: %v", all)
	}
	s.Apply(driverWith("{wait: BeforeCordon, waitTimeout: 2h, onWaitTimeout: Skip}"))
	s.passes(3)
	if got := s.GetSkyhook("driver").Status.NodeStatus["n1"]; got != v1alpha1.StatusWaiting {
		t.Errorf("after a change n1 is %s", got)
	}
	s.deleteWorkload("job")
	s.finish()
	if got := s.GetSkyhook("driver").Status.NodeStatus["n1"]; got != v1alpha1.StatusComplete {
		t.Errorf("in the end n1 is %s", got)
	}
}

// TestWaitTimeoutForces shows that a protected pod is evicted after the timeout, and not past its disruption budget.
func TestWaitTimeoutForces(t *testing.T) {
	for _, wait := range []string{"BeforeCordon", "AfterCordon"} {
		t.Run(wait, func(t *testing.T) {
			s := newScenario(t, 1)
			s.Apply(protectedWorkload("job", "n1"))
			budget := s.createBudget("job", 0)
			s.SettlePods()
			s.Apply(driverWith("{wait: " + wait + ", waitTimeout: 1h, onWaitTimeout: Force}"))
			s.passes(5)
			isEviction := func(r string) bool { return strings.HasSuffix(r, "/eviction") }
			if held := s.GetNode("n1").Spec.Unschedulable; held != (wait == "AfterCordon") || slices.ContainsFunc(s.requests.list(), isEviction) {
				t.Errorf("before the timeout the node is cordoned: %v, requests %v", held, s.requests.list())
			}
			s.now = s.now.Add(time.Hour)
			s.passes(5)
			if !s.podExists("job") || !slices.ContainsFunc(s.requests.list(), isEviction) || !s.GetNode("n1").Spec.Unschedulable {
				t.Errorf("after the timeout the pod is there: %v, requests %v", s.podExists("job"), s.requests.list())
			}
			s.setAllowedDisruptions(budget, 1)
			s.now = s.now.Add(time.Minute)
			s.finish()
			if got := s.GetSkyhook("driver").Status.NodeStatus["n1"]; got != v1alpha1.StatusComplete {
				t.Errorf("n1 is %s", got)
			}
		})
	}
}

// TestProtectedPodDuringAdmission shows that a node is given back when a protected pod begins to run while it is cordoned.
func TestProtectedPodDuringAdmission(t *testing.T) {
	s := newScenario(t, 2)
	s.Apply(workload("web", "n1"))
	s.createBudget("web", 0)
	s.SettlePods()
	s.Apply(driverWith("{wait: BeforeCordon}"))
	s.passes(4)
	if !s.GetNode("n1").Spec.Unschedulable {
		t.Fatal("n1 is not cordoned")
	}
	s.Apply(protectedWorkload("late", "n1"))
	s.passes(12)
	status := s.GetSkyhook("driver").Status
	if s.GetNode("n1").Spec.Unschedulable || status.NodeStatus["n1"] != v1alpha1.StatusWaiting || status.NodeStatus["n2"] != v1alpha1.StatusComplete {
		t.Errorf("n1 is cordoned: %v; the nodes are %v", s.GetNode("n1").Spec.Unschedulable, status.NodeStatus)
	}
}

// TestDrainOptionsOfPods shows which requests the options about pods cause.
func TestDrainOptionsOfPods(t *testing.T) {
	for name, c := range map[string]struct {
		drainConfig string
		want        []string // requests about workloads, in their order
	}{
		"defaults":        {"{}", []string{"POST pods/batch/eviction", "POST pods/infra/eviction", "POST pods/web/eviction"}},
		"disableEviction": {"{disableEviction: true}", []string{"DELETE pods/batch", "DELETE pods/infra", "DELETE pods/web"}},
		"podSelector":     {"{podSelector: {matchLabels: {app: web}}}", []string{"POST pods/web/eviction"}},
		"all but some":    {"{podSelector: {matchExpressions: [{key: app, operator: NotIn, values: [infra]}]}}", []string{"POST pods/batch/eviction", "POST pods/web/eviction"}},
		"order":           {"{order: ByPriority}", []string{"POST pods/batch/eviction", "POST pods/web/eviction", "POST pods/infra/eviction"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScenario(t, 1)
			s.Apply("{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 1000}")
			s.Apply("{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: low}, value: -10}")
			s.Apply(workload("web", "n1"))
			s.Apply(strings.Replace(workload("infra", "n1"), "  nodeName:", "  priorityClassName: high\n  nodeName:", 1))
			s.Apply(strings.Replace(workload("batch", "n1"), "  nodeName:", "  priorityClassName: low\n  nodeName:", 1))
			s.SettlePods()
			s.Apply(driverWith(c.drainConfig))
			s.finish()
			got := slices.DeleteFunc(s.requests.list(), func(r string) bool {
				return !slices.ContainsFunc([]string{"pods/batch", "pods/infra", "pods/web"}, func(p string) bool { return strings.Contains(r, p) })
			})
			if !strings.Contains(name, "order") {
				slices.Sort(got)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("the requests are %v, want %v", got, c.want)
			}
			if status := s.GetSkyhook("driver").Status.NodeStatus["n1"]; status != v1alpha1.StatusComplete {
				t.Errorf("n1 is %s", status)
			}
		})
	}
}

// TestDaemonSetPodsBlock shows that with ignoreDaemonSets false a node waits until no DaemonSet has a pod there, and evicts
// nothing until then.
func TestDaemonSetPodsBlock(t *testing.T) {
	s := newScenario(t, 1)
	s.Apply(workload("web", "n1"))
	s.Apply(strings.Replace(workload("agent", "n1"), "labels:", "ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: agents, uid: agents, controller: true}], labels:", 1))
	s.SettlePods()
	s.Apply(driverWith("{ignoreDaemonSets: false}"))
	s.passes(6)
	blocked := meta.FindStatusCondition(s.GetSkyhook("driver").Status.Conditions, v1alpha1.ConditionDrainBlocked)
	if blocked == nil || blocked.Reason != v1alpha1.ReasonDaemonSetPod || !strings.Contains(blocked.Message, "default/agent") || !s.podExists("web") {
		t.Errorf("the condition is %+v, the other pod is there: %v", blocked, s.podExists("web"))
	}
	s.deleteWorkload("agent")
	s.finish()
	if got := s.GetSkyhook("driver").Status.NodeStatus["n1"]; got != v1alpha1.StatusComplete || s.podExists("web") {
		t.Errorf("in the end n1 is %s, the other pod is there: %v", got, s.podExists("web"))
	}
}
