// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
)

func (s *scenario) hasNodeOp(name string) bool {
	s.Helper()
	err := s.Client.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: name}, &opv1.NodeOp{})
	s.Must(client.IgnoreNotFound(err))
	return !apierrors.IsNotFound(err)
}

// TestNodeOpGoes: a NodeOp that goes with its objects is deleted after its time, and not before.
func TestNodeOpGoes(t *testing.T) {
	s := newScenario(t, 2)
	s.createNodeOp("passing", "profile: Recommended\n  concurrency: 2\n  ttlSecondsAfterFinished: 600")
	s.finishNodeOp("passing", true)
	s.nodeOpPasses(3, time.Second)
	if !s.hasNodeOp("passing") {
		t.Fatal("it went before its time")
	}
	s.now = s.now.Add(11 * time.Minute)
	s.nodeOpPasses(2, time.Second)
	if s.hasNodeOp("passing") {
		t.Errorf("it stays: %+v", s.getNodeOp("passing").ObjectMeta)
	}
}

// TestNodeOpStaysForItsNode: a NodeOp that keeps a node cordoned after a failure stays until somebody uncordons the node.
func TestNodeOpStaysForItsNode(t *testing.T) {
	s := newScenario(t, 1)
	s.createNodeOp("failing", "profile: Recommended\n  cordon: true\n  backoffLimit: 0\n  ttlSecondsAfterFinished: 0")
	if done := s.finishNodeOp("failing", false); done.Status.Phase != opv1.PhaseFailed {
		t.Fatalf("it ended as %+v", done.Status)
	}
	s.now = s.now.Add(time.Hour)
	s.nodeOpPasses(4, time.Second)
	if !s.hasNodeOp("failing") || !s.GetNode("n1").Spec.Unschedulable {
		t.Fatalf("the NodeOp exists: %v; the node is cordoned: %v", s.hasNodeOp("failing"), s.GetNode("n1").Spec.Unschedulable)
	}
	s.Patch(s.GetNode("n1"), `{"spec":{"unschedulable":null}}`)
	s.nodeOpPasses(6, time.Second)
	if s.hasNodeOp("failing") {
		t.Errorf("it stays: %+v", s.getNodeOp("failing").ObjectMeta)
	}
}
