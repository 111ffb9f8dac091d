// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"math/rand"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

const deletedSkyhook = `{metadata: {name: demo}, spec: {packages: {tuning: {version: 1.0.0, image: example.org/tuning, interrupt: {type: reboot}, uninstall: {enabled: UNINSTALL}}}}}`

// newDeletionRun has a Skyhook on these nodes, without faults.
func newDeletionRun(t *testing.T, uninstall string, nodes ...string) *randomRun {
	l := &randomRun{testCluster: newTestCluster(t), rng: rand.New(rand.NewSource(1)), budget: 2, quiet: true, damaged: map[string]string{}}
	for _, n := range nodes {
		l.addNode(n)
	}
	l.s = l.apply(strings.ReplaceAll(deletedSkyhook, "UNINSTALL", uninstall))
	return l
}

// runUntil runs passes without anything from outside until a condition holds.
func (l *randomRun) runUntil(what string, holds func() bool) {
	l.t.Helper()
	for pass := 0; !holds(); pass++ {
		if pass == 100 {
			l.t.Fatalf("%s never happens:\n%s", what, strings.Join(l.tail(20), "\n"))
		}
		l.pass()
	}
}

func (l *randomRun) delete() {
	now := metav1.NewTime(l.now)
	l.s.DeletionTimestamp = &now
}

// deletionBlocked returns the condition DeletionBlocked after a pass without a write; nil when there is none.
func (l *randomRun) deletionBlocked() *metav1.Condition {
	c := l.compile(l.s)
	plan := l.decide(c)
	return meta.FindStatusCondition(c.Status(plan.Reports[0], plan.Groups).Conditions, v1alpha1.ConditionDeletionBlocked)
}

// expectBlocked checks the condition DeletionBlocked.
func (l *randomRun) expectBlocked(reason rollout.Reason, text string) {
	l.t.Helper()
	got := l.deletionBlocked()
	if got == nil || got.Reason != string(reason) || !strings.Contains(got.Message, text) {
		l.t.Errorf("DeletionBlocked is %+v, want the reason %s and %q", got, reason, text)
	}
}

// TestDamagedStateKeepsAdmission: a nodeState that cannot be read is no reset. The node stays in flight, and its pods are
// listed, so that no other node takes its place.
func TestDamagedStateKeepsAdmission(t *testing.T) {
	l := newDeletionRun(t, "true", "n1")
	l.runUntil("a pod", func() bool { return len(l.pods) > 0 })
	n := l.node("n1")
	n.Annotations[v1alpha1.PrefixNodeState+"demo"] = "damaged"
	l.bumpVersion(n)
	got := l.compile(l.s).Rollout.Targets[0]
	if !got.Visit.Admitted || got.Blocked == nil || got.Blocked.Reason != rollout.ReasonStateUnreadable || len(got.Objects.Orphans) != 1 {
		t.Errorf("the target is %+v", got)
	}
	n.Annotations[v1alpha1.PrefixRecord+"demo"] = "damaged"
	l.bumpVersion(n)
	if got := l.compile(l.s).Rollout.Targets[0]; got.Visit.Admitted || len(got.Objects.Orphans) != 1 || got.Drain.HeldAt.IsZero() {
		t.Errorf("with an unreadable record the target is %+v", got)
	}
}

// TestDeletionWithStuckPod: a pod that never goes delays a deletion. Nothing is done meanwhile, and the condition names
// the pod when its grace period is over.
func TestDeletionWithStuckPod(t *testing.T) {
	l := newDeletionRun(t, "false", "n1")
	l.stuck = func(*corev1.Pod) bool { return true }
	l.runUntil("a pod", func() bool { return len(l.pods) > 0 })
	l.delete()
	rest := func() bool { return len(l.decide(l.compile(l.s)).Actions) == 0 }
	now := l.now
	l.runUntil("rest", rest)
	pod := l.pods[0]
	if pod.DeletionTimestamp == nil || l.compile(l.s).Removed {
		t.Fatalf("the pod is deleted at %v, and the deletion has ended", pod.DeletionTimestamp)
	}
	end := metav1.NewTime(now.Add(time.Hour))
	pod.DeletionTimestamp = &end
	if got := l.deletionBlocked(); got != nil {
		t.Errorf("in its grace period: %+v", got)
	}
	if next := l.decide(l.compile(l.s)).Next; !next.Equal(end.Add(deletionGrace)) {
		t.Errorf("the next pass is at %s", next)
	}
	l.node("n1").Status.Conditions[0].Status = corev1.ConditionFalse
	l.bumpVersion(l.node("n1"))
	l.expectBlocked(rollout.ReasonPodLeaving, pod.Name+" is gone: the node is not ready")
	l.node("n1").Status.Conditions[0].Status = corev1.ConditionTrue
	l.bumpVersion(l.node("n1"))
	l.now = end.Add(2 * deletionGrace)
	l.expectBlocked(rollout.ReasonPodLeaving, pod.Name+" is gone: it should be gone by now")
	if !rest() {
		t.Error("the plan is not empty")
	}
	l.removeStuckPods()
	l.stuck = nil
	l.runUntil("the end", func() bool { return l.compile(l.s).Removed })
	if l.node("n1").Spec.Unschedulable {
		t.Error("the node is left cordoned")
	}
}

