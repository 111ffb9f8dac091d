// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// TestEachVerbTwice applies every verb twice, with what was observed before, as an operator does that missed its own answer,
// and with what is observed afterwards. The second time changes nothing.
func TestEachVerbTwice(t *testing.T) {
	s := newScenario(t, 2)
	s.Apply(workload("app", "n1"))
	s.SettlePods()
	s.Apply(driver)
	seen := map[rollout.Verb]bool{}
	for range 60 {
		o, plan := s.decide(s.cluster)
		out, err := s.cluster.Apply(context.Background(), o, plan)
		s.Must(err)
		for _, a := range out.AllActions() {
			seen[a.Verb] = true
		}
		once := s.state()
		for _, when := range []string{"before", "after"} {
			if when == "after" {
				o, _ = s.decide(s.cluster)
			}
			if _, err := s.cluster.Apply(context.Background(), o, rollout.Plan{Actions: plan.Actions}); err != nil && when == "before" {
				t.Errorf("the second time: %v", err)
			}
			if twice := s.state(); twice != once {
				t.Fatalf("%v applied twice, with what was observed %s:\n%s", plan.Actions, when, cmp.Diff(once, twice))
			}
		}
		s.updateStatuses(o, plan)
		if len(plan.Actions) == 0 && len(s.ListPods()) == 0 {
			break
		}
		s.now = s.now.Add(time.Second)
		s.SettlePods()
	}
	for _, v := range []rollout.Verb{rollout.VerbAdmit, rollout.VerbHold, rollout.VerbEvict, rollout.VerbRun, rollout.VerbRecord, rollout.VerbSweep, rollout.VerbRelease, rollout.VerbRetire} {
		if !seen[v] {
			t.Errorf("%s was never tried", v)
		}
	}
}

// TestOrder shows that the cordon is written before the eviction, the record before the pod is created, and the outcome
// before the pod is deleted.
func TestOrder(t *testing.T) {
	s := newScenario(t, 1)
	s.Apply(workload("app", "n1"))
	s.SettlePods()
	s.Apply(strings.Replace(driver, "spec:", "spec:\n  interruptionBudget: {count: 1}", 1))
	s.finish()
	var got []string
	for _, r := range s.requests.list() {
		if r == "PATCH nodes/n1/status" || strings.Contains(r, "configmaps") || strings.HasPrefix(r, "PATCH skyhooks/driver/status") && slices.Contains(got, "PATCH nodes/n1") {
			continue
		}
		if i := strings.Index(r, "-"); strings.HasPrefix(r, "DELETE pods/") && i > 0 {
			r = "DELETE pods/…"
		}
		if len(got) == 0 || got[len(got)-1] != r {
			got = append(got, r)
		}
	}
	want := []string{
		"PATCH skyhooks/driver",        // the finalizer
		"PATCH skyhooks/driver/status", // the ledger
		"PATCH nodes/n1",               // admitted and cordoned
		"POST pods/app/eviction",
		"POST controllerrevisions",    // its packages began to roll out
		"PATCH nodes/n1", "POST pods", // apply
		"PATCH nodes/n1", "POST pods", "DELETE pods/…", // config
		"PATCH nodes/n1", "POST pods", "DELETE pods/…", // interrupt
		"PATCH nodes/n1", "POST pods", "DELETE pods/…", // post-interrupt
		"PATCH nodes/n1", "DELETE pods/…", // given back
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("write requests (-want +got):\n%s", d)
	}
}

// TestConflictStopsOneNode changes a node after it was observed: nothing is done there, and everything elsewhere.
func TestConflictStopsOneNode(t *testing.T) {
	s := newScenario(t, 3)
	s.Apply(demo)
	o, plan := s.decide(s.cluster)
	s.Patch(s.GetNode("n2"), `{"metadata":{"labels":{"touched":"yes"}}}`)
	out, err := s.cluster.Apply(context.Background(), o, plan)
	if err != nil {
		t.Errorf("a conflict is no error: %v", err)
	}
	if out.RetryAt.IsZero() {
		t.Error("no other pass is requested")
	}
	if got := s.podNodes(); !slices.Equal(got, []string{"n1", "n3"}) {
		t.Errorf("pods run on %v", got)
	}
	s.pass()
	if got := s.podNodes(); !slices.Equal(got, []string{"n1", "n2", "n3"}) {
		t.Errorf("after the next pass pods run on %v", got)
	}
}

// TestTwoOperators shows that two operators that observe at the same time do not exceed the budget: the second write of
// the ledger fails, and admits no node, though the nodes differ.
func TestTwoOperators(t *testing.T) {
	s := newScenario(t, 4)
	s.Apply(strings.Replace(demo, "spec:", "spec:\n  interruptionBudget: {count: 1}", 1))
	s.pass() // finalizer and ConfigMaps; the first admission
	s.finish()
	s.Apply(strings.ReplaceAll(strings.Replace(demo, "spec:", "spec:\n  interruptionBudget: {count: 1}", 1), "1.1.0", "1.2.0"))
	old, young := s.newCluster(&recorder{}), s.newCluster(&recorder{})
	oldSees, oldPlan := s.decide(old)
	youngSees, youngPlan := s.decide(young)
	// The old one prefers another node, as if it had another order.
	for i := range oldPlan.Actions {
		if oldPlan.Actions[i].Node == "n1" {
			oldPlan.Actions[i].Node = "n4"
		}
	}
	if _, err := young.Apply(context.Background(), youngSees, youngPlan); err != nil {
		t.Fatal(err)
	}
	out, err := old.Apply(context.Background(), oldSees, oldPlan)
	if err != nil {
		t.Fatal(err)
	}
	if len(out.AllActions()) > 0 || !out.Incomplete[rollout.ParseRef("Skyhook/demo")] {
		t.Errorf("the second operator did %v, undone %v", out.AllActions(), out.Incomplete)
	}
	if got := s.podNames(); len(got) != 1 {
		t.Errorf("with a budget of one node two operators run %v", got)
	}
}

