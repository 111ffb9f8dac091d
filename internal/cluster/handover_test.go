// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster/gates"
	"github.com/skyhook-k8s/skyhook/internal/cluster/handover"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

const asksOps = `  handover: [{name: ops, object: {apiVersion: v1, kind: ConfigMap, metadata: {name: ask-$(NODE_NAME), namespace: default}, data: {node: $(NODE_NAME), state: new}}, cel: object.data.state == 'yes', timeout: 1h}]
`

// getAsked reads the object that asks for a node; nil if there is none.
func (s *scenario) getAsked(node string) *corev1.ConfigMap {
	s.Helper()
	m := &corev1.ConfigMap{}
	err := s.Client.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: "ask-" + node}, m)
	s.Must(client.IgnoreNotFound(err))
	if err != nil {
		return nil
	}
	return m
}

// answer has the other program answer.
func (s *scenario) answer(node, state string) {
	s.Helper()
	s.Apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ask-" + node + ", namespace: default}\ndata: {state: \"" + state + "\"}")
	s.now = s.now.Add(gates.AnswerLifetime)
}

// dropAsked deletes what a test leaves behind: ConfigMaps outlive it.
func (s *scenario) dropAsked() {
	s.Cleanup(func() {
		for _, n := range []string{"n1", "n2"} {
			m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "ask-" + n}}
			s.Must(client.IgnoreNotFound(s.Client.Patch(context.Background(), m, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))))
			s.Must(client.IgnoreNotFound(s.Client.Delete(context.Background(), m)))
		}
	})
}

// requireAtRest checks that nothing is left of any handover on a node.
func (s *scenario) requireAtRest(node string) {
	s.Helper()
	if m := s.getAsked(node); m != nil {
		s.Errorf("the object that asks for %s is left: %v", node, m.ObjectMeta)
	}
	if text := s.GetNode(node).Annotations[v1alpha1.AnnotationHandover]; text != "" {
		s.Errorf("recorded on %s is %s", node, text)
	}
}

// requireUntouched checks that a node is held, and that nothing was evicted there or interrupted.
func (s *scenario) requireUntouched(node, pod string) {
	s.Helper()
	p := &corev1.Pod{}
	s.Must(s.Client.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: pod}, p))
	if p.DeletionTimestamp != nil || !s.GetNode(node).Spec.Unschedulable {
		s.Errorf("pod %s is leaving: %v; node %s is held: %v", pod, p.DeletionTimestamp != nil, node, s.GetNode(node).Spec.Unschedulable)
	}
}

// TestHandover: the operator creates an object and waits for its answer before it evicts the first pod. It deletes the object when the node
// is given back, and only then forgets it.
func TestHandover(t *testing.T) {
	s := newScenario(t, 1)
	s.dropAsked()
	s.Apply(policyYAML(asksOps))
	s.Apply(workload("web", "n1"))
	s.Apply(withPolicy(driver))
	s.passes(8)
	s.requireUntouched("n1", "web")
	s.requireVerdict("driver", "n1", "Handover: asks ops: ConfigMap default/ask-n1 does not meet object.data.state == 'yes'")
	asked := s.getAsked("n1")
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "n1", UID: s.GetNode("n1").UID}
	if asked == nil || asked.Data["node"] != "n1" || asked.Labels[v1alpha1.LabelHandover] != "Skyhook-driver" || !slices.Contains(asked.OwnerReferences, owner) {
		t.Fatalf("the object is %+v", asked)
	}

	s.answer("n1", "yes")
	s.passes(2)
	s.answer("n1", "no") // it is too late: whoever said yes has handed the node over
	s.passUntilComplete("driver")
	s.passes(2)
	s.requireAtRest("n1")
	if s.GetNode("n1").Spec.Unschedulable {
		t.Error("the node was not given back")
	}
}

// TestHandoverOfNodeOp: a NodeOp that cordons and drains asks as well. On its deletion the object goes, whatever it answered.
func TestHandoverOfNodeOp(t *testing.T) {
	s := newScenario(t, 1)
	s.dropAsked()
	s.Apply(policyYAML(asksOps))
	s.Apply(workload("web", "n1"))
	op := s.createNodeOp("check", "deploymentPolicy: careful\n  cordon: true\n  drainOptions: {enabled: true, force: true}")
	s.nodeOpPasses(8, time.Second)
	s.requireUntouched("n1", "web")
	if m := s.getAsked("n1"); m == nil || m.Labels[v1alpha1.LabelHandover] != "NodeOp-default-check" {
		t.Errorf("the object is %+v", m)
	}
	s.Must(s.Client.Delete(context.Background(), op))
	s.nodeOpPasses(8, time.Second)
	s.requireAtRest("n1")
	if s.GetNode("n1").Spec.Unschedulable {
		t.Error("the node was not given back")
	}
}