// TestDeletionWithEndedPod: a pod whose work has ended keeps nothing held. The record is removed once, and the condition
// names a pod that does not go.
func TestDeletionWithEndedPod(t *testing.T) {
	l := newDeletionRun(t, "false", "n1")
	l.runUntil("rest", func() bool { return !l.pass() && l.isAtRest() })
	l.s = l.apply(strings.ReplaceAll(strings.ReplaceAll(deletedSkyhook, "UNINSTALL", "false"), "1.0.0", "1.1.0"))
	l.runUntil("a pod", func() bool { return len(l.pods) > 0 })
	l.endPod(l.pods[0], 0, "")
	l.delete()
	l.stuck = func(*corev1.Pod) bool { return true }
	l.runUntil("rest", func() bool { return len(l.decide(l.compile(l.s)).Actions) == 0 })
	if c := l.compile(l.s); c.Removed || !c.Rollout.Targets[0].Wiped || l.node("n1").Spec.Unschedulable {
		t.Errorf("the target is %+v", c.Rollout.Targets)
	}
	l.now = l.now.Add(time.Hour)
	l.expectBlocked(rollout.ReasonPodLeaving, l.pods[0].Name)
	l.removeStuckPods()
	if c := l.compile(l.s); !c.Removed {
		t.Errorf("the target is %+v", c.Rollout.Targets)
	}
}

// TestDeletionWithUnreadableRecord: without an uninstall nothing in the record is needed. The pod is deleted, and the
// deletion ends.
func TestDeletionWithUnreadableRecord(t *testing.T) {
	l := newDeletionRun(t, "false", "n1")
	l.runUntil("a pod", func() bool { return len(l.pods) > 0 })
	n := l.node("n1")
	n.Annotations[v1alpha1.PrefixNodeState+"demo"], n.Annotations[v1alpha1.PrefixRecord+"demo"] = "damaged", "damaged"
	l.bumpVersion(n)
	l.damaged = map[string]string{"n1": "damaged"}
	l.delete()
	l.runUntil("the end", func() bool { return l.compile(l.s).Removed })
	if len(l.pods) > 0 {
		t.Errorf("%d pods are left", len(l.pods))
	}
}

// TestDeletionWaits: a deletion that has to uninstall something and cannot says what it waits for.
func TestDeletionWaits(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*randomRun)
		reason rollout.Reason
		text   string
	}{
		"a budget of 0": {
			func(l *randomRun) { l.s.Spec.InterruptionBudget.Count = new(int64(0)) },
			rollout.ReasonBudget, "the budget is 0",
		},
		"a node that is not ready": {
			func(l *randomRun) {
				l.node("n1").Status.Conditions[0].Status = corev1.ConditionFalse
				l.bumpVersion(l.node("n1"))
			},
			rollout.ReasonNodeNotReady, "on [n1]: the node is not ready",
		},
		"a paused policy": {
			func(l *randomRun) {
				l.s.Spec.DeploymentPolicy = "careful"
				l.policy = &v1alpha1.DeploymentPolicy{ObjectMeta: metav1.ObjectMeta{Name: "careful"}}
				l.policy.Spec.Paused = true
			},
			rollout.ReasonPaused, "DeploymentPolicy careful is paused",
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newDeletionRun(t, "true", "n1")
			l.runUntil("rest", func() bool { return !l.pass() && l.isAtRest() })
			l.delete()
			if got := l.deletionBlocked(); got != nil {
				t.Fatalf("before: %+v", got)
			}
			tc.change(l)
			l.expectBlocked(tc.reason, tc.text)
		})
	}
}