// TestErrorStopsOneNode shows that an error stops that node only, backs it off and is reported.
func TestErrorStopsOneNode(t *testing.T) {
	s := newScenario(t, 2)
	s.Apply(demo)
	o, plan := s.decide(s.cluster)
	for i, a := range plan.Actions {
		if a.Node == "n1" && a.Verb == rollout.VerbRun {
			plan.Actions[i].Task = "nothing|1.0.0/apply"
		}
	}
	out, err := s.cluster.Apply(context.Background(), o, plan)
	if err == nil || !strings.Contains(err.Error(), "node n1: ") || strings.Contains(err.Error(), "node n2") {
		t.Errorf("the error is %v", err)
	}
	if !strings.Contains(out.Errors[rollout.ParseRef("Skyhook/demo")], "task nothing|1.0.0/apply is not owed on node n1") {
		t.Errorf("errors of the Skyhook: %v", out.Errors)
	}
	if got := s.ListPods(); len(got) != 1 || got[0].Spec.NodeName != "n2" {
		t.Errorf("pods: %v", s.podNames())
	}
	if got := out.RetryAt.Sub(s.now); got != minNodeBackoff {
		t.Errorf("tried again after %s", got)
	}
	if again := s.pass(); slices.ContainsFunc(again.AllActions(), func(a rollout.Action) bool { return a.Node == "n1" }) {
		t.Error("the node is not left alone")
	}
	s.now = s.now.Add(minNodeBackoff)
	s.pass()
	if got := s.podNames(); len(got) != 2 {
		t.Errorf("after a while pods are %v", got)
	}
}

// TestNextActive shows that all nodes get an equal share when there are more than one pass may work on.
func TestNextActive(t *testing.T) {
	all := make([]*nodeWork, 2*maxActiveNodes+maxActiveNodes/2)
	for i := range all {
		all[i] = &nodeWork{node: fmt.Sprintf("n%d", i)}
	}
	a := &applier{}
	seen := map[string]int{}
	for range 5 {
		now := a.nextActive(all)
		if len(now) != maxActiveNodes {
			t.Fatalf("%d nodes are worked on in one pass", len(now))
		}
		for _, w := range now {
			seen[w.node]++
		}
	}
	for _, w := range all {
		if seen[w.node] != 2 {
			t.Errorf("node %s was worked on %d times in five passes, want 2", w.node, seen[w.node])
		}
	}
	if got := a.nextActive(all[:maxActiveNodes]); len(got) != maxActiveNodes || got[0].node != "n0" {
		t.Errorf("when all can be worked on: %d, the first is %s", len(got), got[0].node)
	}
}

// TestNameIsTaken shows that a pod of the wanted name that is not ours is neither accepted nor changed: the attempt fails.
func TestNameIsTaken(t *testing.T) {
	s := newScenario(t, 1)
	s.Apply(demo)
	o, plan := s.decide(s.cluster)
	by, n := o.Skyhooks[rollout.ParseRef("Skyhook/demo")], o.Objects.Node("n1")
	for _, a := range plan.Actions {
		if e, err := by.Change(a, n, nil); err == nil && !e.Empty() {
			n = n.With(e)
		}
	}
	pod, err := by.Object("tuning|1.1.0/apply", nil, n)
	s.Must(err)
	s.Must(s.Client.Create(context.Background(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: pod.Name, Labels: pod.Labels, Annotations: pod.Annotations},
		Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "registry.example/x"}}},
	}))
	for range 4 {
		s.step(time.Minute)
	}
	if got := s.readyMessage(); !strings.Contains(got, "pod "+s.Namespace+"/"+pod.Name+" exists, and it belongs to somebody else: delete it") {
		t.Errorf("Ready says %q", got)
	}
	if got := s.entryOf("n1", "tuning|1.1.0"); got.State != v1alpha1.StateErroring || got.Restarts != 3 {
		t.Errorf("the pod of somebody else ended, and the node records %+v", got)
	}
	if p := s.ListPods(); len(p) != 1 || p[0].DeletionTimestamp != nil {
		t.Errorf("pods: %v", s.podNames())
	}
}

// TestLedgerInterval shows that a ledger is not written again within the interval, and that admitted nodes go on meanwhile.
func TestLedgerInterval(t *testing.T) {
	s := newScenario(t, 4)
	s.cluster.options.LedgerInterval = time.Minute
	s.Apply(strings.Replace(demo, "spec:", "spec:\n  interruptionBudget: {count: 2}", 1))
	s.pass()
	s.pass()
	began := s.now
	if got := s.podNodes(); !slices.Equal(got, []string{"n1", "n2"}) {
		t.Fatalf("pods run on %v", got)
	}
	var out Outcome
	for range 8 { // all that n1 and n2 have to do
		s.SettlePods()
		s.now = s.now.Add(time.Second)
		out = s.pass()
	}
	if got := s.podNodes(); len(got) > 0 {
		t.Errorf("pods run on %v", got)
	}
	if got := s.GetSkyhook("demo").Status.CompleteNodes; got != "2/4" {
		t.Errorf("complete: %s", got)
	}
	if !out.RetryAt.Equal(began.Add(time.Minute)) {
		t.Errorf("retries at %v, want a minute after %v", out.RetryAt, began)
	}
	s.now = began.Add(time.Minute)
	s.pass()
	if got := s.podNodes(); !slices.Equal(got, []string{"n3", "n4"}) {
		t.Errorf("after a minute pods run on %v", got)
	}
}
