// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

const plainOp = `{metadata: {name: check}, spec: {command: [sh, -c, date], concurrency: 1}}`

func want[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// A phase is final only when every selected node has finished.
func TestNotCompletedTooEarly(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	o := w.apply(plainOp)
	for range 40 {
		w.turn()
		done := o.Status.Completed
		if o.Status.Phase == v1alpha1.PhaseCompleted && done != 3 {
			t.Fatalf("Completed with %d of 3 nodes", done)
		}
	}
	want(t, "phase", o.Status.Phase, v1alpha1.PhaseCompleted)
	want(t, "total", o.Status.Total, int32(3))
	want(t, "jobs", w.count("Job"), 3)
	for _, n := range w.nodes {
		if len(n.Annotations) > 0 {
			t.Errorf("%s keeps %v", n.Name, n.Annotations)
		}
	}
}

// Control-plane nodes go first, then workers, in a sliding window.
func TestOrderAndWindow(t *testing.T) {
	w := newWorld(t, "a", "b", "cp2", "cp1")
	w.apply(plainOp)
	w.run()
	want(t, "order", w.order("run command"), "cp1 cp2 a b")
	w = newWorld(t, "n1", "n2", "n3", "n4")
	w.apply(`{metadata: {name: two}, spec: {command: [x], concurrency: 2}}`)
	w.ends["n1"] = "hang"
	for range 12 {
		w.turn()
	}
	want(t, "order", w.order("run command"), "n1 n2 n3 n4") // a free slot is filled immediately
}

// Only a changed boot ID and a ready node prove a reboot.
func TestRebootIsProven(t *testing.T) {
	text := `{metadata: {name: up}, spec: {command: [x], concurrency: 1, rebootOnSuccess: true, cordon: true, rebootTimeoutSeconds: 300, stopOnFailure: true}}`
	for _, how := range []string{"never", "lies", "gone"} {
		t.Run(how, func(t *testing.T) {
			w := newWorld(t, "n1", "n2")
			o := w.apply(text)
			w.boots["n1"] = how
			w.run()
			want(t, "phase", o.Status.Phase, v1alpha1.PhaseFailed)
			want(t, "reboot", o.Status.NodeStatuses["n1"].RebootStatus, v1alpha1.RebootCancelled)
			want(t, "order", w.order("run command"), "n1") // a failed reboot stops the others
			want(t, "cordoned", w.node("n1").Unschedulable, true)
		})
	}
	w := newWorld(t, "n1", "cp1")
	o := w.apply(text)
	w.run()
	want(t, "phase", o.Status.Phase, v1alpha1.PhaseCompleted)
	want(t, "order", w.order("run command"), "cp1 n1")
	for _, n := range w.nodes {
		want(t, "message", o.Status.NodeStatuses[n.Name].Message, textRebootDone)
		want(t, "boot", n.BootID, "boot-1'")
		want(t, "cordoned", n.Unschedulable, false)
	}
}

// The reboot pod is created before the Job, and there is one per admission even if it is created again.
func TestRebootPodComesFirst(t *testing.T) {
	w := newWorld(t, "n1")
	w.apply(`{metadata: {name: up}, spec: {command: [x], rebootOnSuccess: true}}`)
	w.ends["n1"] = "hang"
	w.turn()
	if len(w.made) != 2 || !strings.HasPrefix(w.made[0], "Pod up-reboot-n1-") || !strings.HasPrefix(w.made[1], "Job up-n1-") {
		t.Errorf("made %v", w.made)
	}
	w.boots["n1"] = "never"
	w.ends["n1"] = ""
	for range 5 {
		w.turn()
	}
	w.pods = slices.DeleteFunc(w.pods, func(p *corev1.Pod) bool { return p.Labels[v1alpha1.LabelReboot] == "true" }) // lost
	w.boots["n1"] = ""
	w.run()
	want(t, "jobs", w.count("Job"), 1)
	want(t, "boot", w.node("n1").BootID, "boot-1'")
	for _, p := range w.pods {
		if p.Labels[v1alpha1.LabelReboot] == "true" && slices.Contains(p.Spec.Containers[0].Args, "--after-file") {
			t.Error("a pod created after the Job waits for a file that does not exist any more")
		}
	}
}

// Writes may be lost at any time: names are derived, so no object is created twice.
func TestNoDuplicates(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	o := w.apply(`{metadata: {name: up}, spec: {command: [x], rebootOnSuccess: true, cordon: true, preflight: {command: [y]}}}`)
	w.tell = false // every status write is lost
	for range 20 {
		w.turn()
	}
	w.tell = true
	w.run()
	want(t, "phase", o.Status.Phase, v1alpha1.PhaseCompleted)
	want(t, "jobs", w.count("Job"), 3)
	want(t, "pods", w.count("Pod"), 6)
}

// A deleted node fails and frees its slot.
func TestDeletedNode(t *testing.T) {
	w := newWorld(t, "n1", "n2")
	o := w.apply(`{metadata: {name: check}, spec: {command: [x], concurrency: 1, cordon: true, preflight: {command: [y]}}}`)
	w.check["n1"] = "hang"
	for range 3 {
		w.turn()
	}
	want(t, "phase", o.Status.NodeStatuses["n1"].Phase, v1alpha1.PhasePreflight)
	w.remove("n1")
	w.run()
	want(t, "n1", o.Status.NodeStatuses["n1"].Phase, v1alpha1.PhaseFailed)
	want(t, "n1", o.Status.NodeStatuses["n1"].Message, "the node does not exist any more")
	want(t, "n2", o.Status.NodeStatuses["n2"].Phase, v1alpha1.PhaseCompleted)
	want(t, "phase", o.Status.Phase, v1alpha1.PhaseFailed)
}

// The result of a node is final: deleting its Job changes nothing. Deleting a running Job fails the node.
func TestFinalIsFinal(t *testing.T) {
	w := newWorld(t, "n1", "n2")
	o := w.apply(plainOp)
	w.ends["n2"] = "hang"
	for range 6 {
		w.turn()
	}
	want(t, "n1", o.Status.NodeStatuses["n1"].Phase, v1alpha1.PhaseCompleted)
	want(t, "n2", o.Status.NodeStatuses["n2"].Message, "Job is running")
	w.jobs = nil
	w.run()
	want(t, "n1", o.Status.NodeStatuses["n1"].Phase, v1alpha1.PhaseCompleted)
	want(t, "n2", o.Status.NodeStatuses["n2"].Phase, v1alpha1.PhaseFailed)
	want(t, "n2", o.Status.NodeStatuses["n2"].Message, textJobNotFound)
	want(t, "jobs", w.count("Job"), 2)
	was := o.Status.DeepCopy()
	w.addNode("n9")
	w.now = w.now.Add(time.Hour)
	w.run()
	want(t, "jobs", w.count("Job"), 2) // a node that is added later is not started
	want(t, "last update", o.Status.LastUpdated, was.LastUpdated)
}

// A failed canary stops the other nodes. Nodes in progress finish.
func TestStopOnFailure(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3", "n4")
	o := w.apply(`{metadata: {name: canary}, spec: {command: [x], concurrency: 2, stopOnFailure: true, preflight: {command: [y]}}}`)
	w.check["n1"] = "!"
	w.run()
	want(t, "phase", o.Status.Phase, v1alpha1.PhaseFailed)
	want(t, "n1", o.Status.NodeStatuses["n1"].Message, "Preflight failed: exit 4")
	want(t, "n2", o.Status.NodeStatuses["n2"].Phase, v1alpha1.PhaseCompleted) // its check was in progress: it goes on
	want(t, "nodes", len(o.Status.NodeStatuses), 2)
	want(t, "order", w.order("run preflight"), "n1 n2")
	want(t, "left over", len(slices.DeleteFunc(w.pods, func(p *corev1.Pod) bool { return p.Labels[v1alpha1.LabelPreflight] == "" })), 0)
}

// Without stopOnFailure the other nodes go on, and a failed node stays cordoned unless uncordonOnFailure is set.
func TestFailureLeavesOthers(t *testing.T) {
	for _, uncordon := range []string{"false", "true"} {
		w := newWorld(t, "n1", "n2")
		o := w.apply(`{metadata: {name: check}, spec: {command: [x], concurrency: 1, cordon: true, backoffLimit: 2, uncordonOnFailure: ` + uncordon + `}}`)
		w.ends["n1"] = "fail"
		w.run()
		e := o.Status.NodeStatuses["n1"]
		want(t, "message", e.Message, textJobFailed)
		want(t, "exit code", *e.ExitCode, int32(3))
		want(t, "attempts", e.Attempts, int32(3))
		want(t, "output", e.Output, "no such file")
		want(t, "phase", o.Status.Phase, v1alpha1.PhaseFailed)
		want(t, "n2", o.Status.NodeStatuses["n2"].Phase, v1alpha1.PhaseCompleted)
		want(t, "cordoned", w.node("n1").Unschedulable, uncordon == "false")
		want(t, "mark", w.node("n1").Annotations[v1alpha1.AnnotationCordonedBy] != "", uncordon == "false")
		want(t, "n2 cordoned", w.node("n2").Unschedulable, false)
		now := metav1.NewTime(w.now)
		o.DeletionTimestamp = &now
		w.run()
		want(t, "cordoned after deletion", w.node("n1").Unschedulable, false)
		want(t, "marks", len(w.node("n1").Annotations), 0)
		want(t, "NodeOps", len(w.ops), 0)
	}
}

// The cordon of somebody else is never removed.
func TestForeignCordon(t *testing.T) {
	w := newWorld(t, "n1")
	o := w.apply(`{metadata: {name: check}, spec: {command: [x], cordon: true}}`)
	w.node("n1").Unschedulable = true
	w.run()
	want(t, "phase", o.Status.Phase, v1alpha1.PhaseCompleted)
	want(t, "cordoned", w.node("n1").Unschedulable, true)
	w.node("n1").Annotations[v1alpha1.AnnotationCordonedBy] = "default/check@another-uid"
	w.apply(`{metadata: {name: second}, spec: {command: [x], cordon: true}}`)
	w.run()
	want(t, "cordoned", w.node("n1").Unschedulable, true)
}

// Two NodeOps are never in progress on one node at the same time, and neither uncordons the node of the other.
func TestOneAtATime(t *testing.T) {
	w := newWorld(t, "n1", "n2")
	a := w.apply(`{metadata: {name: a}, spec: {command: [x], cordon: true}}`)
	b := w.apply(`{metadata: {name: b}, spec: {command: [x], cordon: true}}`)
	for range 30 {
		w.turn()
		for _, n := range w.nodes {
			if len(w.holds(n)) > 1 {
				t.Fatalf("%s is held by two", n.Name)
			}
		}
	}
	want(t, "a", a.Status.Phase, v1alpha1.PhaseCompleted)
	want(t, "b", b.Status.Phase, v1alpha1.PhaseCompleted)
	want(t, "order", w.order("run command"), "n1 n2 n1 n2")
}

// Concurrency 0 starts all nodes at once, and warns if that includes the whole control plane.
func TestControlPlaneAtOnce(t *testing.T) {
	w := newWorld(t, "cp1", "cp2", "n1")
	w.apply(`{metadata: {name: up}, spec: {command: [x], rebootOnSuccess: true}}`)
	w.turn()
	want(t, "order", w.order("run command"), "cp1 cp2 n1")
	w.turn()
	want(t, "warned", w.warned(eventQuorum), true)
	w = newWorld(t, "cp1", "cp2")
	w.apply(`{metadata: {name: up}, spec: {command: [x], rebootOnSuccess: true, concurrency: 1}}`)
	w.run()
	want(t, "warned", w.warned(eventQuorum), false)
}

// The check skips or fails a node before its workloads are disturbed, and its deadline starts when it runs.
func TestPreflight(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	o := w.apply(`{metadata: {name: up}, spec: {command: [x], cordon: true, rebootOnSuccess: true, preflight: {command: [y]}}}`)
	w.check["n1"], w.check["n2"] = "node is already at v1\n", "hang"
	w.run()
	e := o.Status.NodeStatuses["n1"]
	want(t, "phase", e.Phase, v1alpha1.PhaseCompleted)
	want(t, "message", e.Message, "Skipped by preflight: node is already at v1")
	want(t, "job", e.JobName, "")
	want(t, "reboot", e.RebootStatus, v1alpha1.RebootNotRequested)
	want(t, "boot", w.node("n1").BootID, "boot-1")
	want(t, "n2", o.Status.NodeStatuses["n2"].Message, "Preflight failed: it took longer than 2m0s")
	want(t, "skipped", o.Status.Skipped, int32(1))
	want(t, "completed", o.Status.Completed, int32(1))
	want(t, "held", w.order("hold"), "n3")
	w = newWorld(t, "n1") // pulling its image takes ten minutes
	o = w.apply(`{metadata: {name: up}, spec: {command: [x], preflight: {command: [y]}}}`)
	w.pass()
	w.now = w.now.Add(10 * time.Minute)
	w.pass()
	want(t, "phase", o.Status.NodeStatuses["n1"].Phase, v1alpha1.PhasePreflight)
	w.run()
	want(t, "phase", o.Status.Phase, v1alpha1.PhaseCompleted)
}

// A drain waits until pods are gone, and a node whose drain times out fails and is released.
func TestDrain(t *testing.T) {
	w := newWorld(t, "n1", "n2")
	o := w.apply(`{metadata: {name: up}, spec: {command: [x], concurrency: 1, cordon: true, drainOptions: {enabled: true, timeoutSeconds: 60}}}`)
	w.busy["n1"] = []rollout.Pod{{Namespace: "default", Name: "db", UID: "1", Keep: "nothing recreates it"}}
	w.busy["n2"] = []rollout.Pod{{Namespace: "default", Name: "web", UID: "2"}}
	w.run()
	want(t, "n1", o.Status.NodeStatuses["n1"].Phase, v1alpha1.PhaseFailed)
	if m := o.Status.NodeStatuses["n1"].Message; !strings.Contains(m, "default/db") {
		t.Errorf("the message does not name the pod: %s", m)
	}
	want(t, "cordoned", w.node("n1").Unschedulable, false)
	want(t, "order", w.order("run command"), "n2")
}

// Suspended, nothing starts and what runs ends.
func TestSuspend(t *testing.T) {
	w := newWorld(t, "n1", "n2")
	o := w.apply(plainOp)
	w.turn()
	yes := true
	o.Spec.Suspend = &yes
	w.run()
	want(t, "order", w.order("run command"), "n1")
	want(t, "reason", condition(o, v1alpha1.ConditionProgressing).Reason, v1alpha1.ReasonSuspended)
	*o.Spec.Suspend = false
	w.run()
	want(t, "phase", o.Status.Phase, v1alpha1.PhaseCompleted)
}

// Deleted at any moment it ends, and holds nothing afterwards.
func TestDeletion(t *testing.T) {
	for turns := range 14 {
		w := newWorld(t, "n1", "n2")
		o := w.apply(`{metadata: {name: up}, spec: {command: [x], concurrency: 1, cordon: true, rebootOnSuccess: true, preflight: {command: [y]}}}`)
		for range turns {
			w.turn()
		}
		now := metav1.NewTime(w.now)
		o.DeletionTimestamp = &now
		w.run()
		want(t, "NodeOps", len(w.ops), 0)
		for _, n := range w.nodes {
			want(t, "cordoned", n.Unschedulable, false)
			want(t, "annotations", len(n.Annotations), 0)
		}
	}
}

// A node that is no longer selected ends what runs and frees its slot; another of the same name begins afresh.
func TestLeavingAndReplaced(t *testing.T) {
	w := newWorld(t, "n1", "n2")
	w.node("n1").Labels["pool"], w.node("n2").Labels["pool"] = "a", "a"
	o := w.apply(`{metadata: {name: up}, spec: {command: [x], concurrency: 1, cordon: true, nodeSelector: {matchLabels: {pool: a}}, preflight: {command: [y]}}}`)
	w.check["n1"] = "hang"
	w.turn()
	w.turn()
	delete(w.node("n1").Labels, "pool")
	w.check["n1"] = ""
	w.run()
	want(t, "phase", o.Status.Phase, v1alpha1.PhaseCompleted)
	want(t, "order", w.order("run command"), "n2")
	want(t, "annotations", len(w.node("n1").Annotations), 0)

	w = newWorld(t, "n1", "n2")
	o = w.apply(plainOp)
	w.ends["n1"] = "hang"
	for range 3 {
		w.turn()
	}
	w.remove("n1")
	n := w.addNode("n1")
	n.UID, n.BootID = "uid-again", "boot-9"
	w.ends["n1"] = ""
	w.run()
	want(t, "phase", o.Status.Phase, v1alpha1.PhaseCompleted)
	want(t, "jobs", w.count("Job"), 3)
}
