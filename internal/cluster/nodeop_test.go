// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	opreport "github.com/skyhook-k8s/skyhook/internal/nodeop/report"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

const check = `
apiVersion: operator.kairos.io/v1alpha1
kind: NodeOp
metadata: {name: NAME, namespace: default}
spec:
  nodeSelector: {matchLabels: {pool: gpu}}
  command: [sh, -c, date]
  SPEC
`

// createNodeOp creates a NodeOp.
func (s *scenario) createNodeOp(name, spec string) *opv1.NodeOp {
	s.Helper()
	o, ok := s.Apply(strings.NewReplacer("NAME", name, "SPEC", spec).Replace(check)).(*opv1.NodeOp)
	if !ok {
		s.Fatal("no NodeOp")
	}
	return o
}

func (s *scenario) getNodeOp(name string) *opv1.NodeOp {
	s.Helper()
	o := &opv1.NodeOp{}
	s.Must(s.Client.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: name}, o))
	return o
}

func (s *scenario) listJobs() []batchv1.Job {
	s.Helper()
	list := &batchv1.JobList{}
	s.Must(s.Client.List(context.Background(), list, client.HasLabels{opv1.LabelNodeOp}))
	return list.Items
}

// nodeOpPass is a pass that also writes the statuses of NodeOps, by any Cluster.
func (s *scenario) nodeOpPass(c *Cluster) Outcome {
	s.Helper()
	o, plan := s.decide(c)
	out, err := c.Apply(context.Background(), o, plan)
	s.Must(err)
	for _, op := range o.Objects.NodeOps {
		by := o.NodeOp(op)
		for _, r := range plan.Reports {
			if r.Rollout == by.Rollout.Ref && !by.Removed {
				_, err := c.UpdateNodeOpStatus(context.Background(), op, opreport.Status(by, r, plan.Groups))
				s.Must(err)
			}
		}
	}
	return out
}

// nodeOpPasses makes so many passes, with some time after each.
func (s *scenario) nodeOpPasses(times int, after time.Duration) {
	s.Helper()
	for range times {
		s.nodeOpPass(s.cluster)
		s.now = s.now.Add(after)
	}
}

// endJobs acts as the controller of Jobs: every Job ends.
func (s *scenario) endJobs(well bool) {
	s.Helper()
	for _, j := range s.listJobs() {
		s.Must(s.FinishJob(context.Background(), &j, well, s.now))
	}
}

// rebootNodes ends every reboot pod whose Job has ended, as after a reboot.
func (s *scenario) rebootNodes() {
	s.Helper()
	list := &corev1.PodList{}
	s.Must(s.Client.List(context.Background(), list, client.MatchingLabels{opv1.LabelReboot: "true"}))
	for _, p := range list.Items {
		if p.Status.Phase == corev1.PodSucceeded {
			continue
		}
		n := s.GetNode(p.Spec.NodeName)
		message := string(pack.Message{Outcome: pack.Succeeded, Reboot: &pack.Reboot{From: n.Status.NodeInfo.BootID, To: "boot-2"}}.Encode())
		n.Status.NodeInfo.BootID = "boot-2"
		s.Must(s.Client.Status().Update(context.Background(), n))
		s.Must(s.EndPod(context.Background(), &p, 0, message, s.now))
	}
}

// finishNodeOp makes passes until a NodeOp has ended.
func (s *scenario) finishNodeOp(name string, well bool) *opv1.NodeOp {
	s.Helper()
	for range 40 {
		s.nodeOpPass(s.cluster)
		s.now = s.now.Add(10 * time.Second)
		if done := s.jobsEnded(); done {
			s.rebootNodes()
		}
		s.endJobs(well)
		if p := s.getNodeOp(name).Status.Phase; p == opv1.PhaseCompleted || p == opv1.PhaseFailed {
			s.nodeOpPass(s.cluster)
			return s.getNodeOp(name)
		}
	}
	s.Fatalf("NodeOp %s does not end: %+v", name, s.getNodeOp(name).Status)
	return nil
}

func (s *scenario) jobsEnded() bool {
	jobs := s.listJobs()
	return len(jobs) > 0 && !slices.ContainsFunc(jobs, func(j batchv1.Job) bool { return len(j.Status.Conditions) == 0 })
}