// TestLateHandoverOfNodeOp: when nobody answers, and the work goes on all the same, an event says so.
func TestLateHandoverOfNodeOp(t *testing.T) {
	s := newScenario(t, 1)
	s.dropAsked()
	s.Apply(policyYAML(strings.Replace(asksOps, "timeout: 1h", "timeout: 1h, onTimeout: Proceed", 1)))
	s.createNodeOp("check", "deploymentPolicy: careful\n  cordon: true\n  drainOptions: {enabled: true, force: true}")
	s.nodeOpPasses(8, time.Second)
	s.now = s.now.Add(time.Hour)
	warnings := s.collectWarnings(4)
	want := "Drain n1: NodeOp default/check asks ops: ConfigMap default/ask-n1 does not meet object.data.state == 'yes', for longer than 1h0m0s; it goes on without the answer"
	if !slices.Equal(warnings, []string{want}) {
		t.Errorf("the warnings are %q, want %q", warnings, want)
	}
}

// TestHandoverToNobody: a step that the policy does not have any more is an error, and not the yes of all.
func TestHandoverToNobody(t *testing.T) {
	by := handover.Asker{Rollout: plan.Ref("driver")}
	if _, err := by.Edit("ops", &node.Node{Name: "n1"}, time.Now()); err == nil || !strings.Contains(err.Error(), "the policy of Skyhook driver has no step ops") {
		t.Errorf("the error is %v", err)
	}
}

// TestHandoverCrashes: another leader finds what the one before did, whatever that was.
func TestHandoverCrashes(t *testing.T) {
	ask := func(t *testing.T) *scenario {
		t.Helper()
		s := newScenario(t, 1)
		s.dropAsked()
		s.Apply(policyYAML(asksOps))
		s.Apply(workload("web", "n1"))
		s.Apply(withPolicy(driver))
		return s
	}
	// nextLeader lets requests to ConfigMaps of this method fail, and has another leader go on.
	crashAt := func(s *scenario, method string) (restart func()) {
		s.wrapRequests(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(q *http.Request) (*http.Response, error) {
				if q.Method == method && strings.Contains(q.URL.Path, "/default/configmaps") {
					return nil, context.DeadlineExceeded
				}
				return next.RoundTrip(q)
			})
		})
		return func() {
			s.wrapTransport = nil
			s.cluster = s.newCluster(s.requests)
		}
	}
	passLossy := func(s *scenario, n int) {
		for range n {
			o, plan := s.decide(s.cluster)
			_, _ = s.cluster.Apply(context.Background(), o, plan)
			s.updateStatuses(o, plan)
			s.now = s.now.Add(time.Second)
			s.SettlePods()
		}
	}
	t.Run("before the object is created", func(t *testing.T) {
		s := ask(t)
		restart := crashAt(s, http.MethodPost)
		passLossy(s, 6)
		if !strings.Contains(s.GetNode("n1").Annotations[v1alpha1.AnnotationHandover], `"name":"ask-n1"`) || s.getAsked("n1") != nil {
			t.Fatalf("recorded is %q, and the object is %v", s.GetNode("n1").Annotations[v1alpha1.AnnotationHandover], s.getAsked("n1"))
		}
		restart()
		s.passes(4)
		if s.getAsked("n1") == nil {
			t.Fatal("the object was not created")
		}
		s.requireUntouched("n1", "web")
		s.answer("n1", "yes")
		s.passUntilComplete("driver")
		s.passes(2)
		s.requireAtRest("n1")
	})
	t.Run("after the object is created", func(t *testing.T) {
		s := ask(t)
		s.passes(6)
		uid := s.getAsked("n1").UID
		s.cluster = s.newCluster(s.requests)
		s.passes(4)
		if m := s.getAsked("n1"); m == nil || m.UID != uid {
			t.Fatalf("the object was %s, and is %+v", uid, m)
		}
		s.requireUntouched("n1", "web")
	})
	t.Run("before the object is deleted", func(t *testing.T) {
		s := ask(t)
		s.passes(6)
		s.answer("n1", "yes")
		restart := crashAt(s, http.MethodDelete)
		passLossy(s, 40)
		if s.GetNode("n1").Spec.Unschedulable || s.getAsked("n1") == nil || s.GetNode("n1").Annotations[v1alpha1.AnnotationHandover] == "" {
			t.Fatalf("held: %v, object %v, recorded %q", s.GetNode("n1").Spec.Unschedulable, s.getAsked("n1"), s.GetNode("n1").Annotations[v1alpha1.AnnotationHandover])
		}
		restart()
		s.passes(2)
		s.requireAtRest("n1")
	})
	t.Run("before that is recorded", func(t *testing.T) {
		s := ask(t)
		s.passes(6)
		s.Must(s.Client.Delete(context.Background(), s.GetSkyhook("driver")))
		restart := crashAt(s, http.MethodDelete)
		passLossy(s, 20)
		s.Must(s.Client.Delete(context.Background(), s.getAsked("n1")))
		restart()
		s.passes(3)
		s.requireAtRest("n1")
	})
	t.Run("between two holds", func(t *testing.T) {
		s := ask(t)
		s.passes(6)
		s.answer("n1", "yes")
		restart := crashAt(s, http.MethodDelete)
		passLossy(s, 40)
		s.Apply(workload("web2", "n1"))
		s.Apply(strings.Replace(withPolicy(driver), "1.0.0", "1.1.0", 1))
		passLossy(s, 12)
		restart()
		s.passes(8)
		s.requireUntouched("n1", "web2") // a yes to the hold before does not count
		if m := s.getAsked("n1"); m == nil || m.Data["state"] != "new" {
			t.Errorf("the object is %+v, verdict %s", m, s.verdict("driver", "n1"))
		}
		s.answer("n1", "yes")
		s.passUntilComplete("driver")
		s.passes(2)
		s.requireAtRest("n1")
	})
}

