// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

const plainOp = `{metadata: {name: check}, spec: {command: [sh, -c, date], concurrency: 1}}`

func requireEqual[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// A phase is final only when every selected node has finished.
func TestNotCompletedTooEarly(t *testing.T) {
	w := newEnvironment(t, "n1", "n2", "n3")
	o := w.applyYAML(plainOp)
	for range 40 {
		w.tick()
		done := o.Status.Completed
		if o.Status.Phase == v1alpha1.PhaseCompleted && done != 3 {
			t.Fatalf("Completed with %d of 3 nodes", done)
		}
	}
	requireEqual(t, "phase", o.Status.Phase, v1alpha1.PhaseCompleted)
	requireEqual(t, "total", o.Status.Total, int32(3))
	requireEqual(t, "jobs", w.countCreated("Job"), 3)
	for _, n := range w.nodes {
		if len(n.Annotations) > 0 {
			t.Errorf("%s keeps %v", n.Name, n.Annotations)
		}
	}
}

// Control-plane nodes go first, then workers, in a sliding window.
func TestOrderAndWindow(t *testing.T) {
	w := newEnvironment(t, "a", "b", "cp2", "cp1")
	w.applyYAML(plainOp)
	w.runToEnd()
	requireEqual(t, "order", w.actionOrder("run command"), "cp1 cp2 a b")
	w = newEnvironment(t, "n1", "n2", "n3", "n4")
	w.applyYAML(`{metadata: {name: two}, spec: {command: [x], concurrency: 2}}`)
	w.commands["n1"] = "hang"
	for range 12 {
		w.tick()
	}
	requireEqual(t, "order", w.actionOrder("run command"), "n1 n2 n3 n4") // a free slot is filled immediately
}

// Only a changed boot ID and a ready node prove a reboot.
func TestRebootIsProven(t *testing.T) {
	text := `{metadata: {name: up}, spec: {command: [x], concurrency: 1, rebootOnSuccess: true, cordon: true, rebootTimeoutSeconds: 300, stopOnFailure: true}}`
	for _, how := range []string{"never", "lies", "gone"} {
		t.Run(how, func(t *testing.T) {
			w := newEnvironment(t, "n1", "n2")
			o := w.applyYAML(text)
			w.rebootModes["n1"] = how
			w.runToEnd()
			requireEqual(t, "phase", o.Status.Phase, v1alpha1.PhaseFailed)
			requireEqual(t, "reboot", o.Status.NodeStatuses["n1"].RebootStatus, v1alpha1.RebootCancelled)
			requireEqual(t, "order", w.actionOrder("run command"), "n1") // a failed reboot stops the others
			requireEqual(t, "cordoned", w.node("n1").Unschedulable, true)
		})
	}
	w := newEnvironment(t, "n1", "cp1")
	o := w.applyYAML(text)
	w.runToEnd()
	requireEqual(t, "phase", o.Status.Phase, v1alpha1.PhaseCompleted)
	requireEqual(t, "order", w.actionOrder("run command"), "cp1 n1")
	for _, n := range w.nodes {
		requireEqual(t, "message", o.Status.NodeStatuses[n.Name].Message, nodeop.TextRebootDone)
		requireEqual(t, "boot", n.BootID, "boot-1'")
		requireEqual(t, "cordoned", n.Unschedulable, false)
	}
}

// The reboot pod is created before the Job, and there is one per admission even if it is created again.
func TestRebootPodComesFirst(t *testing.T) {
	w := newEnvironment(t, "n1")
	w.applyYAML(`{metadata: {name: up}, spec: {command: [x], rebootOnSuccess: true}}`)
	w.commands["n1"] = "hang"
	w.tick()
	if len(w.created) != 2 || !strings.HasPrefix(w.created[0], "Pod up-reboot-n1-") || !strings.HasPrefix(w.created[1], "Job up-n1-") {
		t.Errorf("made %v", w.created)
	}
	w.rebootModes["n1"] = "never"
	w.commands["n1"] = ""
	for range 5 {
		w.tick()
	}
	w.pods = slices.DeleteFunc(w.pods, func(p *corev1.Pod) bool { return p.Labels[v1alpha1.LabelReboot] == "true" }) // lost
	w.rebootModes["n1"] = ""
	w.runToEnd()
	requireEqual(t, "jobs", w.countCreated("Job"), 1)
	requireEqual(t, "boot", w.node("n1").BootID, "boot-1'")
	for _, p := range w.pods {
		if p.Labels[v1alpha1.LabelReboot] == "true" && slices.Contains(p.Spec.Containers[0].Args, "--after-file") {
			t.Error("a pod created after the Job waits for a file that no longer exists")
		}
	}
}

// Writes may be lost at any time: names are derived, so no object is created twice.
func TestNoDuplicates(t *testing.T) {
	w := newEnvironment(t, "n1", "n2", "n3")
	o := w.applyYAML(`{metadata: {name: up}, spec: {command: [x], rebootOnSuccess: true, cordon: true, preflight: {command: [y]}}}`)
	w.writesStatus = false // every status write is lost
	for range 20 {
		w.tick()
	}
	w.writesStatus = true
	w.runToEnd()
	requireEqual(t, "phase", o.Status.Phase, v1alpha1.PhaseCompleted)
	requireEqual(t, "jobs", w.countCreated("Job"), 3)
	requireEqual(t, "pods", w.countCreated("Pod"), 6)
}

// A deleted node fails and frees its slot.
func TestDeletedNode(t *testing.T) {
	w := newEnvironment(t, "n1", "n2")
	o := w.applyYAML(`{metadata: {name: check}, spec: {command: [x], concurrency: 1, cordon: true, preflight: {command: [y]}}}`)
	w.checks["n1"] = "hang"
	for range 3 {
		w.tick()
	}
	requireEqual(t, "phase", o.Status.NodeStatuses["n1"].Phase, v1alpha1.PhasePreflight)
	w.removeNode("n1")
	w.runToEnd()
	requireEqual(t, "n1", o.Status.NodeStatuses["n1"].Phase, v1alpha1.PhaseFailed)
	requireEqual(t, "n1", o.Status.NodeStatuses["n1"].Message, "the node no longer exists")
	requireEqual(t, "n2", o.Status.NodeStatuses["n2"].Phase, v1alpha1.PhaseCompleted)
	requireEqual(t, "phase", o.Status.Phase, v1alpha1.PhaseFailed)
}

// The result of a node is final: deleting its Job changes nothing. Deleting a running Job fails the node.
func TestResultIsFinal(t *testing.T) {
	w := newEnvironment(t, "n1", "n2")
	o := w.applyYAML(plainOp)
	w.commands["n2"] = "hang"
	for range 6 {
		w.tick()
	}
	requireEqual(t, "n1", o.Status.NodeStatuses["n1"].Phase, v1alpha1.PhaseCompleted)
	requireEqual(t, "n2", o.Status.NodeStatuses["n2"].Message, "Job is running")
	w.jobs = nil
	w.runToEnd()
	requireEqual(t, "n1", o.Status.NodeStatuses["n1"].Phase, v1alpha1.PhaseCompleted)
	requireEqual(t, "n2", o.Status.NodeStatuses["n2"].Phase, v1alpha1.PhaseFailed)
	requireEqual(t, "n2", o.Status.NodeStatuses["n2"].Message, nodeop.TextJobNotFound)
	requireEqual(t, "jobs", w.countCreated("Job"), 2)
	was := o.Status.DeepCopy()
	w.addNode("n9")
	w.now = w.now.Add(time.Hour)
	w.runToEnd()
	requireEqual(t, "jobs", w.countCreated("Job"), 2) // a node that is added later is not started
	requireEqual(t, "last update", o.Status.LastUpdated, was.LastUpdated)
}

// A failed canary stops the other nodes. Nodes in progress finish.
func TestStopOnFailure(t *testing.T) {
	w := newEnvironment(t, "n1", "n2", "n3", "n4")
	o := w.applyYAML(`{metadata: {name: canary}, spec: {command: [x], concurrency: 2, stopOnFailure: true, preflight: {command: [y]}}}`)
	w.checks["n1"] = "!"
	w.runToEnd()
	requireEqual(t, "phase", o.Status.Phase, v1alpha1.PhaseFailed)
	requireEqual(t, "n1", o.Status.NodeStatuses["n1"].Message, "Preflight failed: exit 4")
	requireEqual(t, "n2", o.Status.NodeStatuses["n2"].Phase, v1alpha1.PhaseCompleted) // its check was in progress: it goes on
	requireEqual(t, "nodes", len(o.Status.NodeStatuses), 2)
	requireEqual(t, "order", w.actionOrder("run preflight"), "n1 n2")
	requireEqual(t, "left over", len(slices.DeleteFunc(w.pods, func(p *corev1.Pod) bool { return p.Labels[v1alpha1.LabelPreflight] == "" })), 0)
}

// Without stopOnFailure the other nodes go on, and a failed node stays cordoned unless uncordonOnFailure is set.
func TestFailureLeavesOthers(t *testing.T) {
	for _, uncordon := range []string{"false", "true"} {
		w := newEnvironment(t, "n1", "n2")
		o := w.applyYAML(`{metadata: {name: check}, spec: {command: [x], concurrency: 1, cordon: true, backoffLimit: 2, uncordonOnFailure: ` + uncordon + `}}`)
		w.commands["n1"] = "fail"
		w.runToEnd()
		e := o.Status.NodeStatuses["n1"]
		requireEqual(t, "message", e.Message, nodeop.TextJobFailed)
		requireEqual(t, "exit code", *e.ExitCode, int32(3))
		requireEqual(t, "attempts", e.Attempts, int32(3))
		requireEqual(t, "output", e.Output, "no such file")
		requireEqual(t, "phase", o.Status.Phase, v1alpha1.PhaseFailed)
		requireEqual(t, "n2", o.Status.NodeStatuses["n2"].Phase, v1alpha1.PhaseCompleted)
		requireEqual(t, "cordoned", w.node("n1").Unschedulable, uncordon == "false")
		requireEqual(t, "mark", w.node("n1").Annotations[v1alpha1.AnnotationCordonedBy] != "", uncordon == "false")
		requireEqual(t, "n2 cordoned", w.node("n2").Unschedulable, false)
		now := metav1.NewTime(w.now)
		o.DeletionTimestamp = &now
		w.runToEnd()
		requireEqual(t, "cordoned after deletion", w.node("n1").Unschedulable, false)
		requireEqual(t, "marks", len(w.node("n1").Annotations), 0)
		requireEqual(t, "NodeOps", len(w.ops), 0)
	}
}

// The cordon of somebody else is never removed.
func TestForeignCordon(t *testing.T) {
	w := newEnvironment(t, "n1")
	o := w.applyYAML(`{metadata: {name: check}, spec: {command: [x], cordon: true}}`)
	w.node("n1").Unschedulable = true
	w.runToEnd()
	requireEqual(t, "phase", o.Status.Phase, v1alpha1.PhaseCompleted)
	requireEqual(t, "cordoned", w.node("n1").Unschedulable, true)
	w.node("n1").Annotations[v1alpha1.AnnotationCordonedBy] = "default/check@another-uid"
	w.applyYAML(`{metadata: {name: second}, spec: {command: [x], cordon: true}}`)
	w.runToEnd()
	requireEqual(t, "cordoned", w.node("n1").Unschedulable, true)
}

// Two NodeOps are never in progress on one node at the same time, and neither uncordons the node of the other.
func TestOneAtATime(t *testing.T) {
	w := newEnvironment(t, "n1", "n2")
	a := w.applyYAML(`{metadata: {name: a}, spec: {command: [x], cordon: true}}`)
	b := w.applyYAML(`{metadata: {name: b}, spec: {command: [x], cordon: true}}`)
	for range 30 {
		w.tick()
		for _, n := range w.nodes {
			if len(w.listHolds(n)) > 1 {
				t.Fatalf("%s is held by two", n.Name)
			}
		}
	}
	requireEqual(t, "a", a.Status.Phase, v1alpha1.PhaseCompleted)
	requireEqual(t, "b", b.Status.Phase, v1alpha1.PhaseCompleted)
	requireEqual(t, "order", w.actionOrder("run command"), "n1 n2 n1 n2")
}

// Concurrency 0 starts all nodes at once, and warns if that includes the whole control plane.
func TestControlPlaneAtOnce(t *testing.T) {
	w := newEnvironment(t, "cp1", "cp2", "n1")
	w.applyYAML(`{metadata: {name: up}, spec: {command: [x], rebootOnSuccess: true}}`)
	w.tick()
	requireEqual(t, "order", w.actionOrder("run command"), "cp1 cp2 n1")
	w.tick()
	requireEqual(t, "warned", w.hasWarning("ControlPlaneAtOnce"), true)
	w = newEnvironment(t, "cp1", "cp2")
	w.applyYAML(`{metadata: {name: up}, spec: {command: [x], rebootOnSuccess: true, concurrency: 1}}`)
	w.runToEnd()
	requireEqual(t, "warned", w.hasWarning("ControlPlaneAtOnce"), false)
}

// The check skips or fails a node before its workloads are disturbed, and its deadline starts when it runs.
func TestPreflight(t *testing.T) {
	w := newEnvironment(t, "n1", "n2", "n3")
	o := w.applyYAML(`{metadata: {name: up}, spec: {command: [x], cordon: true, rebootOnSuccess: true, preflight: {command: [y]}}}`)
	w.checks["n1"], w.checks["n2"] = "node is already at v1\n", "hang"
	w.runToEnd()
	e := o.Status.NodeStatuses["n1"]
	requireEqual(t, "phase", e.Phase, v1alpha1.PhaseCompleted)
	requireEqual(t, "message", e.Message, "Skipped by preflight: node is already at v1")
	requireEqual(t, "job", e.JobName, "")
	requireEqual(t, "reboot", e.RebootStatus, v1alpha1.RebootNotRequested)
	requireEqual(t, "boot", w.node("n1").BootID, "boot-1")
	requireEqual(t, "n2", o.Status.NodeStatuses["n2"].Message, "Preflight failed: it took longer than 2m0s")
	requireEqual(t, "skipped", o.Status.Skipped, int32(1))
	requireEqual(t, "completed", o.Status.Completed, int32(1))
	requireEqual(t, "held", w.actionOrder("hold"), "n3")
	w = newEnvironment(t, "n1") // pulling its image takes ten minutes
	o = w.applyYAML(`{metadata: {name: up}, spec: {command: [x], preflight: {command: [y]}}}`)
	w.pass()
	w.now = w.now.Add(10 * time.Minute)
	w.pass()
	requireEqual(t, "phase", o.Status.NodeStatuses["n1"].Phase, v1alpha1.PhasePreflight)
	w.runToEnd()
	requireEqual(t, "phase", o.Status.Phase, v1alpha1.PhaseCompleted)
}

// A drain waits until pods are gone, and a node whose drain times out fails and is released.
func TestDrain(t *testing.T) {
	w := newEnvironment(t, "n1", "n2")
	o := w.applyYAML(`{metadata: {name: up}, spec: {command: [x], concurrency: 1, cordon: true, drainOptions: {enabled: true, timeoutSeconds: 60}}}`)
	w.workloads["n1"] = []rollout.Pod{{Namespace: "default", Name: "db", UID: "1", Keep: "nothing recreates it"}}
	w.workloads["n2"] = []rollout.Pod{{Namespace: "default", Name: "web", UID: "2"}}
	w.runToEnd()
	requireEqual(t, "n1", o.Status.NodeStatuses["n1"].Phase, v1alpha1.PhaseFailed)
	if m := o.Status.NodeStatuses["n1"].Message; !strings.Contains(m, "default/db") {
		t.Errorf("the message does not name the pod: %s", m)
	}
	requireEqual(t, "cordoned", w.node("n1").Unschedulable, false)
	requireEqual(t, "order", w.actionOrder("run command"), "n2")
}

// Suspended, nothing starts and what runs ends.
func TestSuspend(t *testing.T) {
	w := newEnvironment(t, "n1", "n2")
	o := w.applyYAML(plainOp)
	w.tick()
	yes := true
	o.Spec.Suspend = &yes
	w.runToEnd()
	requireEqual(t, "order", w.actionOrder("run command"), "n1")
	requireEqual(t, "reason", findCondition(o, v1alpha1.ConditionProgressing).Reason, v1alpha1.ReasonSuspended)
	*o.Spec.Suspend = false
	w.runToEnd()
	requireEqual(t, "phase", o.Status.Phase, v1alpha1.PhaseCompleted)
}

// Deleted at any moment it ends, and holds nothing afterwards.
func TestDeletion(t *testing.T) {
	for turns := range 14 {
		w := newEnvironment(t, "n1", "n2")
		o := w.applyYAML(`{metadata: {name: up}, spec: {command: [x], concurrency: 1, cordon: true, rebootOnSuccess: true, preflight: {command: [y]}}}`)
		for range turns {
			w.tick()
		}
		now := metav1.NewTime(w.now)
		o.DeletionTimestamp = &now
		w.runToEnd()
		requireEqual(t, "NodeOps", len(w.ops), 0)
		for _, n := range w.nodes {
			requireEqual(t, "cordoned", n.Unschedulable, false)
			requireEqual(t, "annotations", len(n.Annotations), 0)
		}
	}
}

// A node that is no longer selected ends what runs and frees its slot; another of the same name begins afresh.
func TestLeavingAndReplaced(t *testing.T) {
	w := newEnvironment(t, "n1", "n2")
	w.node("n1").Labels["pool"], w.node("n2").Labels["pool"] = "a", "a"
	o := w.applyYAML(`{metadata: {name: up}, spec: {command: [x], concurrency: 1, cordon: true, nodeSelector: {matchLabels: {pool: a}}, preflight: {command: [y]}}}`)
	w.checks["n1"] = "hang"
	w.tick()
	w.tick()
	delete(w.node("n1").Labels, "pool")
	w.checks["n1"] = ""
	w.runToEnd()
	requireEqual(t, "phase", o.Status.Phase, v1alpha1.PhaseCompleted)
	requireEqual(t, "order", w.actionOrder("run command"), "n2")
	requireEqual(t, "annotations", len(w.node("n1").Annotations), 0)

	w = newEnvironment(t, "n1", "n2")
	o = w.applyYAML(plainOp)
	w.commands["n1"] = "hang"
	for range 3 {
		w.tick()
	}
	w.removeNode("n1")
	n := w.addNode("n1")
	n.UID, n.BootID = "uid-again", "boot-9"
	w.commands["n1"] = ""
	w.runToEnd()
	requireEqual(t, "phase", o.Status.Phase, v1alpha1.PhaseCompleted)
	requireEqual(t, "jobs", w.countCreated("Job"), 3)
}

// A node that goes down in its reboot keeps its place when its record is damaged: no second node starts.
func TestUnreadableRecordKeepsPlace(t *testing.T) {
	w := newEnvironment(t, "n1", "n2")
	w.applyYAML(`{metadata: {name: check}, spec: {command: [x], concurrency: 1, cordon: true, rebootOnSuccess: true}}`)
	w.rebootModes["n1"] = "gone"
	for range 20 {
		w.tick()
	}
	n := w.node("n1")
	requireEqual(t, "n1 ready", n.Ready, false)
	for key := range n.Annotations {
		n.Annotations[key] = "damaged"
	}
	for range 20 {
		w.tick()
	}
	requireEqual(t, "n2 cordoned", w.node("n2").Unschedulable, false)
	requireEqual(t, "jobs", w.countCreated("Job"), 1)
}