// TestNodeOpRuns runs a NodeOp with preflight, command and reboot.
func TestNodeOpRuns(t *testing.T) {
	s := newScenario(t, 2)
	s.createNodeOp("up", "cordon: true\n  concurrency: 1\n  rebootOnSuccess: true\n  ttlSecondsAfterFinished: 60")
	s.nodeOpPass(s.cluster)
	writes := s.requests.list()
	pods, jobs := slices.IndexFunc(writes, func(w string) bool { return strings.HasPrefix(w, "POST pods") }), slices.IndexFunc(writes, func(w string) bool { return strings.HasPrefix(w, "POST jobs") })
	if at := slices.IndexFunc(writes, func(w string) bool { return strings.HasPrefix(w, "PATCH nodes") }); at < 0 || pods >= 0 && pods < at {
		t.Errorf("the node has to record it first: %v", writes)
	}
	if pods > jobs {
		t.Errorf("the pod that reboots has to be there before the Job: %v", writes)
	}
	done := s.finishNodeOp("up", true)
	if done.Status.Phase != opv1.PhaseCompleted || done.Status.Completed != 2 {
		t.Fatalf("it ended as %+v", done.Status)
	}
	if jobs := s.listJobs(); len(jobs) != 2 {
		t.Errorf("%d Jobs were made", len(jobs))
	}
	for _, name := range []string{"n1", "n2"} {
		n := s.GetNode(name)
		if n.Spec.Unschedulable || len(n.Annotations) > 0 {
			t.Errorf("%s is left as %v %v", name, n.Spec.Unschedulable, n.Annotations)
		}
	}
	s.now = s.now.Add(2 * time.Minute)
	s.nodeOpPass(s.cluster)
	s.nodeOpPass(s.cluster)
	for _, j := range s.listJobs() {
		if j.DeletionTimestamp == nil {
			t.Errorf("Job %s outlives its TTL", j.Name)
		}
	}
	if was, is := done.Status.NodeStatuses["n1"], s.getNodeOp("up").Status.NodeStatuses["n1"]; is.JobName == "" || is.Message != was.Message || is.RebootStatus != opv1.RebootCompleted {
		t.Errorf("with its Job the result goes: %+v was %+v", is, was)
	}
	if f := s.getNodeOp("up").Finalizers; len(f) > 0 {
		t.Errorf("a finished NodeOp keeps %v", f)
	}
}

// TestNodeOpTwice applies every plan by two operators: names are derived, so there is one Job for each node.
func TestNodeOpTwice(t *testing.T) {
	s := newScenario(t, 2)
	s.createNodeOp("twice", "cordon: true")
	other := s.newCluster(&recorder{})
	for range 6 {
		for _, c := range []*Cluster{s.cluster, other} {
			o, plan := s.decide(c)
			_, _ = c.Apply(context.Background(), o, plan) // conflicts are what this is about
		}
	}
	if jobs := s.listJobs(); len(jobs) != 2 {
		t.Errorf("%d Jobs were made for 2 nodes", len(jobs))
	}
	if done := s.finishNodeOp("twice", true); done.Status.Phase != opv1.PhaseCompleted {
		t.Errorf("it ended as %+v", done.Status)
	}
}

// TestNodeOpDeleted shows that deleting releases everything, also a failed node that stays cordoned.
func TestNodeOpDeleted(t *testing.T) {
	s := newScenario(t, 1)
	s.createNodeOp("fails", "cordon: true\n  backoffLimit: 0")
	done := s.finishNodeOp("fails", false)
	if done.Status.Phase != opv1.PhaseFailed || !s.GetNode("n1").Spec.Unschedulable {
		t.Fatalf("it ended as %+v, cordoned %v", done.Status, s.GetNode("n1").Spec.Unschedulable)
	}
	s.Must(s.Client.Delete(context.Background(), done))
	for range 4 {
		s.nodeOpPass(s.cluster)
	}
	if n := s.GetNode("n1"); n.Spec.Unschedulable || len(n.Annotations) > 0 {
		t.Errorf("the node is left as %v %v", n.Spec.Unschedulable, n.Annotations)
	}
	err := s.Client.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: "fails"}, &opv1.NodeOp{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the NodeOp is still there: %v", err)
	}
}

