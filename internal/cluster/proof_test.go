// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
)

// requireVerdict checks what the engine says of a node.
func (s *scenario) requireVerdict(hook, node, want string) {
	s.Helper()
	if got := s.verdict(hook, node); !strings.HasPrefix(got, want) {
		s.Errorf("the verdict on %s is %q, want %q", node, got, want)
	}
}

// TestProof: a node whose work is done stays cordoned and in its slot until everything is true that the Skyhook and its policy ask for.
// A proof that is late is a failure, and the node is given back when it is complete after all.
func TestProof(t *testing.T) {
	s := newScenario(t, 2)
	for _, n := range []string{"n1", "n2"} {
		s.setNodeHealth(n, "8", corev1.ConditionTrue)
	}
	s.Apply(policyYAML("  proof: {resources: [{name: nvidia.com/gpu}], timeout: 10m}\n"))
	s.Apply(strings.Replace(withPolicy(driver), "  packages:", `  proof: {nodeConditions: [{type: KernelDeadlock, status: "False"}], timeout: 1h}
  packages:`, 1))
	s.passes(30)
	s.requireVerdict("driver", "n1", "Proof: condition KernelDeadlock of the node is True, and must be False")
	s.requireVerdict("driver", "n2", "Budget: the budget of 1 node is used: n1")
	if !s.GetNode("n1").Spec.Unschedulable {
		t.Error("n1 was given back before it is proven")
	}

	s.setNodeHealth("n1", "7", corev1.ConditionTrue)
	s.passes(2)
	s.now = s.now.Add(10 * time.Minute)
	s.passes(2)
	s.requireVerdict("driver", "n1", "ProofFailed: the node offers 7 of nvidia.com/gpu, and must offer 8 as when it was admitted for 10m0s; the node is not given back")
	if !s.GetNode("n1").Spec.Unschedulable {
		t.Error("n1 was given back though its proof failed")
	}

	s.setNodeHealth("n1", "8", corev1.ConditionFalse)
	s.setNodeHealth("n2", "8", corev1.ConditionFalse)
	s.passUntilComplete("driver")
	for _, n := range []string{"n1", "n2"} {
		if s.GetNode(n).Spec.Unschedulable {
			t.Errorf("%s was not given back", n)
		}
	}
}

// TestProofOfDaemonSets: the pods of all selected DaemonSets must be ready on the node, also of one that is not cordoned, and a
// selector that finds none fails. With Release a late node is given back.
func TestProofOfDaemonSets(t *testing.T) {
	s := newScenario(t, 1)
	const set = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: plugin, namespace: default, labels: {team: gpu}}
spec:
  selector: {matchLabels: {app: plugin}}
  template:
    metadata: {labels: {app: plugin}}
    spec: {containers: [{name: main, image: registry.example/plugin:1}]}
`
	t.Cleanup(func() {
		s.Must(s.Client.DeleteAllOf(context.Background(), &appsv1.DaemonSet{}, client.InNamespace("default")))
	})
	s.Apply(strings.Replace(demo, "  packages:", "  proof: {daemonSets: [{namespace: default, selector: {matchLabels: {team: gpu}}}], timeout: 5m, onTimeout: Release}\n  packages:", 1))
	s.passes(12)
	s.requireVerdict("demo", "n1", "Proof: there are no DaemonSets team=gpu in default")
	s.Apply(set)
	s.passes(2)
	s.requireVerdict("demo", "n1", "Proof: DaemonSet default/plugin has no ready pod on the node")

	s.runDaemonPod("plugin", "n1")
	s.passes(4)
	s.requireVerdict("demo", "n1", "Finished: no work is pending")

	// An edit begins another admission, with its own proof.
	s.Must(s.Client.DeleteAllOf(context.Background(), &corev1.Pod{}, client.InNamespace("default"), client.GracePeriodSeconds(0)))
	s.Patch(s.GetSkyhook("demo"), `{"spec":{"packages":{"tuning":{"configMap":{"apply.sh":"echo again"}}}}}`)
	s.passes(8)
	s.requireVerdict("demo", "n1", "Proof: DaemonSet default/plugin has no ready pod on the node")
	s.now = s.now.Add(5 * time.Minute)
	s.passes(3)
	s.requireVerdict("demo", "n1", "Finished: no work is pending")
}

// runDaemonPod creates a ready pod of a DaemonSet on a node.
func (s *scenario) runDaemonPod(set, node string) {
	s.Helper()
	owner := &metav1.PartialObjectMetadata{}
	owner.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("DaemonSet"))
	s.Must(s.Client.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: set}, owner))
	name := set + "-" + node
	s.Apply(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: default, ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: %s, uid: %s, controller: true}]}
spec: {nodeName: %s, containers: [{name: main, image: registry.example/plugin:1}]}
`, name, set, owner.UID, node))
	p := &corev1.Pod{}
	s.Must(s.Client.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: name}, p))
	ready := p.DeepCopy()
	ready.Status.Phase, ready.Status.Conditions = corev1.PodRunning, []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	s.Must(s.Client.Status().Patch(context.Background(), ready, client.MergeFrom(p)))
}

// TestProofOfNodeOp: the node of a NodeOp stays held until its proof and that of its policy are complete, and the NodeOp is running
// meanwhile.
func TestProofOfNodeOp(t *testing.T) {
	s := newScenario(t, 2)
	for _, n := range []string{"n1", "n2"} {
		s.setNodeHealth(n, "8", corev1.ConditionTrue)
	}
	s.Apply(policyYAML("  proof: {resources: [{name: nvidia.com/gpu, atLeast: 8}]}\n"))
	s.createNodeOp("up", `deploymentPolicy: careful
  cordon: true
  proof: {nodeConditions: [{type: KernelDeadlock, status: "False"}], timeout: 10m}`)
	s.nodeOpPasses(6, time.Second)
	s.endJobs(true)
	s.nodeOpPasses(6, time.Second)
	entry := s.getNodeOp("up").Status.NodeStatuses["n1"]
	if !s.GetNode("n1").Spec.Unschedulable || entry.Phase != opv1.PhaseRunning || !strings.Contains(entry.Message, "condition KernelDeadlock of the node is True") {
		t.Errorf("before the proof the node is schedulable, or its entry is wrong: %+v", entry)
	}
	s.now = s.now.Add(10 * time.Minute)
	s.nodeOpPasses(3, time.Second)
	if entry := s.getNodeOp("up").Status.NodeStatuses["n1"]; !strings.Contains(entry.Message, "for 10m0s; the node is not given back") {
		t.Errorf("after the timeout the entry is %+v", entry)
	}
	for _, n := range []string{"n1", "n2"} {
		s.setNodeHealth(n, "8", corev1.ConditionFalse)
	}
	if done := s.finishNodeOp("up", true); done.Status.Phase != opv1.PhaseCompleted || done.Status.Completed != 2 {
		t.Errorf("it ended as %+v", done.Status)
	}
	if s.GetNode("n1").Spec.Unschedulable {
		t.Error("the node was not given back")
	}
}
