// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/internal/cli/support"
)

// TestFindSilentOperators checks why a bundle has no log of the operator: no pod, no node, or no started container.
func TestFindSilentOperators(t *testing.T) {
	pod := func(name string, change func(*corev1.Pod)) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "skyhook"}}
		p.Spec.Containers = []corev1.Container{{Name: "manager", Image: "registry.example/skyhook/operator:v1"}}
		p.Status.Phase = corev1.PodPending
		change(&p)
		return p
	}
	manager := func(state corev1.ContainerState) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "manager", State: state}}
		}
	}
	waits := func(reason, message string) func(*corev1.Pod) {
		return manager(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}})
	}
	for _, c := range []struct {
		pods []corev1.Pod
		want string
	}{
		{nil, "logs: no pod of an operator is in namespace skyhook"},
		{[]corev1.Pod{pod("a", func(p *corev1.Pod) { p.Status.Phase = "" })}, "logs/a: the operator's pod is new, and no container has started"},
		{[]corev1.Pod{pod("a", waits("ContainerCreating", ""))}, "logs/a: the operator's pod is Pending, and container manager waits: ContainerCreating"},
		{[]corev1.Pod{pod("a", waits("ImagePullBackOff", "no such host"))},
			"logs/a: the operator's pod is Pending, and container manager waits: ImagePullBackOff: no such host"},
		{[]corev1.Pod{pod("a", func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/3 nodes are available"}}
		})}, "logs/a: the operator's pod is Pending, and it has no node: 0/3 nodes are available"},
		{[]corev1.Pod{pod("a", manager(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}))}, ""},
		{[]corev1.Pod{pod("a", manager(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}))}, ""},
	} {
		got := ""
		for name, err := range support.FindSilentOperators(c.pods, "skyhook") {
			got = name + ": " + err.Error()
		}
		if got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
