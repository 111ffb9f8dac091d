// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// TestConflictForEver shows that a webhook that answers every patch of a node with a conflict is asked less and less often, is
// reported, and delays no other node.
func TestConflictForEver(t *testing.T) {
	s, g := newRefusingScenario(t, 2, func(request, _ string) bool { return request == "PATCH /api/v1/nodes/n1" })
	g.conflict = true
	s.Apply(demo)
	said := ""
	for end := s.now.Add(20 * time.Second); s.now.Before(end); {
		o, plan := s.decide(s.cluster)
		out, _ := s.cluster.Apply(context.Background(), o, plan) // errors are in the outcome, too
		s.updateStatuses(o, plan)
		said += out.Errors[rollout.ParseRef("Skyhook/demo")]
		s.SettlePods()
		next := s.now.Add(time.Second)
		if out.RetryAt.After(s.now) && out.RetryAt.Before(next) {
			next = out.RetryAt
		}
		s.now = next
	}
	if g.refused < 5 || g.refused > 15 {
		t.Errorf("the node was patched %d times in 20 s", g.refused)
	}
	if !strings.Contains(said, "not now") {
		t.Errorf("the errors are %q", said)
	}
	if got := s.GetNode("n2").Annotations[v1alpha1.Group+"/status_demo"]; got != string(v1alpha1.StatusComplete) {
		t.Errorf("the other node is %q", got)
	}
}

// TestHeartbeatBeforeWrite shows that a heartbeat of the kubelet between an observation and its writes is no failure of the node: it is
// decided again at once.
func TestHeartbeatBeforeWrite(t *testing.T) {
	s := newScenario(t, 1)
	s.Apply(demo)
	o, plan := s.decide(s.cluster)
	heartbeat := client.RawPatch(types.StrategicMergePatchType, []byte(`{"status":{"images":[{"sizeBytes":1}]}}`))
	s.Must(s.Client.Status().Patch(context.Background(), s.GetNode("n1"), heartbeat))
	out, err := s.cluster.Apply(context.Background(), o, plan)
	if err != nil || len(out.Errors) > 0 || out.RetryAt.IsZero() || out.RetryAt.After(s.now.Add(minConflictBackoff)) {
		t.Errorf("the errors are %v and %v, the next pass is at %v, now is %v", err, out.Errors, out.RetryAt, s.now)
	}
	s.now = s.now.Add(minConflictBackoff)
	s.pass()
	if pods := s.podNodes(); len(pods) != 1 {
		t.Errorf("pods on %v, want one on n1", pods)
	}
}

// TestDeletionConflict shows that a pod goes only when the API server has said so: a conflict that is not about its UID is an
// error, and one that is about it means that the pod is gone.
func TestDeletionConflict(t *testing.T) {
	isOpen := false
	s, g := newRefusingScenario(t, 1, func(request, _ string) bool {
		isDeletion := strings.HasPrefix(request, "DELETE ") || strings.HasSuffix(request, "/eviction")
		return isDeletion && !isOpen
	})
	g.conflict = true
	s.Apply(workload("worker", "n1"))
	pod := s.pod("worker")
	o, _ := s.decide(s.cluster)
	p := s.cluster.newPass(o)
	evict := rollout.Action{Verb: rollout.VerbEvict, Node: "n1", Pod: &rollout.Pod{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)}}
	if err := p.deletePod(context.Background(), pod); err == nil {
		t.Error("a refused deletion counts as done")
	}
	if err := (podWriter{p}).evictPod(context.Background(), evict); err == nil {
		t.Error("a refused eviction counts as done")
	}

	isOpen = true
	earlier := pod.DeepCopy()
	earlier.UID = types.UID("earlier")
	evict.Pod.UID = string(earlier.UID)
	if err := p.deletePod(context.Background(), earlier); err != nil {
		t.Errorf("the pod that had this name before: %v", err)
	}
	if err := (podWriter{p}).evictPod(context.Background(), evict); err != nil {
		t.Errorf("the pod that had this name before: %v", err)
	}
	if !s.podExists("worker") {
		t.Error("the later pod of the name was deleted")
	}
}

// TestDeletionOfChangedPod shows that a pod that had not ended goes only in the version that was observed: it may do something else by
// now. One that had ended goes in any version.
func TestDeletionOfChangedPod(t *testing.T) {
	s := newScenario(t, 1)
	s.Apply(workload("worker", "n1"))
	observed := s.pod("worker")
	observed.Status.Phase = corev1.PodPending
	s.Patch(observed.DeepCopy(), `{"metadata":{"annotations":{"changed":"since"}}}`)
	o, _ := s.decide(s.cluster)
	p := s.cluster.newPass(o)
	if err := p.deletePod(context.Background(), observed); !apierrors.IsConflict(errors.Unwrap(err)) {
		t.Errorf("deleting a pod that changed: %v", err)
	}
	if s.pod("worker").DeletionTimestamp != nil {
		t.Error("a pod that changed is deleted")
	}
	observed.Status.Phase = corev1.PodFailed
	s.Must(p.deletePod(context.Background(), observed))
	if s.podExists("worker") && s.pod("worker").DeletionTimestamp == nil {
		t.Error("a pod that had ended is not deleted")
	}
}
