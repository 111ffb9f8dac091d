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
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster/gates"
	"github.com/skyhook-k8s/skyhook/internal/node"
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
	s.Apply(strings.Replace(withPolicy(driver), "  packages:", `  proof: {nodeConditions: [KernelDeadlock=False], timeout: 1h}
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

const daemonSet = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: plugin, namespace: default}
spec:
  selector: {matchLabels: {app: plugin}}
  template:
    metadata: {labels: {app: plugin}}
    spec: {containers: [{name: main, image: registry.example/plugin:1}]}
`

// TestProofOfDaemonSets: the pod of a DaemonSet must be ready on the node, also if that is not cordoned, and one that does not exist
// fails. With Release a late node is given back.
func TestProofOfDaemonSets(t *testing.T) {
	s := newScenario(t, 1)
	t.Cleanup(func() {
		s.Must(s.Client.DeleteAllOf(context.Background(), &appsv1.DaemonSet{}, client.InNamespace("default")))
	})
	s.Apply(strings.Replace(demo, "  packages:", "  proof: {daemonSets: [default/plugin], timeout: 5m, onTimeout: Release}\n  packages:", 1))
	s.passes(12)
	s.requireVerdict("demo", "n1", "Proof: DaemonSet default/plugin does not exist")
	s.Apply(daemonSet)
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
func (s *scenario) runDaemonPod(set, on string) {
	s.Helper()
	owner := &appsv1.DaemonSet{}
	s.Must(s.Client.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: set}, owner))
	name := set + "-" + on
	s.Apply(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: default, ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: %s, uid: %s, controller: true}]}
