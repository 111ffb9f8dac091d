// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// TestProofOfObjects: expressions about objects of any kind are asked about each node that is to be given back, and again while it waits.
// What may not be read, or is not known, keeps the node and says what to do.
func TestProofOfObjects(t *testing.T) {
	s := newScenario(t, 2)
	s.Apply(policyYAML("  proof: {objects: [{apiVersion: v1, kind: ConfigMap, namespace: default, name: health-$(NODE_NAME), cel: \"object.data.state == 'good' && object.metadata.name == 'health-' + node.metadata.name\"}], timeout: 2h}\n"))
	s.Apply(strings.Replace(withPolicy(demo), "  packages:", "  proof: {objects: [{apiVersion: example.com/v1, kind: Wheel, name: left, cel: object.status.round}], timeout: 1h}\n  packages:", 1))
	s.passes(12)
	s.requireVerdict("demo", "n1", "Proof: the API server does not know Wheel of example.com/v1: install it, or correct apiVersion and kind")
	s.Patch(s.GetSkyhook("demo"), `{"spec":{"proof":{"objects":[{"apiVersion":"v1","kind":"Namespace","selector":{"matchLabels":{"kubernetes.io/metadata.name":"default"}},"cel":"object.status.phase == 'Active'"}]}}}`)
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
	if o, _ := s.decide(s.cluster); o.RetryAt.IsZero() || o.RetryAt.After(s.now.Add(gates.AnswerLifetime)) {
		t.Errorf("the objects are read again at %s, now is %s", o.RetryAt, s.now)
	}
	s.now = s.now.Add(gates.AnswerLifetime)
	s.passUntilComplete("demo")
}

// TestObjectGate: an expression of a policy's health gates keeps nodes from being admitted.
func TestObjectGate(t *testing.T) {
	s := newScenario(t, 1)
	s.Apply(policyYAML("  health: {objects: [{apiVersion: v1, kind: ConfigMap, namespace: default, selector: {matchLabels: {of: storage}}, cel: object.data.state == 'good'}]}"))
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
	s.createNodeOp("up", "proof: {objects: [{apiVersion: v1, kind: ConfigMap, namespace: default, name: x, cel: object.data.ok +}]}")
	s.nodeOpPasses(3, time.Second)
	if got := s.getNodeOp("up").Status; len(got.NodeStatuses) > 0 || !strings.Contains(fmt.Sprint(got.Conditions), "proof.objects[0].cel cannot be used: column 17: Syntax error") {
		t.Errorf("the NodeOp's status is %+v", got)
	}
}

// findCheckPods returns the pods that run commands of proofs.
func (s *scenario) findCheckPods() []corev1.Pod {
	s.Helper()
	l := &corev1.PodList{}
	s.Must(s.Client.List(context.Background(), l, client.HasLabels{v1alpha1.LabelProof}))
	return slices.DeleteFunc(l.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
}

// endCheck is what a kubelet reports after the command of the only such pod ended.
func (s *scenario) endCheck(code int32, restarts int32, said string) {
	s.Helper()
	pods := s.findCheckPods()
	if len(pods) != 1 {
		s.Fatalf("%d pods check nodes", len(pods))
	}
	p := pods[0].DeepCopy()
	ended := &corev1.ContainerStateTerminated{ExitCode: code, Message: said, FinishedAt: metav1.Now()}
	status := corev1.ContainerStatus{Name: node.ContainerProof, RestartCount: restarts, State: corev1.ContainerState{Terminated: ended}}
	p.Status.Phase = corev1.PodSucceeded
	if code != 0 {
		p.Status.Phase, status.State, status.LastTerminationState = corev1.PodRunning, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}, status.State
	}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{status}
	s.Must(s.Client.Status().Patch(context.Background(), p, client.MergeFrom(&pods[0])))
}