// TestNodeOpOrphan shows that the hold of a NodeOp that is gone is released, once that is confirmed.
func TestNodeOpOrphan(t *testing.T) {
	s := newScenario(t, 1)
	s.Patch(s.GetNode("n1"), `{"metadata":{"annotations":{"operator.kairos.io/cordoned-by":"default/gone@some-uid"}},"spec":{"unschedulable":true}}`)
	s.nodeOpPass(s.cluster)
	if !s.GetNode("n1").Spec.Unschedulable {
		t.Fatal("nothing is proven yet")
	}
	s.now = s.now.Add(time.Minute)
	s.nodeOpPass(s.cluster)
	if n := s.GetNode("n1"); n.Spec.Unschedulable || len(n.Annotations) > 0 {
		t.Errorf("the node is left as %v %v", n.Spec.Unschedulable, n.Annotations)
	}
}

// TestDamagedOwner shows that an owner that was damaged in the predecessor's annotation, and therefore means a NodeOp that does not
// exist, costs the NodeOp that holds the node neither its record nor its hold, and that the node is released in the end.
func TestDamagedOwner(t *testing.T) {
	for name, damage := range map[string]func(string) string{
		"the UID":       func(owner string) string { return owner[:len(owner)-10] },
		"the namespace": func(owner string) string { return "y" + owner[1:] },
	} {
		t.Run(name, func(t *testing.T) {
			s := newScenario(t, 1)
			o := s.createNodeOp("up", "cordon: true")
			s.nodeOpPasses(4, time.Second)
			s.patchAnnotation("n1", opv1.AnnotationCordonedBy, damage(s.GetNode("n1").Annotations[opv1.AnnotationCordonedBy]))
			s.nodeOpPasses(10, 10*time.Second)
			n := s.GetNode("n1")
			rec := node.Parse(n, nil).NodeOp(string(o.UID)).Record
			if !rec.Admitted || rec.Held == nil || !n.Spec.Unschedulable {
				t.Errorf("the node is unschedulable: %v, and records %+v", n.Spec.Unschedulable, rec)
			}
			if done := s.finishNodeOp("up", true); done.Status.Phase != opv1.PhaseCompleted {
				t.Errorf("the NodeOp is %s", done.Status.Phase)
			}
			if n := s.GetNode("n1"); n.Spec.Unschedulable {
				t.Errorf("the node stays cordoned: %v", n.Annotations)
			}
		})
	}
}

// TestNodeOpAndSkyhook never work on one node at the same time.
func TestNodeOpAndSkyhook(t *testing.T) {
	s := newScenario(t, 1)
	s.createNodeOp("first", "cordon: true")
	s.nodeOpPass(s.cluster)
	s.Apply(demo)
	for range 4 {
		s.pass()
		s.nodeOpPass(s.cluster)
	}
	if pods := s.podNames(); len(pods) > 0 {
		t.Errorf("the Skyhook works beside the NodeOp: %v", pods)
	}
	s.finishNodeOp("first", true)
	s.finish()
	if got := s.GetSkyhook("demo").Status.Status; got != "complete" {
		t.Errorf("the Skyhook is %s", got)
	}
}

// TestGraceOfNodeOp shows that the eviction has the grace period of the NodeOp, not the pod's own.
func TestGraceOfNodeOp(t *testing.T) {
	s := newScenario(t, 1)
	s.Apply(workload("app", "n1"))
	s.SettlePods()
	s.createNodeOp("soon", "cordon: true\n  drainOptions: {enabled: true, force: true, gracePeriodSeconds: 5}")
	for range 4 { // admitted, held, looked at, evicted
		s.nodeOpPass(s.cluster)
	}
	if p := s.pod("app"); p.DeletionTimestamp == nil || p.DeletionGracePeriodSeconds == nil || *p.DeletionGracePeriodSeconds != 5 {
		t.Errorf("the pod leaves %v, with a grace period of %v", p.DeletionTimestamp, p.DeletionGracePeriodSeconds)
	}
}
