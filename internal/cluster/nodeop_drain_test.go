// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	opreport "github.com/skyhook-k8s/skyhook/internal/nodeop/report"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// TestOperatorsStay shows that no drain evicts an operator, neither the leader nor a standby: with every node cordoned none
// could be started again. A foreign pod with an account of that name is evicted.
func TestOperatorsStay(t *testing.T) {
	s := newScenario(t, 1)
	s.cluster.options.Config.OwnAccount = "operators"
	for _, namespace := range []string{s.Namespace, "default"} {
		s.Apply(fmt.Sprintf("{apiVersion: v1, kind: ServiceAccount, metadata: {name: operators, namespace: %s}}", namespace))
		for _, name := range []string{"leads", "stands-by"} {
			pod := strings.Replace(workload(name, "n1"), "  nodeName:", "  serviceAccountName: operators\n  nodeName:", 1)
			s.Apply(strings.Replace(pod, "namespace: default", "namespace: "+namespace, 1))
		}
	}
	s.SettlePods()
	s.createNodeOp("drains", "cordon: true\n  drainOptions: {enabled: true, force: true}")
	for range 4 {
		s.nodeOpPass(s.cluster)
	}
	o, _ := s.decide(s.cluster)
	var blocking []string
	for _, r := range o.Snapshot.Rollouts {
		for _, p := range r.Targets[0].Drain.Pods {
			blocking = append(blocking, p.Namespace+"/"+p.Name)
		}
	}
	if want := []string{"default/leads", "default/stands-by"}; !slices.Equal(blocking, want) {
		t.Errorf("blocking are %v, want %v", blocking, want)
	}
	for _, name := range []string{"leads", "stands-by"} {
		if s.pod(name).DeletionTimestamp == nil {
			t.Errorf("default/%s stays", name)
		}
	}
}

// collectWarnings returns the warnings of NodeOps in the next passes.
func (s *scenario) collectWarnings(passes int) (warnings []string) {
	for range passes {
		o, plan := s.decide(s.cluster)
		out, err := s.cluster.Apply(context.Background(), o, plan)
		s.Must(err)
		for _, c := range o.NodeOps {
			for _, e := range opreport.Events(c, out.AllActions(), opv1.NodeOpStatus{}, opv1.NodeOpStatus{}) {
				if e.Type == corev1.EventTypeWarning {
					warnings = append(warnings, e.Reason+" "+e.Node+": "+e.Message)
				}
			}
		}
	}
	return warnings
}

// TestBarePodsStay shows that a drain without force leaves pods without a controller running, and reports them.
func TestBarePodsStay(t *testing.T) {
	s := newScenario(t, 1)
	s.Apply(workload("bare", "n1"))
	s.SettlePods()
	s.createNodeOp("up", "cordon: true\n  drainOptions: {enabled: true}")
	warnings := s.collectWarnings(6)
	if want := []string{"PodsLeft n1: drainOptions.force is false, so pods that nothing recreates stay on node n1: default/bare"}; !slices.Equal(warnings, want) {
		t.Errorf("the verdict is %q, want %q", warnings, want)
	}
	if len(s.listJobs()) != 1 || s.pod("bare").DeletionTimestamp != nil {
		t.Errorf("there are %d Jobs, and the pod leaves %v", len(s.listJobs()), s.pod("bare").DeletionTimestamp)
	}
}

// failingTransport refuses to create Jobs.
type failingTransport struct {
	next    http.RoundTripper
	refuses atomic.Bool
}

func (r *failingTransport) RoundTrip(q *http.Request) (*http.Response, error) {
	if !r.refuses.Load() || q.Method != http.MethodPost || !strings.HasSuffix(q.URL.Path, "/jobs") {
		return r.next.RoundTrip(q)
	}
	body := `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"exceeded quota: few, limited: count/jobs.batch=0"}`
	return &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: q}, nil
}

