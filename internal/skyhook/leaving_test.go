// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// TestReasonOfDeletedPod: a pod that somebody else deletes is lost; the operator's own deletions follow an edit.
func TestReasonOfDeletedPod(t *testing.T) {
	w := newTestCluster(t)
	s := w.apply(`{metadata: {name: demo}, spec: {packages: {tuning: {version: 1.0.0, image: example.org/p}}}}`)
	w.addNode("n1")
	w.hangs["tuning|1.0.0/apply"] = true
	w.drive(s)
	requireReason := func(want rollout.Reason) {
		t.Helper()
		for _, task := range w.compile(s).Rollout.Targets[0].Tasks {
			if task.ID == "tuning|1.0.0/apply" && (task.Why == nil || task.Why.Reason != want) {
				t.Errorf("the reason is %+v, want %s", task.Why, want)
			}
		}
	}
	pod := w.pods[0].DeepCopy() // caches never change an object
	pod.DeletionTimestamp = &metav1.Time{Time: w.now}
	w.pods[0] = pod
	requireReason(rollout.ReasonPodLost)
	s = w.apply(`{metadata: {name: demo}, spec: {packages: {tuning: {version: 1.0.0, image: example.org/q}}}}`)
	requireReason(rollout.ReasonReplaced)
}
