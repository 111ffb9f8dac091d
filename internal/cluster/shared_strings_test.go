// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestSharedStrings: nodes and pods share the strings of their labels and annotations, except long ones.
func TestSharedStrings(t *testing.T) {
	s := NewSharedStrings()
	long := strings.Repeat("x", maxSharedLength+1)
	labels := map[string]string{"pool": "gpu", "zone": "", "long": long}
	ownLabels := func() map[string]string {
		own := map[string]string{}
		for key, value := range labels {
			own[strings.Clone(key)] = strings.Clone(value)
		}
		return own
	}
	node := s.StripNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: ownLabels()}})
	pod := s.StripPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: ownLabels()}})
	if !maps.Equal(node.Labels, labels) || !maps.Equal(pod.Labels, labels) || node.Annotations != nil {
		t.Errorf("the labels are %v and %v, the annotations %v", node.Labels, pod.Labels, node.Annotations)
	}
	isShared := func(key string) bool {
		return unsafe.StringData(node.Labels[key]) == unsafe.StringData(pod.Labels[key])
	}
	if !isShared("pool") || isShared("long") {
		t.Errorf("shared: the value gpu %v, a long one %v", isShared("pool"), isShared("long"))
	}
	for i := range 2*maxSharedStrings + 5 {
		if text := fmt.Sprint(i); s.share(text) != text {
			t.Fatalf("%s became another string", text)
		}
	}
	if len(s.known) > maxSharedStrings {
		t.Errorf("it keeps %d strings, want at most %d", len(s.known), maxSharedStrings)
	}
}

// TestSharedSpecs: pods with equal init containers share what is kept of them, and it is what is kept of one pod alone.
func TestSharedSpecs(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	newPod := func(name, image string, restart *corev1.ContainerRestartPolicy) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{InitContainers: []corev1.Container{
			{Name: name, Image: image, Args: []string{"a"}, RestartPolicy: restart}, {Name: "check", Image: "agent", WorkingDir: "/"},
		}}}
	}
	s := NewSharedStrings()
	first := s.StripPod(newPod("tuning-init", "package:1", nil)).Spec.InitContainers
	for _, c := range []struct {
		what     string
		pod      func() *corev1.Pod
		isShared bool
	}{
		{"an equal pod", func() *corev1.Pod { return newPod("tuning-init", "package:1", nil) }, true},
		{"another name", func() *corev1.Pod { return newPod("tuned-init", "package:1", nil) }, false},
		{"another image", func() *corev1.Pod { return newPod("tuning-init", "package:2", nil) }, false},
		{"a container that never ends", func() *corev1.Pod { return newPod("tuning-init", "package:1", &always) }, false},
		{"no init container", func() *corev1.Pod { return &corev1.Pod{} }, false},
	} {
		got, want := s.StripPod(c.pod()).Spec.InitContainers, StripPod(c.pod()).Spec.InitContainers
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: it keeps %v, want %v", c.what, got, want)
		}
		if isShared := len(got) > 0 && &got[0] == &first[0]; isShared != c.isShared {
			t.Errorf("%s: shared %v", c.what, isShared)
		}
	}
	for i := range 2*maxSharedSpecs + 5 {
		s.StripPod(newPod(fmt.Sprintf("p%d-init", i), "package:1", nil))
	}
	if len(s.specs) > maxSharedSpecs {
		t.Errorf("it keeps %d lists, want at most %d", len(s.specs), maxSharedSpecs)
	}
}

// TestStripPodConditions: the condition that changed last is kept, which says when a pod was rejected.
func TestStripPodConditions(t *testing.T) {
	at := func(second int64) metav1.Time { return metav1.NewTime(time.Unix(second, 0)) }
	pod := NewSharedStrings().StripPod(&corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, LastTransitionTime: at(1)}, {Type: corev1.PodReady, LastTransitionTime: at(3)}, {Type: corev1.PodInitialized, LastTransitionTime: at(2)},
	}}})
	if got := pod.Status.Conditions; len(got) != 1 || got[0].Type != corev1.PodReady {
		t.Errorf("it keeps %v, want the condition of second 3", got)
	}
	if pod = NewSharedStrings().StripPod(&corev1.Pod{}); pod.Status.Conditions != nil {
		t.Errorf("a pod without conditions has %v", pod.Status.Conditions)
	}
}
