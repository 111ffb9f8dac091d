// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop_test

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/test/kubelet"
)

// A NodeOp without matching nodes reports that, waits, and is not finished.
func TestNoNodes(t *testing.T) {
	w := newEnvironment(t, "n1")
	o := w.applyYAML(`{metadata: {name: check}, spec: {command: [x], nodeSelector: {matchLabels: {pool: none}}}}`)
	w.runToEnd()
	requireEqual(t, "phase", o.Status.Phase, v1alpha1.PhasePending)
	requireEqual(t, "reason", findCondition(o, v1alpha1.ConditionReady).Reason, v1alpha1.ReasonNoNodes)
	w.node("n1").Labels["pool"] = "none"
	w.runToEnd()
	requireEqual(t, "phase", o.Status.Phase, v1alpha1.PhaseCompleted)
}

func findCondition(o *v1alpha1.NodeOp, kind string) metav1.Condition {
	for _, c := range o.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return metav1.Condition{}
}

// Status is bounded, and does not change when nothing has changed.
func TestStatusIsBounded(t *testing.T) {
	w := newEnvironment(t)
	for i := range 300 {
		w.addNode("n" + strings.Repeat("x", i%7) + string(rune('a'+i%26)) + strings.Repeat("y", i/26))
	}
	o := w.applyYAML(`{metadata: {name: check}, spec: {command: [x], stopOnFailure: false}}`)
	w.commands[w.nodes[5].Name] = "fail"
	w.runToEnd()
	requireEqual(t, "total", o.Status.Total, int32(len(w.nodes)))
	requireEqual(t, "failed", o.Status.Failed, int32(1))
	requireEqual(t, "completed", o.Status.Completed, int32(len(w.nodes)-1))
	requireEqual(t, "lines", len(o.Status.NodeStatuses), 1)
	w = newEnvironment(t, "n1", "n2")
	o = w.applyYAML(plainOp)
	w.commands["n1"] = "hang"
	for range 6 {
		w.tick()
	}
	was := o.Status.DeepCopy()
	for range 6 {
		w.tick()
	}
	requireEqual(t, "last update", o.Status.LastUpdated, was.LastUpdated)
}

// Names have valid lengths, and long ones are cut.
func TestNames(t *testing.T) {
	w := newEnvironment(t, strings.Repeat("n", 100)+".example.org")
	o := w.applyYAML(`{metadata: {name: ` + strings.Repeat("o", 63) + `}, spec: {command: [x], rebootOnSuccess: true}}`)
	w.runToEnd()
	requireEqual(t, "phase", o.Status.Phase, v1alpha1.PhaseCompleted)
	for _, j := range w.jobs {
		for key, value := range j.Labels {
			if len(value) > 63 {
				t.Errorf("label %s has %d characters", key, len(value))
			}
		}
		if len(j.Name) > 63 {
			t.Errorf("%s is too long", j.Name)
		}
	}
}

// Jobs and pods are kept for ttlSecondsAfterFinished, and no longer.
func TestTTL(t *testing.T) {
	w := newEnvironment(t, "n1")
	o := w.applyYAML(`{metadata: {name: check}, spec: {command: [x], ttlSecondsAfterFinished: 600}}`)
	w.runToEnd()
	expired, at := nodeop.NewOperation(o, nil).IsExpired(w.now)
	requireEqual(t, "expired", expired, false)
	w.now = at.Time
	expired, _ = nodeop.NewOperation(o, nil).IsExpired(w.now)
	requireEqual(t, "expired", expired, true)
	o.Spec.TTLSecondsAfterFinished = nil
	expired, _ = nodeop.NewOperation(o, nil).IsExpired(w.now)
	requireEqual(t, "expired", expired, false)
}

// The status says what prevents a Job from running.
func TestJobCannotRun(t *testing.T) {
	w := newEnvironment(t, "n1")
	o := w.applyYAML(plainOp)
	w.tick()
	p := findPod(w.pods, podName(w.jobs[0], 1))
	kubelet.Wait(p, 0, "ImagePullBackOff", "no such host")
	w.pass()
	requireEqual(t, "message", o.Status.NodeStatuses["n1"].Message, "image busybox:latest cannot be pulled: no such host")
	w = newEnvironment(t, "n1")
	o = w.applyYAML(plainOp)
	w.pass()
	w.now = w.now.Add(5 * time.Minute)
	w.pass()
	if m := o.Status.NodeStatuses["n1"].Message; !strings.Contains(m, "no pod was made for job") {
		t.Errorf("message %q", m)
	}
	w.jobs[0].Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobSuccessCriteriaMet, Status: corev1.ConditionTrue}}
	w.pass()
	requireEqual(t, "phase", nodeop.IsEntryFinal(o.Status.NodeStatuses["n1"]), false) // its pods may still be terminating
}

// NodeOps in namespaces that the operator does not watch are rejected with a reason; those that have started are
// finished.
func TestNamespaces(t *testing.T) {
	w := newEnvironment(t, "n1")
	w.namespaces = []string{"ops"}
	o := w.applyYAML(`{metadata: {name: check, namespace: team}, spec: {command: [x], cordon: true}}`)
	mine := w.applyYAML(`{metadata: {name: mine, namespace: ops}, spec: {command: [x], cordon: true}}`)
	w.runToEnd()
	requireEqual(t, "phase", mine.Status.Phase, v1alpha1.PhaseCompleted)
	requireEqual(t, "jobs", w.countCreated("Job"), 1)
	c := findCondition(o, v1alpha1.ConditionAccepted)
	requireEqual(t, "accepted", c.Status, metav1.ConditionFalse)
	if !strings.Contains(c.Message, "team is none of them") {
		t.Errorf("it says %q", c.Message)
	}
	w.namespaces = nil
	w.runToEnd()
	requireEqual(t, "phase", o.Status.Phase, v1alpha1.PhaseCompleted)
}
