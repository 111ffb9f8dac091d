// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
)

// TestCleanupEndsNodeOps: before the operator is removed, NodeOps that have not finished end and release their nodes. A
// finished one that holds nothing stays, because it is only results.
func TestCleanupEndsNodeOps(t *testing.T) {
	s := newFixture(t, 1)
	s.startOperator()
	ctx := context.Background()
	s.Apply(`
apiVersion: operator.kairos.io/v1alpha1
kind: NodeOp
metadata: {name: done, namespace: ` + s.Namespace + `}
spec: {command: [date], nodeSelector: {matchLabels: {pool: gpu}}}
`)
	get := func(name string) (*opv1.NodeOp, error) {
		o := &opv1.NodeOp{}
		return o, s.Client.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: name}, o)
	}
	s.Eventually("the NodeOp is finished", func() bool {
		s.finishJobs()
		o, err := get("done")
		return err == nil && o.Status.Phase == opv1.PhaseCompleted && len(o.Finalizers) == 0
	})
	s.Apply(`
apiVersion: operator.kairos.io/v1alpha1
kind: NodeOp
metadata: {name: runs, namespace: ` + s.Namespace + `}
spec: {command: [date], cordon: true, nodeSelector: {matchLabels: {pool: gpu}}}
`)
	s.Eventually("the node is held", func() bool { return s.GetNode("n1").Spec.Unschedulable })
	runs := s.failFirstAttempt("runs")
	printed := make(chan string, 100)
	ended := make(chan error, 1)
	limit, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	go func() { ended <- Cleanup(limit, s.config, s.Namespace, func(text string) { printed <- text }) }()
	s.Eventually("it prints what it waits for", func() bool {
		select {
		case text := <-printed:
			return strings.Contains(text, "NodeOp "+s.Namespace+"/runs (") && strings.Contains(text, "it is being deleted")
		default:
			return false
		}
	})
	s.Eventually("the Job begins no further attempt", func() bool {
		s.Must(s.Client.Get(ctx, client.ObjectKeyFromObject(runs), runs))
		return *runs.Spec.BackoffLimit == 0
	})
	s.Eventually("the NodeOp is gone", func() bool {
		s.finishJobs()
		_, err := get("runs")
		return apierrors.IsNotFound(err)
	})
	s.Must(<-ended)
	if n := s.GetNode("n1"); n.Spec.Unschedulable || len(n.Annotations) > 0 {
		t.Errorf("the node is left as %v %v", n.Spec.Unschedulable, n.Annotations)
	}
	if _, err := get("done"); err != nil {
		t.Errorf("results went: %v", err)
	}
}

// failFirstAttempt acts as the Job controller: the first attempt of the Job of a NodeOp fails, and the second has not begun.
func (s *fixture) failFirstAttempt(name string) *batchv1.Job {
	s.Helper()
	ctx, list := context.Background(), &batchv1.JobList{}
	s.Eventually("the Job of "+name+" exists", func() bool {
		s.Must(s.Client.List(ctx, list, client.InNamespace(s.Namespace), client.MatchingLabels{opv1.LabelNodeOp: name}))
		return len(list.Items) == 1
	})
	j := &list.Items[0]
	j.Status.Failed = 1
	s.Must(s.Client.Status().Update(ctx, j))
	return j
}

// finishJobs acts as the Job controller: every Job succeeds.
func (s *fixture) finishJobs() {
	s.Helper()
	ctx, list := context.Background(), &batchv1.JobList{}
	s.Must(s.Client.List(ctx, list, client.InNamespace(s.Namespace)))
	for i := range list.Items {
		if err := s.FinishJob(ctx, &list.Items[i], true, time.Now()); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			s.Fatal(err)
		}
	}
}