// TestProofCommand: a command runs on the node when everything else is true. While it fails the node stays, and what it said is shown;
// another command is run by another pod. No pod is left afterwards.
func TestProofCommand(t *testing.T) {
	s := newScenario(t, 1)
	s.Apply(strings.Replace(demo, "  packages:", `  proof:
    nodeConditions: [{type: KernelDeadlock, status: "False"}]
    command: {image: registry.example/tester:1, command: [dcgmi, diag], env: [{name: LEVEL, value: "2"}, {name: NODE_NAME, value: other}]}
  packages:`, 1))
	s.passes(12)
	s.requireVerdict("demo", "n1", "Proof: condition KernelDeadlock of the node is absent, and must be False")
	if pods := s.findCheckPods(); len(pods) > 0 {
		t.Errorf("the command runs before everything else is true: %s", pods[0].Name)
	}
	s.setNodeHealth("n1", "8", corev1.ConditionFalse)
	s.pass()
	s.pass()
	s.requireVerdict("demo", "n1", "Proof: the command of the proof has not started")
	first := s.findCheckPods()[0]
	container := first.Spec.Containers[0]
	want := []corev1.EnvVar{{Name: "LEVEL", Value: "2"}, {Name: "NODE_NAME", Value: "n1"}}
	if container.Image != "registry.example/tester:1" || !slices.Equal(container.Command, []string{"dcgmi", "diag"}) || !reflect.DeepEqual(container.Env, want) || container.VolumeMounts[0].MountPath != "/host" {
		t.Errorf("the container is %+v", container)
	}

	s.endCheck(3, 1, "GPU 3\nis off the bus")
	s.pass()
	s.requireVerdict("demo", "n1", "Proof: the command of the proof ended with exit code 3, and ran 2 times: GPU 3 is off the bus")
	if pods := s.findCheckPods(); len(pods) != 1 || pods[0].UID != first.UID {
		t.Errorf("the kubelet repeats the command, and the pods are now %v", pods)
	}
	s.Patch(s.GetSkyhook("demo"), `{"spec":{"proof":{"command":{"command":["nvidia-smi"]}}}}`)
	s.pass()
	s.pass()
	if pods := s.findCheckPods(); len(pods) != 1 || pods[0].UID == first.UID || pods[0].Spec.Containers[0].Command[0] != "nvidia-smi" {
		t.Errorf("after an edit the pods are %v", pods)
	}
	s.endCheck(0, 0, "")
	s.passes(3)
	s.requireVerdict("demo", "n1", "Finished: no work is pending")
	if pods := s.findCheckPods(); len(pods) > 0 {
		t.Errorf("the node is given back, and %s is left", pods[0].Name)
	}
}

// TestProofCommandOfNodeOp: a command of the policy runs for the nodes of a NodeOp too.
func TestProofCommandOfNodeOp(t *testing.T) {
	s := newScenario(t, 1)
	s.Apply(policyYAML("  proof: {command: {image: registry.example/tester:1, command: [check], hostMountPath: /node}}\n"))
	s.createNodeOp("up", "deploymentPolicy: careful\n  cordon: true")
	s.nodeOpPasses(6, time.Second)
	s.endJobs(true)
	s.nodeOpPasses(6, time.Second)
	s.endCheck(1, 0, "not yet")
	s.nodeOpPasses(2, time.Second)
	if entry := s.getNodeOp("up").Status.NodeStatuses["n1"]; !strings.Contains(entry.Message, "the command of the proof ended with exit code 1: not yet") || !s.GetNode("n1").Spec.Unschedulable {
		t.Errorf("the entry is %+v", entry)
	}
	s.endCheck(0, 1, "")
	if done := s.finishNodeOp("up", true); done.Status.Phase != opv1.PhaseCompleted {
		t.Errorf("it ended as %+v", done.Status)
	}
	if pods := s.findCheckPods(); len(pods) > 0 || s.GetNode("n1").Spec.Unschedulable {
		t.Errorf("pods %v are left, or the node is held", pods)
	}
}

// TestRefusedCheck: when the pod is refused the node stays and says why, and the pod is asked for again.
func TestRefusedCheck(t *testing.T) {
	isBarred := true
	s, g := newRefusingScenario(t, 1, func(what, body string) bool {
		return isBarred && strings.HasPrefix(what, "POST") && strings.HasSuffix(what, "/pods") && strings.Contains(body, "registry.example/tester")
	})
	s.Apply(strings.Replace(demo, "  packages:", "  proof: {command: {image: registry.example/tester:1, command: [check]}}\n  packages:", 1))
	s.passes(12)
	s.requireVerdict("demo", "n1", "Refused: creating pod demo-proof-n1-1-")
	before := g.refused
	for range 3 {
		s.pass()
	}
	if g.refused > before+1 {
		t.Errorf("the pod was asked for %d times in three passes", g.refused-before)
	}
	isBarred = false
	s.now = s.now.Add(time.Hour)
	s.pass()
	s.endCheck(0, 0, "")
	s.passes(3)
	s.requireVerdict("demo", "n1", "Finished: no work is pending")
}