// TestHandoverObjects: what else may happen to the object of a step.
func TestHandoverObjects(t *testing.T) {
	s := newScenario(t, 1)
	s.dropAsked()
	s.Apply(policyYAML(asksOps))
	s.answer("n1", "yes") // of somebody else
	s.Apply(workload("web", "n1"))
	s.Apply(withPolicy(driver))
	s.passes(8)
	s.requireVerdict("driver", "n1", "Handover: asks ops: ConfigMap default/ask-n1 exists and is not ours: change metadata.name of object, or delete it")
	s.requireUntouched("n1", "web")
	s.Must(s.Client.Delete(context.Background(), s.getAsked("n1")))
	s.now = s.now.Add(gates.AnswerLifetime)
	s.passes(4)
	if m := s.getAsked("n1"); m == nil || m.Data["state"] != "new" {
		t.Fatalf("the object is %+v", m)
	}

	// Somebody deletes it, and a finalizer keeps it for a while.
	s.Patch(s.getAsked("n1"), `{"metadata":{"finalizers":["example.com/slow"]},"data":{"state":"yes"}}`)
	s.Must(s.Client.Delete(context.Background(), s.getAsked("n1")))
	s.now = s.now.Add(gates.AnswerLifetime)
	s.passes(3)
	s.requireVerdict("driver", "n1", "Handover: asks ops: ConfigMap default/ask-n1 is being deleted; it is created again when it is gone")
	s.requireUntouched("n1", "web")
	s.Patch(s.getAsked("n1"), `{"metadata":{"finalizers":null}}`)
	s.now = s.now.Add(gates.AnswerLifetime)
	s.passes(4)
	if m := s.getAsked("n1"); m == nil || m.Data["state"] != "new" {
		t.Fatalf("the object is %+v", m)
	}

	// The other program removes our label: the object is not ours any more, and stays.
	s.Patch(s.getAsked("n1"), `{"metadata":{"labels":null}}`)
	s.Must(s.Client.Delete(context.Background(), s.GetSkyhook("driver")))
	s.passes(8)
	if s.getAsked("n1") == nil || s.GetNode("n1").Annotations[v1alpha1.AnnotationHandover] != "" {
		t.Errorf("the object is %v, recorded is %q", s.getAsked("n1"), s.GetNode("n1").Annotations[v1alpha1.AnnotationHandover])
	}
}

// TestHandoverRights: what may not be created is said in the verdict, with the right that is missing, and is tried again.
func TestHandoverRights(t *testing.T) {
	s := newScenario(t, 1)
	s.dropAsked()
	s.Apply(policyYAML(asksOps))
	s.Apply(withPolicy(driver))
	refused := true
	s.wrapRequests(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(q *http.Request) (*http.Response, error) {
			if refused && q.Method == http.MethodPost && strings.Contains(q.URL.Path, "/default/configmaps") {
				q.Header.Set("Impersonate-User", "nobody")
			}
			return next.RoundTrip(q)
		})
	})
	s.passes(8)
	s.requireVerdict("driver", "n1", `Handover: asks ops: ConfigMap default/ask-n1 may not be created: grant "create" on configmaps in a ClusterRole with the label skyhook.nvidia.com/aggregate-to-operator=true`)
	refused = false
	s.now = s.now.Add(5 * time.Minute)
	s.passes(4)
	s.requireVerdict("driver", "n1", "Handover: asks ops: ConfigMap default/ask-n1 does not meet")
}

