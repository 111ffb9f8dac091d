// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// createBudget creates a disruption budget that allows so many disruptions of an app now.
func (s *scenario) createBudget(app string, allowed int32) *policyv1.PodDisruptionBudget {
	s.Helper()
	one := intstr.FromInt32(1)
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "keep-" + app}}
	b.Spec.MinAvailable, b.Spec.Selector = &one, &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	s.Must(s.Client.Create(context.Background(), b))
	s.Cleanup(func() { s.Must(s.Client.Delete(context.Background(), b)) })
	s.setAllowedDisruptions(b, allowed)
	return b
}

// setAllowedDisruptions acts as the controller of disruption budgets.
func (s *scenario) setAllowedDisruptions(b *policyv1.PodDisruptionBudget, allowed int32) {
	s.Helper()
	b.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: b.Generation, DisruptionsAllowed: allowed, CurrentHealthy: 1 + allowed, DesiredHealthy: 1, ExpectedPods: 1 + allowed}
	s.Must(s.Client.Status().Update(context.Background(), b))
}

func (s *scenario) podExists(name string) bool {
	p := &corev1.Pod{}
	err := s.Client.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: name}, p)
	s.Must(client.IgnoreNotFound(err))
	return err == nil
}

// TestDisruptionBudget shows that a refused eviction is reported with the budget's name, retried later, and delays no other
// node.
func TestDisruptionBudget(t *testing.T) {
	s := newScenario(t, 2)
	s.Apply(workload("guarded", "n1"))
	s.Apply(workload("free", "n2"))
	budget := s.createBudget("guarded", 0)
	s.SettlePods()
	s.Apply(driver)
	for range 30 {
		s.pass()
		s.SettlePods()
		s.now = s.now.Add(200 * time.Millisecond)
	}
	status := s.GetSkyhook("driver").Status
	if status.NodeStatus["n2"] != v1alpha1.StatusComplete || s.podExists("free") {
		t.Errorf("n2: %s, its pod is there: %v", status.NodeStatus["n2"], s.podExists("free"))
	}
	if n := s.GetNode("n1"); !n.Spec.Unschedulable || !s.podExists("guarded") || len(s.ListPods()) > 0 {
		t.Errorf("n1 is cordoned: %v, its pod is there: %v, pods of ours: %v", n.Spec.Unschedulable, s.podExists("guarded"), s.podNames())
	}
	tries := 0
	for _, r := range s.requests.list() {
		if r == "POST pods/guarded/eviction" {
			tries++
		}
	}
	if tries != 2 { // 30 passes took 6 s: at once, and after 5 s
		t.Errorf("%d evictions of the protected pod were sent in 6 s", tries)
	}
	o, plan := s.decide(s.cluster)
	said := ""
	for _, r := range plan.Reports {
		for _, v := range r.Verdicts {
			if v.Node == "n1" {
				said = string(v.Why.Reason) + " " + v.Why.Text
			}
		}
	}
	if !strings.HasPrefix(said, "PodDisruptionBudget ") || !strings.Contains(said, "keep-guarded") {
		t.Errorf("the verdict on n1 is %q; refusals %v", said, o.Objects.Refusals)
	}
	s.setAllowedDisruptions(budget, 1)
	s.now = s.now.Add(time.Minute)
	s.finish()
	if s.podExists("guarded") || s.GetNode("n1").Spec.Unschedulable {
		t.Errorf("in the end the pod is there: %v, the node cordoned: %v", s.podExists("guarded"), s.GetNode("n1").Spec.Unschedulable)
	}
}

// TestEvictsOnlyObservedPod shows that a later pod of the same name is neither evicted nor deleted.
func TestEvictsOnlyObservedPod(t *testing.T) {
	s := newScenario(t, 1)
	s.Apply(workload("app", "n1"))
	s.SettlePods()
	s.Apply(driver)
	o, plan := s.decide(s.cluster)
	_, err := s.cluster.Apply(context.Background(), o, plan)
	s.Must(err)
	for _, force := range []bool{false, true} {
		s.now = s.now.Add(time.Minute)
		o, _ = s.decide(s.cluster)
		_, err := s.cluster.Apply(context.Background(), o, rollout.Plan{Actions: []rollout.Action{{
			Verb: rollout.VerbEvict, Rollout: rollout.ParseRef("Skyhook/driver"), Node: "n1", Pod: &rollout.Pod{Namespace: "default", Name: "app", UID: "an-earlier-one"}, Force: force,
		}}})
		s.Must(err)
		s.SettlePods()
		if !s.podExists("app") {
			t.Fatalf("with force %v a later pod of the name was taken", force)
		}
	}
}

