// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// withPrepull is the demo with one node at a time, whose images are pulled before.
var withPrepull = strings.Replace(demo, "  packages:", "  interruptionBudget: {count: 1}\n  packages:", 1)

// prepulls sets whether the operator pulls images before a node's turn.
func (s *scenario) prepulls(yes bool) { s.cluster.options.Config.Prepull = new(yes) }

// findPulls returns the pods that pull images and are not being deleted, by node.
func (s *scenario) findPulls() map[string]*corev1.Pod {
	s.Helper()
	l := &corev1.PodList{}
	s.Must(s.Client.List(context.Background(), l, client.HasLabels{v1alpha1.LabelPrepull}))
	out := map[string]*corev1.Pod{}
	for i := range l.Items {
		p := &l.Items[i]
		if other := out[p.Spec.NodeName]; other != nil && p.DeletionTimestamp == nil {
			s.Fatalf("%s and %s pull images on node %s", other.Name, p.Name, p.Spec.NodeName)
		}
		if p.DeletionTimestamp == nil {
			out[p.Spec.NodeName] = p
		}
	}
	return out
}

// setPull is what a kubelet reports of a pod that pulls images: the state of each container, by a part of its name, or that it ended.
func (s *scenario) setPull(nodeName, imageID string, states map[string]corev1.ContainerState) {
	s.Helper()
	p := s.findPulls()[nodeName]
	if p == nil {
		s.Fatalf("nothing is pulled on %s", nodeName)
	}
	before := p.DeepCopy()
	p.Status.ContainerStatuses = nil
	for _, c := range p.Spec.Containers {
		status := corev1.ContainerStatus{Name: c.Name, Image: c.Image, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.Now()}}}
		for part, state := range states {
			if strings.Contains(c.Name, part) {
				status.State = state
			}
		}
		if status.State.Terminated != nil && strings.HasPrefix(c.Name, "tuning") {
			status.ImageID = imageID
		}
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, status)
	}
	s.Must(s.Client.Status().Patch(context.Background(), p, client.MergeFrom(before)))
}

