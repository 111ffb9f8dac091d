// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop_test

import (
	"strings"
	"testing"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	skyhookv1 "github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

const startOp = `{metadata: {name: check}, spec: {command: [x], concurrency: 1, nodeSelector: {matchLabels: {pool: a}}}}`

// An operation that keeps to the nodes of its start: nodes that are created, replaced or labelled after the start are no part of it, also for another
// leader: only the status is kept. Without a node it has not started.
func TestTargetsAtStart(t *testing.T) {
	w := newEnvironment(t, "n1", "n2", "n3")
	w.targetsAtStart = true
	o := w.applyYAML(startOp)
	w.tick()
	if o.Status.Internal.StartTargets != nil {
		t.Fatalf("recorded without a node: %+v", o.Status.Internal.StartTargets)
	}
	w.node("n1").Labels["pool"], w.node("n2").Labels["pool"] = "a", "a"
	c := w.compile(o)
	for _, target := range c.Rollout.Targets {
		if target.Blocked == nil || target.Blocked.Reason != rollout.ReasonLedger {
			t.Errorf("before the nodes are recorded %s is blocked by %+v", target.Node, target.Blocked)
		}
	}
	w.tick()
	requireEqual(t, "count", o.Status.Internal.StartTargets.Count, 2)
	w.node("n3").Labels["pool"] = "a"
	w.addNode("n4")
	w.node("n4").Labels["pool"] = "a"
	w.node("n2").UID = "another node of that name"
	w.runToEnd()
	requireEqual(t, "phase", o.Status.Phase, v1alpha1.PhaseCompleted)
	requireEqual(t, "total", o.Status.Total, 1)
	requireEqual(t, "jobs", len(w.jobs), 1)

	w = newEnvironment(t, "n1", "n2")
	w.node("n1").Labels["pool"] = "a"
	current := w.applyYAML(startOp)
	w.tick()
	w.node("n2").Labels["pool"] = "a"
	w.runToEnd()
	requireEqual(t, "total of current targets", current.Status.Total, 2)
	if current.Status.Internal.StartTargets != nil {
		t.Error("the nodes are recorded without being needed")
	}
}

// When all nodes of the start were replaced, nothing is left to wait for: the operation ends, and its TTL begins. Nodes that are only
// deselected may come back.
func TestStartTargetsGone(t *testing.T) {
	w := newEnvironment(t, "n1", "n2")
	w.node("n1").Labels["pool"] = "a"
	w.targetsAtStart = true
	o := w.applyYAML(startOp)
	w.tick()
	requireEqual(t, "count", o.Status.Internal.StartTargets.Count, 1)
	w.node("n1").Labels["pool"] = "b"
	w.tick()
	requireEqual(t, "phase while it is deselected", o.Status.Phase, v1alpha1.PhasePending)
	w.node("n1").Labels["pool"], w.node("n1").UID = "a", "another node of that name"
	w.runToEnd()
	requireEqual(t, "phase", o.Status.Phase, v1alpha1.PhaseCompleted)
	requireEqual(t, "jobs", len(w.jobs), 0)
}

// A suspended or invalid operation has not started.
func TestStartWaits(t *testing.T) {
	w := newEnvironment(t, "n1", "n2")
	w.node("n1").Labels["pool"] = "a"
	w.targetsAtStart = true
	o := w.applyYAML(strings.Replace(startOp, "concurrency: 1", "suspend: true", 1))
	w.tick()
	if o.Status.Internal.StartTargets != nil {
		t.Fatal("recorded while suspended")
	}
	w.node("n2").Labels["pool"] = "a"
	*o.Spec.Suspend = false
	w.runToEnd()
	requireEqual(t, "total", o.Status.Total, 2)
}

// A record of the start that cannot be read stops the operation with what to do about it.
func TestStartTargetsRecord(t *testing.T) {
	w := newEnvironment(t, "n1")
	w.node("n1").Labels["pool"] = "a"
	w.targetsAtStart = true
	o := w.applyYAML(startOp)
	o.Status.Internal.StartTargets = &v1alpha1.StartTargets{Count: 2, Nodes: "AAAA"}
	w.runToEnd()
	condition := findCondition(o, v1alpha1.ConditionAccepted)
	if condition.Reason != string(rollout.ReasonInvalidSpec) || !strings.Contains(condition.Message, "status.internal.startTargets cannot be read: remove it") {
		t.Errorf("%+v", condition)
	}
}

// A node with the label ignore is not touched, and the operation waits for it and says so.
func TestIgnoredNode(t *testing.T) {
	w := newEnvironment(t, "n1", "n2")
	w.node("n1").Labels[skyhookv1.LabelIgnore] = "true"
	o := w.applyYAML(`{metadata: {name: check}, spec: {command: [x]}}`)
	w.runToEnd()
	requireEqual(t, "completed", o.Status.Completed, 1)
	requireEqual(t, "phase", o.Status.Phase, v1alpha1.PhaseRunning)
	requireEqual(t, "jobs", len(w.jobs), 1)
	if got := findCondition(o, v1alpha1.ConditionReady); !strings.Contains(got.Message, "node n1 waits: the node has the label skyhook.nvidia.com/ignore=true") {
		t.Errorf("the message is %q", got.Message)
	}
	delete(w.node("n1").Labels, skyhookv1.LabelIgnore)
	w.runToEnd()
	requireEqual(t, "phase", o.Status.Phase, v1alpha1.PhaseCompleted)
	requireEqual(t, "jobs", len(w.jobs), 2)
}