// TestRefusedJob shows that a Job that the API server refuses is reported at once, retried soon, and created once.
func TestRefusedJob(t *testing.T) {
	s := newScenario(t, 1)
	r := &failingTransport{}
	s.wrapRequests(func(next http.RoundTripper) http.RoundTripper {
		r.next = next
		return r
	})
	r.refuses.Store(true)
	s.createNodeOp("up", "rebootOnSuccess: true")
	o, plan := s.decide(s.cluster)
	out, err := s.cluster.Apply(context.Background(), o, plan)
	if err != nil || !strings.Contains(out.Errors[rollout.ParseRef("NodeOp/default/up")], "exceeded quota: few") {
		t.Errorf("the error is %v, errors of the NodeOp %q", err, out.Errors)
	}
	if got := out.RetryAt.Sub(s.now); got > minNodeBackoff {
		t.Errorf("it is tried again after %s", got)
	}
	s.nodeOpPass(s.cluster)
	if got := s.getNodeOp("up").Status.NodeStatuses["n1"].Message; !strings.Contains(got, "exceeded quota: few, limited: count/jobs.batch=0; it is retried") {
		t.Errorf("the status says %q", got)
	}
	r.refuses.Store(false)
	s.now = s.now.Add(rollout.Backoff(1))
	if done := s.finishNodeOp("up", true); done.Status.Phase != opv1.PhaseCompleted {
		t.Errorf("it ended as %+v", done.Status)
	}
	pods := &corev1.PodList{}
	s.Must(s.Client.List(context.Background(), pods))
	helpers := slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return p.Labels[opv1.LabelReboot] == "" })
	if len(s.listJobs()) != 1 || len(helpers) != 1 {
		t.Errorf("there are %d Jobs and %d pods that reboot", len(s.listJobs()), len(helpers))
	}
}

// TestJobRefusedForGood shows that a Job that is refused again and again fails on its node, and that the nodes after it are tried.
func TestJobRefusedForGood(t *testing.T) {
	s := newScenario(t, 1)
	r := &failingTransport{}
	s.wrapRequests(func(next http.RoundTripper) http.RoundTripper {
		r.next = next
		return r
	})
	r.refuses.Store(true)
	s.createNodeOp("up", "")
	s.nodeOpPasses(60, time.Second)
	done := s.getNodeOp("up")
	if got := done.Status.NodeStatuses["n1"]; done.Status.Phase != opv1.PhaseFailed || !strings.Contains(got.Message, "count/jobs.batch=0; 3 attempts were refused") {
		t.Errorf("it ended as %+v", done.Status)
	}
	if asked := len(slices.DeleteFunc(s.requests.list(), func(q string) bool { return q != "POST jobs" })); asked != maxRefusedJobs {
		t.Errorf("the Job was asked for %d times", asked)
	}
}

// maxRefusedJobs is how often a Job is asked for before its task has failed.
const maxRefusedJobs = 3

// TestNodeOpIsQuiet shows that passes write nothing while a command runs.
func TestNodeOpIsQuiet(t *testing.T) {
	s := newScenario(t, 2)
	s.createNodeOp("up", "cordon: true\n  concurrency: 1\n  rebootOnSuccess: true")
	for range 4 {
		s.nodeOpPass(s.cluster)
	}
	s.requests.reset()
	for range 5 {
		s.now = s.now.Add(5 * time.Second)
		s.nodeOpPass(s.cluster)
	}
	if writes := s.requests.list(); len(writes) > 0 {
		t.Errorf("it writes %v", writes)
	}
}

// TestFailedNodeKeepsItsSlot shows that a failed node that stays cordoned counts in the budget of a policy; when a person
// uncordons it, the next begins.
func TestFailedNodeKeepsItsSlot(t *testing.T) {
	s := newScenario(t, 2)
	s.Apply(policyYAML(""))
	s.createNodeOp("up", "deploymentPolicy: careful\n  cordon: true\n  backoffLimit: 0")
	for range 8 {
		s.nodeOpPass(s.cluster)
		s.endJobs(false)
		s.now = s.now.Add(10 * time.Second)
	}
	if n := len(s.listJobs()); n != 1 || !s.GetNode("n1").Spec.Unschedulable {
		t.Fatalf("%d Jobs were made, cordoned %v: %+v", n, s.GetNode("n1").Spec.Unschedulable, s.getNodeOp("up").Status)
	}
	s.Patch(s.GetNode("n1"), `{"spec":{"unschedulable":false}}`)
	s.nodeOpPasses(4, 10*time.Second)
	if n := len(s.listJobs()); n != 2 {
		t.Errorf("%d Jobs were made after the node was given back, want 2: %+v", n, s.getNodeOp("up").Status)
	}
}
