// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/internal/cluster"
)

// TestWorkloadChanges lists the changes of pods that request a pass, as the watch of a node's pods has them.
func TestWorkloadChanges(t *testing.T) {
	for _, c := range []struct {
		what   string
		owner  string
		change func(*corev1.Pod)
		want   bool
	}{
		{"becomes ready", "DaemonSet", func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionTrue }, true},
		{"becomes ready", "ReplicaSet", func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionTrue }, false},
		{"is probed again", "DaemonSet", func(p *corev1.Pod) { p.Status.Conditions[0].LastProbeTime = metav1.Now() }, false},
		{"is initialized", "DaemonSet", func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodInitialized, Status: corev1.ConditionTrue})
		}, false},
		{"ends", "ReplicaSet", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, true},
		{"leaves", "ReplicaSet", func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }, true},
		{"is protected", "ReplicaSet", func(p *corev1.Pod) { p.Labels = map[string]string{"protect": "yes"} }, true},
		{"gets an address", "ReplicaSet", func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.1" }, false},
	} {
		before := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Kind: c.owner, Controller: new(true)}}},
			Status:     corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}},
		}
		after := before.DeepCopy()
		c.change(after)
		if got := hasWorkloadChange(cluster.StripWorkload(before), cluster.StripWorkload(after)); got != c.want {
			t.Errorf("a pod of a %s %s: %v, want %v", c.owner, c.what, got, c.want)
		}
	}
}
