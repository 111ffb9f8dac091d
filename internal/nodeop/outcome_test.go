// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/nodeop/upgrade"
)

// A command that hangs, or a Job without a pod, fails at its deadline. Then its Job is deleted, and the next node
// starts.
func TestDeadline(t *testing.T) {
	for spec, limit := range map[string]time.Duration{
		"activeDeadlineSeconds: 60": time.Minute + nodeop.DeadlineGrace,
		"backoffLimit: 1":           2*(nodeop.DefaultTryTimeout+nodeop.MaxRetryDelay) + nodeop.DeadlineGrace,
	} {
		w := newEnvironment(t, "n1", "n2")
		o := w.applyYAML(`{metadata: {name: check}, spec: {command: [x], concurrency: 1, cordon: true, uncordonOnFailure: true, ` + spec + `}}`)
		w.commands["n1"] = "hang"
		w.tick()
		w.tick()
		w.now = w.nodes[0].Created.Add(limit - time.Minute)
		w.tick()
		requireEqual(t, "message", o.Status.NodeStatuses["n1"].Message, "Job is running")
		w.runToEnd()
		e := o.Status.NodeStatuses["n1"]
		requireEqual(t, "phase", e.Phase, v1alpha1.PhaseFailed)
		if !strings.HasPrefix(e.Message, nodeop.TextJobFailed+": ") || !strings.Contains(e.Message, limit.String()) {
			t.Errorf("%s: it says %q, and may take %s", spec, e.Message, limit)
		}
		requireEqual(t, "Jobs left", len(w.jobs), 1)
		requireEqual(t, "n2", o.Status.NodeStatuses["n2"].Phase, v1alpha1.PhaseCompleted)
		requireEqual(t, "cordoned", w.node("n1").Unschedulable, false)
	}
}

// NodeOps of one name in two namespaces are independent: one is deleted while both run, and the other completes.
func TestSameNameElsewhere(t *testing.T) {
	w := newEnvironment(t, "n1", "n2")
	for _, namespace := range []string{"a", "b"} {
		w.applyYAML(`{metadata: {name: up, namespace: ` + namespace + `, uid: ` + namespace + `0000000-0000-4000-8000-000000000000}, spec: {command: [x], cordon: true, rebootOnSuccess: true, concurrency: 1}}`)
	}
	a, b := w.ops[0], w.ops[1]
	for range 4 {
		w.tick()
	}
	now := metav1.NewTime(w.now)
	a.DeletionTimestamp = &now
	w.runToEnd()
	requireEqual(t, "NodeOps", len(w.ops), 1)
	requireEqual(t, "b", b.Status.Phase, v1alpha1.PhaseCompleted)
	requireEqual(t, "completed", b.Status.Completed, int32(2))
	names := map[string]bool{}
	for _, j := range w.jobs {
		names[j.Namespace+" "+j.Name] = true
		requireEqual(t, j.Name+" in "+j.Namespace, j.OwnerReferences[0].UID == map[string]*v1alpha1.NodeOp{"a": a, "b": b}[j.Namespace].UID, true)
	}
	requireEqual(t, "Jobs", len(names), len(w.jobs))
	for _, n := range w.nodes {
		requireEqual(t, n.Name+" cordoned", n.Unschedulable, false)
		requireEqual(t, n.Name+" annotations", len(n.Annotations), 0)
	}
}

// A failed upgrade is retried once, not six times. A pod that the node or the control plane ended does not count as a
// try.
func TestUpgradeIsTriedTwice(t *testing.T) {
	w := newEnvironment(t, "n1")
	o := w.addNodeOp(upgrade.NewNodeOp(newUpgrade(t, `{image: x, force: true}`)))
	w.commands["n1"] = "fail"
	w.runToEnd()
	requireEqual(t, "attempts", o.Status.NodeStatuses["n1"].Attempts, int32(2))
	rules := w.jobs[0].Spec.PodFailurePolicy.Rules
	requireEqual(t, "rules", fmt.Sprint(rules[0].Action, rules[0].OnPodConditions[0].Type), "IgnoreDisruptionTarget")
}

// Each event is recorded once, on the node that it is about.
func TestEvents(t *testing.T) {
	w := newEnvironment(t, "cp1", "n2")
	w.applyYAML(`{metadata: {name: up}, spec: {command: [x], rebootOnSuccess: true, cordon: true, concurrency: 1, backoffLimit: 0}}`)
	w.commands["n2"] = "fail"
	w.runToEnd()
	var recorded []string
	for _, e := range w.events {
		recorded = append(recorded, strings.TrimSpace(fmt.Sprint(e.Type, " ", e.Reason, " ", e.Node, ": ", e.Message)))
	}
	if all := []string{
		"Normal Started cp1: NodeOp default/up begins to work on node cp1",
		"Normal Reboot cp1: NodeOp default/up: the command ended well, node cp1 reboots",
		"Normal Finished cp1: NodeOp default/up is done with node cp1: no work is pending",
		"Normal Started n2: NodeOp default/up begins to work on node n2",
		"Warning Failed n2: NodeOp default/up failed on node n2: Job failed",
		"Warning Failed : 2 of 2 nodes done, 1 failed; node n2: Job failed: no such file",
	}; !slices.Equal(recorded, all) {
		t.Errorf("events are\n%s\nwant\n%s", strings.Join(recorded, "\n"), strings.Join(all, "\n"))
	}
}

// A change of concurrency applies immediately: a higher one starts more nodes, a lower one starts none until fewer are
// in progress.
func TestConcurrencyChanges(t *testing.T) {
	w := newEnvironment(t, "n1", "n2", "n3", "n4", "n5")
	o := w.applyYAML(plainOp)
	for _, n := range w.nodes[:4] {
		w.commands[n.Name] = "hang"
	}
	w.tick()
	requireEqual(t, "order", w.actionOrder("run command"), "n1")
	o.Spec.Concurrency = new(int32(3))
	for range 3 {
		w.tick()
	}
	requireEqual(t, "order", w.actionOrder("run command"), "n1 n2 n3")
	o.Spec.Concurrency = new(int32(1))
	w.commands["n1"], w.commands["n2"] = "", ""
	for range 6 {
		w.tick()
	}
	requireEqual(t, "order", w.actionOrder("run command"), "n1 n2 n3") // n3 is in progress
	w.commands["n3"], w.commands["n4"] = "", ""
	w.runToEnd()
	requireEqual(t, "order", w.actionOrder("run command"), "n1 n2 n3 n4 n5")
	requireEqual(t, "phase", o.Status.Phase, v1alpha1.PhaseCompleted)
}