// TestHandoverQuestions: what is asked about beside objects of our own.
func TestHandoverQuestions(t *testing.T) {
	for _, c := range []struct{ step, want string }{
		{`objects: {apiVersion: v1, kind: Pod, selector: app=web}, cel: "has(object.status.drained)"`, "Handover: asks x: Pod default/web does not meet has(object.status.drained)"},
		{`objects: {apiVersion: v1, kind: Pod, selector: app=elsewhere}, cel: "false"`, "UpNext"},
		{`objects: {apiVersion: v1, kind: ConfigMap, namespace: default, selector: of=nobody}, cel: "false"`, "UpNext"},
		{`objects: {apiVersion: v1, kind: ConfigMap, namespace: default, name: lock-$(NODE_NAME)}, cel: "true"`, "Handover: asks x: ConfigMap default/lock-n1 does not exist"},
		{`objects: {apiVersion: v1, kind: Namespace, name: default}, cel: "object.status.phase == 'Gone'"`, "Handover: asks x: Namespace default does not meet object.status.phase == 'Gone'; it says phase Active"},
		{`objects: {apiVersion: example.com/v1, kind: Wheel, selector: a=b}, cel: "true"`, "Handover: asks x: the API server does not know Wheel of example.com/v1"},
		{`cel: "node.metadata.labels['ready-for'] == 'reboot'"`, "Handover: asks x: cel \"node.metadata.labels['ready-for'] == 'reboot'\" gives no answer for Node n1: no such key: ready-for"},
		{`cel: "node.spec.unschedulable"`, "UpNext"},
		{`cel: "object.spec.x"`, "InvalidSpec: handover[0].cel of DeploymentPolicy careful cannot be used: column 1: undeclared reference to 'object'"},
		{`object: {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}, cel: "has("`, "InvalidSpec: handover[0].cel of DeploymentPolicy careful cannot be used"},
		{`object: {apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {a: ` + strings.Repeat("x", 4096) + `}}, cel: "true"`, "InvalidSpec: handover[0].object of DeploymentPolicy careful has 4"},
		{`objects: {apiVersion: a/b/c, kind: Pod, name: x}, cel: "true"`, `InvalidSpec: handover[0].objects.apiVersion of DeploymentPolicy careful "a/b/c" is not a group and version`},
	} {
		t.Run(c.step[:min(len(c.step), 100)], func(t *testing.T) {
			s := newScenario(t, 2)
			s.Apply(policyYAML("  handover: [{name: x, " + c.step + "}]\n"))
			s.Apply(workload("web", "n1"))
			s.Apply(workload("elsewhere", "n2"))
			s.Apply(withPolicy(driver))
			verdict := ""
			for range 8 {
				s.pass()
				s.now = s.now.Add(time.Second)
				s.SettlePods()
				if verdict = s.verdict("driver", "n1"); strings.HasPrefix(verdict, c.want) && !strings.HasPrefix(verdict, "UpNext: its") {
					if c.want != "UpNext" || strings.Contains(verdict, "handed over") {
						return
					}
				}
			}
			t.Errorf("the verdict is %q, want %q", verdict, c.want)
		})
	}
}

// TestDeletionAsks: an uninstall that interrupts asks as well, and the deletion says whom it waits for.
func TestDeletionAsks(t *testing.T) {
	s := newScenario(t, 1)
	s.dropAsked()
	s.Apply(policyYAML(asksOps))
	s.Apply(strings.Replace(withPolicy(driver), "interrupt: {type: reboot}", "interrupt: {type: reboot}\n      uninstall: {enabled: true}", 1))
	s.passes(8)
	s.answer("n1", "yes")
	s.passUntilComplete("driver")
	s.passes(2)
	s.requireAtRest("n1")
	s.Apply(workload("web", "n1"))
	s.Must(s.Client.Delete(context.Background(), s.GetSkyhook("driver")))
	s.passes(12)
	s.requireUntouched("n1", "web")
	blocked := metav1.Condition{}
	for _, c := range s.GetSkyhook("driver").Status.Conditions {
		if c.Type == v1alpha1.ConditionDeletionBlocked {
			blocked = c
		}
	}
	if !strings.Contains(blocked.Message, "asks ops: ConfigMap default/ask-n1 does not meet") {
		t.Errorf("the deletion says %+v; the verdict is %s", blocked, s.verdict("driver", "n1"))
	}
	s.answer("n1", "yes")
	s.passes(30)
	s.requireAtRest("n1")
}