spec: {nodeName: %s, nodeSelector: %s, containers: [{name: main, image: registry.example/plugin:1}]}
`, name, set, owner.UID, on, node.EncodeJSON(owner.Spec.Template.Spec.NodeSelector)))
	p := &corev1.Pod{}
	s.Must(s.Client.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: name}, p))
	ready := p.DeepCopy()
	ready.Status.Phase, ready.Status.Conditions = corev1.PodRunning, []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	s.Must(s.Client.Status().Patch(context.Background(), ready, client.MergeFrom(p)))
}

// TestSetLabels: labels of nodeMarks turn the pod of a DaemonSet away. The drain waits until it is gone, the node has its labels from before when
// the work is done, and the proof waits until the pod is back.
func TestSetLabels(t *testing.T) {
	s := newScenario(t, 1)
	const key = "example.com/deploy"
	label := func() string { return s.GetNode("n1").Labels[key] }
	s.Patch(s.GetNode("n1"), `{"metadata": {"labels": {"`+key+`": "true"}}}`)
	s.Apply(strings.Replace(daemonSet, "spec: {containers", "spec: {nodeSelector: {"+key+`: "true"}, containers`, 1))
	t.Cleanup(func() {
		s.Must(s.Client.DeleteAllOf(context.Background(), &appsv1.DaemonSet{}, client.InNamespace("default")))
	})
	s.runDaemonPod("plugin", "n1")
	s.Apply(strings.Replace(markedDriver("{labels: {"+key+": paused}}"), "  packages:", "  profile: Recommended\n  packages:", 1))
	s.passes(12)
	s.requireVerdict("driver", "n1", "PodLeaving: pod default/plugin-n1, which the labels of nodeMarks turn away, has not been deleted by its DaemonSet yet")
	if label() != "paused" {
		t.Errorf("the label is %q", label())
	}
	deletePod := func() {
		s.Must(s.Client.DeleteAllOf(context.Background(), &corev1.Pod{}, client.InNamespace("default"), client.GracePeriodSeconds(0)))
	}
	deletePod()
	s.passes(30)
	s.requireVerdict("driver", "n1", "Proof: DaemonSet default/plugin has no ready pod on the node")
	if n := s.GetNode("n1"); label() != "true" || !n.Spec.Unschedulable {
		t.Errorf("while the pod is waited for the label is %q, and the cordon %v", label(), n.Spec.Unschedulable)
	}
	s.runDaemonPod("plugin", "n1")
	s.passUntilComplete("driver")
	if n := s.GetNode("n1"); label() != "true" || n.Spec.Unschedulable || n.Annotations[v1alpha1.AnnotationNodeMarks] != "" {
		t.Errorf("at the end the label is %q, the cordon %v, and recorded is %q", label(), n.Spec.Unschedulable, n.Annotations[v1alpha1.AnnotationNodeMarks])
	}
}

// TestProofOfNodeOp: the node of a NodeOp stays held until the proof of its policy is complete, and the NodeOp is running
// meanwhile.
func TestProofOfNodeOp(t *testing.T) {
	s := newScenario(t, 2)
	for _, n := range []string{"n1", "n2"} {
		s.setNodeHealth(n, "8", corev1.ConditionTrue)
	}
	s.Apply(policyYAML("  proof: {resources: [{name: nvidia.com/gpu, atLeast: 8}], nodeConditions: [KernelDeadlock=False], timeout: 10m}\n"))
	s.createNodeOp("up", "deploymentPolicy: careful\n  cordon: true")
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

// TestProofOfObjects: expressions about objects of any kind are asked about each node that is to be given back, and again while it waits.
// What may not be read, or is not known, keeps the node and says what to do.
func TestProofOfObjects(t *testing.T) {
	s := newScenario(t, 2)
	s.Apply(policyYAML("  proof: {objects: [{apiVersion: v1, kind: ConfigMap, namespace: default, name: health-$(NODE_NAME), cel: \"object.data.state == 'good' && object.metadata.name == 'health-' + node.metadata.name\"}], timeout: 2h}\n"))
	s.Apply(strings.Replace(withPolicy(demo), "  packages:", "  proof: {objects: [{apiVersion: example.com/v1, kind: Wheel, name: left, cel: object.status.round}], timeout: 1h}\n  packages:", 1))
	s.passes(12)
	s.requireVerdict("demo", "n1", "Proof: the API server does not know Wheel of example.com/v1: install it, or correct apiVersion and kind")
	s.Patch(s.GetSkyhook("demo"), `{"spec":{"proof":{"objects":[{"apiVersion":"v1","kind":"Namespace","selector":"kubernetes.io/metadata.name=default","cel":"object.status.phase == 'Active'"}]}}}`)
	s.passes(3)
	s.requireVerdict("demo", "n1", "Proof: ConfigMap default/health-n1 does not exist")
	s.Apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: health-n1, namespace: default}\ndata: {state: bad}")
	s.now = s.now.Add(gates.AnswerLifetime)
	s.passes(2)
	s.requireVerdict("demo", "n1", "Proof: ConfigMap default/health-n1 does not meet object.data.state == 'good' && object.metadata.name == 'health-' + node.metadata.name")

	before := s.cluster.options.Objects
	s.cluster.options.Objects = s.readerAs("nobody")
	s.now = s.now.Add(gates.AnswerLifetime)
	s.passes(2)
	s.requireVerdict("demo", "n1", `Proof: Namespace with kubernetes.io/metadata.name=default may not be read: grant "list" on namespaces in a ClusterRole with the label skyhook.nvidia.com/aggregate-to-operator=true`)
	s.cluster.options.Objects = before

	for _, n := range []string{"n1", "n2"} {
		s.Apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: health-" + n + ", namespace: default}\ndata: {state: good}")
	}
	if o, _ := s.decide(s.cluster); o.Objects.RetryAt.IsZero() || o.Objects.RetryAt.After(s.now.Add(gates.AnswerLifetime)) {
		t.Errorf("the objects are read again at %s, now is %s", o.Objects.RetryAt, s.now)
	}
	s.now = s.now.Add(gates.AnswerLifetime)
	s.passUntilComplete("demo")
}

// TestObjectGate: an expression of a policy's health gates keeps nodes from being admitted.
func TestObjectGate(t *testing.T) {
	s := newScenario(t, 1)
	s.Apply(policyYAML("  health: {objects: [{apiVersion: v1, kind: ConfigMap, namespace: default, selector: of=storage, cel: object.data.state == 'good'}]}"))
	s.Apply(withPolicy(demo))
	s.passes(4)
	s.requireVerdict("demo", "n1", "HealthGate: there is no ConfigMap with of=storage in default")
	for name, state := range map[string]string{"east": "good", "west": "bad"} {
		s.Apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + ", namespace: default, labels: {of: storage}}\ndata: {state: " + state + "}")
	}
	s.now = s.now.Add(gates.AnswerLifetime)
	s.passes(2)
	s.requireVerdict("demo", "n1", "HealthGate: ConfigMap default/west does not meet object.data.state == 'good'")
	s.Apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: west, namespace: default, labels: {of: storage}}\ndata: {state: good}")
	s.now = s.now.Add(gates.AnswerLifetime)
	s.passUntilComplete("demo")
}

// readerAs returns a reader with the rights of a user.
func (s *scenario) readerAs(user string) client.Reader {
	s.Helper()
	config := rest.CopyConfig(s.Config)
	config.Impersonate.UserName = user
	c, err := client.New(config, client.Options{})
	s.Must(err)
	return c
}

// TestInvalidObjects: an expression that cannot be used stops the rollout before it begins, and names the field.
func TestInvalidObjects(t *testing.T) {
	s := newScenario(t, 1)
	s.Apply(strings.Replace(demo, "  packages:", "  proof: {objects: [{apiVersion: v1, kind: ConfigMap, namespace: default, name: x, cel: self.data.ok}]}\n  packages:", 1))
	s.passes(3)
	s.requireVerdict("demo", "n1", "InvalidSpec: proof.objects[0].cel cannot be used: column 1: undeclared reference to 'self' (in container '')")
	s.Apply(markedDriver("{labels: {skyhook.nvidia.com/x: paused}}"))
	s.passes(1)
	s.requireVerdict("driver", "n1", "InvalidSpec: labels of nodeMarks have skyhook.nvidia.com/x=paused, which is not for others to set: use another label")
	s.Apply(policyYAML("  proof: {objects: [{apiVersion: v1, kind: ConfigMap, namespace: default, name: x, cel: object.data.ok +}]}\n"))
	s.createNodeOp("up", "deploymentPolicy: careful")
	s.nodeOpPasses(3, time.Second)
	if got := s.getNodeOp("up").Status; len(got.NodeStatuses) > 0 || !strings.Contains(fmt.Sprint(got.Conditions), "proof.objects[0].cel of DeploymentPolicy careful cannot be used: column 17: Syntax error") {
		t.Errorf("the NodeOp's status is %+v", got)
	}
}
