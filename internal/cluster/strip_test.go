// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestStripPodConditions: the condition that changed last is kept, which says when a pod was rejected.
func TestStripPodConditions(t *testing.T) {
	at := func(second int64) metav1.Time { return metav1.NewTime(time.Unix(second, 0)) }
	pod := StripPod(&corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, LastTransitionTime: at(1)}, {Type: corev1.PodReady, LastTransitionTime: at(3)}, {Type: corev1.PodInitialized, LastTransitionTime: at(2)},
	}}})
	if got := pod.Status.Conditions; len(got) != 1 || got[0].Type != corev1.PodReady {
		t.Errorf("it keeps %v, want the condition of second 3", got)
	}
	if pod = StripPod(&corev1.Pod{}); pod.Status.Conditions != nil {
		t.Errorf("a pod without conditions has %v", pod.Status.Conditions)
	}
}