// TestForce shows that a drain that took too long deletes what a budget protects, if that is configured.
func TestForce(t *testing.T) {
	s := newScenario(t, 1)
	s.Apply(workload("guarded", "n1"))
	s.createBudget("guarded", 0)
	s.SettlePods()
	s.Apply(strings.Replace(driver, "spec:", "spec:\n  drainConfig: {timeout: 10m, onTimeout: Force, gracePeriod: 7s}", 1))
	s.pass()
	s.pass()
	s.now = s.now.Add(9 * time.Minute)
	s.pass()
	if p := s.pod("guarded"); p.DeletionTimestamp != nil {
		t.Fatal("deleted before the time is over")
	}
	s.now = s.now.Add(2 * time.Minute)
	s.pass()
	if p := s.pod("guarded"); p.DeletionTimestamp == nil || p.DeletionGracePeriodSeconds == nil || *p.DeletionGracePeriodSeconds != 7 {
		t.Errorf("after the time is over the pod leaves %v, with a grace period of %v", p.DeletionTimestamp, p.DeletionGracePeriodSeconds)
	}
	s.finish()
}

// TestDisableEviction shows that pods are deleted at once, whatever a budget says, if that is configured.
func TestDisableEviction(t *testing.T) {
	s := newScenario(t, 1)
	s.Apply(workload("guarded", "n1"))
	s.createBudget("guarded", 0)
	s.SettlePods()
	s.Apply(strings.Replace(driver, "spec:", "spec:\n  drainConfig: {disableEviction: true, gracePeriod: 1500ms}", 1))
	for range 5 {
		s.pass()
	}
	if p := s.pod("guarded"); p.DeletionTimestamp == nil || *p.DeletionGracePeriodSeconds != 2 {
		t.Errorf("the pod leaves %v, with a grace period of %v", p.DeletionTimestamp, p.DeletionGracePeriodSeconds)
	}
	s.finish()
}

func (s *scenario) pod(name string) *corev1.Pod {
	s.Helper()
	p := &corev1.Pod{}
	s.Must(s.Client.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: name}, p))
	return p
}

// TestForeignCordon shows that a person's cordon stays before, during and after.
func TestForeignCordon(t *testing.T) {
	s := newScenario(t, 2)
	s.Patch(s.GetNode("n1"), `{"spec":{"unschedulable":true}}`)
	s.Apply(driver)
	s.finish()
	got := []bool{s.GetNode("n1").Spec.Unschedulable, s.GetNode("n2").Spec.Unschedulable}
	if !slices.Equal(got, []bool{true, false}) {
		t.Errorf("unschedulable afterwards: %v, want the person's cordon and no other", got)
	}
	if runs := s.GetNode("n1").Annotations[v1alpha1.PrefixNodeState+"driver"]; !strings.Contains(runs, "post-interrupt") {
		t.Errorf("the cordoned node was not worked on: %s", runs)
	}
}

// TestUnansweredEviction shows that a pod whose eviction got no answer was asked: an API server that lets clients wait
// for a new disruption budget does not stop Force.
func TestUnansweredEviction(t *testing.T) {
	for what, c := range map[string]struct {
		err  error
		want bool
	}{
		"deadline":       {fmt.Errorf("Post eviction: %w", context.DeadlineExceeded), true},
		"server timeout": {apierrors.NewTimeoutError("no answer", 1), true},
		"not sent":       {errors.New("dial tcp: connection refused"), false},
		"refused":        {apierrors.NewTooManyRequests("budget", 1), false},
	} {
		if got := isUnanswered(c.err); got != c.want {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
	}
}