func waiting(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

// TestPrepull: images are pulled by a pod of their own before a node is admitted. A node where that fails is not cordoned and takes no
// slot, and says why; others go on. What pulled is gone when the node is admitted.
func TestPrepull(t *testing.T) {
	s := newScenario(t, 3)
	s.prepulls(true)
	s.Apply(withPrepull)
	s.passes(3)
	pulls := s.findPulls()
	if len(pulls) != 1 || pulls["n1"] == nil {
		t.Fatalf("it is pulled on %v", pulls)
	}
	var images []string
	for _, c := range pulls["n1"].Spec.Containers {
		images = append(images, c.Image)
		if c.SecurityContext.Privileged != nil || len(c.VolumeMounts) > 0 {
			t.Errorf("container %s has rights: %+v", c.Name, c)
		}
	}
	if want := []string{"registry.example/packages/shellscript:1.1.0", "registry.example/agent:v1", "registry.example/pause:3"}; !slices.Equal(images, want) {
		t.Errorf("it pulls %v, want %v", images, want)
	}
	s.requireVerdict("demo", "n1", "Pulling: its images are pulled before it is admitted")

	s.setPull("n1", "", map[string]corev1.ContainerState{"tuning": waiting("ErrImagePull", "not found"), "agent": waiting("ContainerCreating", "")})
	s.passes(2)
	s.requireVerdict("demo", "n1", "ImagePull: image registry.example/packages/shellscript:1.1.0 cannot be pulled: not found")
	if pulls := s.findPulls(); len(pulls) != 2 || pulls["n2"] == nil {
		t.Fatalf("while n1 cannot pull, it is pulled on %v", pulls)
	}
	s.now = s.now.Add(6 * time.Minute)
	s.passes(2)
	if got := s.GetSkyhook("demo").Status; got.NodeStatus["n1"] != v1alpha1.StatusErroring || got.NodeStatus["n2"] != v1alpha1.StatusWaiting {
		t.Errorf("after six minutes the nodes are %v", got.NodeStatus)
	}

	// A container that does not start has pulled its image.
	s.setPull("n2", "", map[string]corev1.ContainerState{"pause": waiting("CreateContainerError", "no such file"), "agent": {Running: &corev1.ContainerStateRunning{}}})
	s.pass()
	s.pass()
	if n := s.GetNode("n1"); n.Spec.Unschedulable || n.Annotations[v1alpha1.PrefixRecord+"demo"] != "" {
		t.Errorf("n1 cannot pull and is touched: %v", n.Annotations)
	}
	if s.entryOf("n2", "tuning|1.1.0").Stage != v1alpha1.StageApply {
		t.Errorf("n2 has its images and does not begin: %s", s.verdict("demo", "n2"))
	}
	if pulls := s.findPulls(); len(pulls) != 2 || pulls["n1"] == nil || pulls["n3"] == nil {
		t.Errorf("with n2 in flight it is pulled on %v", pulls)
	}

	// The tag exists now.
	s.setPull("n1", "", nil)
	s.setPull("n3", "", nil)
	s.passUntilComplete("demo")
	if pulls := s.findPulls(); len(pulls) > 0 {
		t.Errorf("pods are left: %v", pulls)
	}
}

// TestPrepullEdited: another image is pulled anew, and nothing is when the operator no longer does that or the Skyhook is deleted.
func TestPrepullEdited(t *testing.T) {
	s := newScenario(t, 1)
	s.prepulls(true)
	s.Apply(withPrepull)
	s.passes(3)
	first := s.findPulls()["n1"]
	s.setPull("n1", "", map[string]corev1.ContainerState{"tuning": waiting("ImagePullBackOff", "not found")})
	s.passes(2)
	s.Patch(s.GetSkyhook("demo"), `{"spec":{"packages":{"tuning":{"image":"registry.example/packages/other"}}}}`)
	s.passes(3)
	second := s.findPulls()["n1"]
	if first == nil || second == nil || first.Name == second.Name || second.Spec.Containers[0].Image != "registry.example/packages/other:1.1.0" {
		t.Fatalf("after an edit the pod is %+v", second)
	}
	s.prepulls(false)
	s.passUntilComplete("demo")
	if pulls := s.findPulls(); len(pulls) > 0 {
		t.Errorf("without prepull pods are left: %v", pulls)
	}

	s.prepulls(true)
	s.Patch(s.GetSkyhook("demo"), `{"spec":{"packages":{"tuning":{"version":"1.2.0"}}}}`)
	s.passes(3)
	if s.findPulls()["n1"] == nil {
		t.Fatal("nothing is pulled for another version")
	}
	s.Must(s.Client.Delete(context.Background(), s.GetSkyhook("demo")))
	for range 10 {
		s.pass()
		s.now = s.now.Add(time.Second)
		s.SettlePods()
	}
	if pulls := s.findPulls(); len(pulls) > 0 {
		t.Errorf("pods of a deleted Skyhook are left: %v", pulls)
	}
}

// TestPrepullPinned: the first pull finds the digest, which is recorded before the node is admitted; the others pull by it.
func TestPrepullPinned(t *testing.T) {
	const digest = "sha256:1111111111111111111111111111111111111111111111111111111111111111"
	s := newScenario(t, 2)
	s.prepulls(true)
	s.cluster.options.Config.PinImages = new(true)
	s.Apply(strings.Replace(withPrepull, "count: 1}", "count: 2}", 1))
	s.passes(4)
	if pulls := s.findPulls(); len(pulls) != 1 || pulls["n1"] == nil {
		t.Fatalf("before the digest is known it is pulled on %v", pulls)
	}
	s.requireVerdict("demo", "n2", "ImageDigest: it waits until node n1 has pulled an image, so that its digest is known")
	s.setPull("n1", "registry.example/packages/shellscript@"+digest, nil)
	for range 4 {
		s.pass()
	}
	pins := s.GetSkyhook("demo").Status.Internal.ImagePins
	if len(pins) != 1 || pins[0].Digest != digest || pins[0].Node != "n1" {
		t.Fatalf("recorded are %v", pins)
	}
	if s.entryOf("n1", "tuning|1.1.0").Stage != v1alpha1.StageApply {
		t.Errorf("n1 has its images and does not begin: %s", s.verdict("demo", "n1"))
	}
	second := s.findPulls()["n2"]
	if second == nil || second.Spec.Containers[0].Image != "registry.example/packages/shellscript@"+digest {
		t.Fatalf("n2 pulls %+v", second)
	}
	s.setPull("n2", "registry.example/packages/shellscript@"+digest, nil)
	s.passUntilComplete("demo")
}

// TestPrepullRefused: a refused pod is tried again, and says so before anything is done on the node. One that the kubelet rejects stops
// nothing: its stages find out more.
func TestPrepullRefused(t *testing.T) {
	s := newScenario(t, 1)
	allow := s.deny(admissionv1.Create, "pods", `object.metadata.name.contains('prepull')`)
	probe := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "prepull"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	s.Eventually("the policy refuses pods", func() bool {
		return isDenied(s.Client.Create(context.Background(), probe.DeepCopy(), client.DryRunAll))
	})
	s.prepulls(true)
	s.Apply(withPrepull)
	for range 4 {
		s.step(time.Second)
	}
	if got := s.verdict("demo", "n1"); !strings.HasPrefix(got, "Refused: ") || !strings.Contains(got, "the security team does not allow it") {
		t.Errorf("the verdict is %s", got)
	}
	allow()
	s.Eventually("the policy is gone", func() bool {
		return !isDenied(s.Client.Create(context.Background(), probe.DeepCopy(), client.DryRunAll))
	})
	for range 12 {
		s.step(time.Second)
	}
	p := s.findPulls()["n1"]
	if p == nil {
		t.Fatalf("nothing is pulled: %s", s.verdict("demo", "n1"))
	}
	before := p.DeepCopy()
	p.Status.Phase, p.Status.Reason = corev1.PodFailed, "OutOfpods"
	s.Must(s.Client.Status().Patch(context.Background(), p, client.MergeFrom(before)))
	s.passUntilComplete("demo")
}
