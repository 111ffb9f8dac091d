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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster/writecache"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/test/testenv"
)

// delayedReader is a cache with the objects that existed when it last caught up.
type delayedReader struct {
	client.Reader
	held map[string]client.ObjectList
}

func (l *delayedReader) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	key := fmt.Sprintf("%T", list)
	if l.held[key] == nil {
		if err := l.Reader.List(ctx, list, options...); err != nil {
			return err
		}
		l.held[key], _ = list.DeepCopyObject().(client.ObjectList)
	}
	return copyInto(l.held[key], list)
}

func copyInto(from, into client.ObjectList) error {
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(from)
	if err != nil {
		return err
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(raw, into)
}

// delayCache puts a delayed cache before the API server.
func (s *scenario) delayCache() *delayedReader {
	cache := &delayedReader{Reader: s.Client}
	cache.catchUp()
	s.cluster.options.Cached = cache
	return cache
}

func (l *delayedReader) catchUp() { l.held = map[string]client.ObjectList{} }

// TestDelayedCache shows that the operator does nothing twice and exceeds no budget while a cache lags behind.
func TestDelayedCache(t *testing.T) {
	s := newScenario(t, 4)
	cache := s.delayCache()
	s.Apply(strings.Replace(demo, "spec:", "spec:\n  interruptionBudget: {count: 2}", 1))
	s.pass()
	s.pass()
	s.pass() // the status shows the revision that has begun
	if got := s.podNames(); len(got) != 2 {
		t.Fatalf("pods after two passes: %v", got)
	}
	before := s.state()
	s.requests.reset()
	for range 3 {
		if done := s.pass().AllActions(); len(done) > 0 {
			t.Errorf("with a cache that does not show what was done, it is done again: %v", done)
		}
	}
	if got := s.requests.list(); len(got) > 0 || s.state() != before {
		t.Errorf("requests: %v", got)
	}
	for range 60 {
		s.SettlePods()
		cache.catchUp()
		s.now = s.now.Add(time.Second)
		s.pass()
		s.pass() // on the cache as it was before the first
		if most := s.CountAdmitted(); most > 2 {
			t.Fatalf("%d nodes are in flight, with a budget of 2", most)
		}
	}
	if !testenv.IsReady(s.GetSkyhook("demo")) {
		t.Errorf("after 60 passes: %s", s.GetSkyhook("demo").Status.CompleteNodes)
	}
}

// TestFirstObserveIsLive shows that an operator that takes over knows what the one before it did, whatever its cache shows.
func TestFirstObserveIsLive(t *testing.T) {
	s := newScenario(t, 3)
	cache := &delayedReader{Reader: s.Client}
	cache.catchUp()
	s.Apply(strings.Replace(demo, "spec:", "spec:\n  interruptionBudget: {count: 1}", 1))
	for _, l := range []client.ObjectList{&corev1.NodeList{}, &corev1.PodList{}, &corev1.ConfigMapList{}, &v1alpha1.SkyhookList{}, &v1alpha1.DeploymentPolicyList{}} {
		s.Must(cache.List(context.Background(), l, client.InNamespace(metav1.NamespaceAll)))
	}
	s.pass()
	s.pass()
	before := s.state()
	next := s.newCluster(&recorder{})
	next.options.Cached = cache // from before anything was done
	for range 3 {
		o, plan := s.decide(next)
		out, err := next.Apply(context.Background(), o, plan)
		s.Must(err)
		if len(out.AllActions()) > 0 {
			t.Errorf("the next operator did %v", out.AllActions())
		}
	}
	if after := s.state(); after != before {
		t.Errorf("the next operator changed\n%s\ninto\n%s", before, after)
	}
}

// TestSpecChangeReadsNodesLive shows that a label that was set before a spec changed counts, though the cache shows the spec
// and not yet the label: nodes are listed live when a spec changes, and only then.
func TestSpecChangeReadsNodesLive(t *testing.T) {
	s := newScenario(t, 3)
	cache := s.delayCache()
	looks := &countingReader{Reader: s.cluster.options.Live}
	s.cluster.options.Live = looks
	s.pass()
	for _, request := range []string{demo, strings.Replace(demo, "1.1.0", "1.2.0", 1)} { // edits are no different
		s.Patch(s.GetNode("n2"), `{"metadata":{"labels":{"pool":"cpu"}}}`)
		s.Apply(request)
		delete(cache.held, fmt.Sprintf("%T", &v1alpha1.SkyhookList{}))
		looks.lists = 0
		if o, _ := s.decide(s.cluster); o.Objects.Node("n2").Labels["pool"] != "cpu" {
			t.Errorf("n2 is observed with the labels %v", o.Objects.Node("n2").Labels)
		}
		s.pass()
		s.pass()
		if got := s.podNodes(); !slices.Equal(got, []string{"n1", "n3"}) {
			t.Errorf("pods run on %v", got)
		}
		if looks.lists != 1 {
			t.Errorf("nodes were listed %d times", looks.lists)
		}
		s.cluster.options.Cached = nil
		s.finish()
		s.Patch(s.GetNode("n2"), `{"metadata":{"labels":{"pool":"gpu"}}}`)
		s.finish()
		cache.catchUp()
		s.cluster.options.Cached = cache
		s.pass()
	}
}

// countingReader counts lists of nodes.
type countingReader struct {
	client.Reader
	lists int
}

func (c *countingReader) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if _, ok := list.(*corev1.NodeList); ok {
		c.lists++
	}
	return c.Reader.List(ctx, list, options...)
}

// TestCreatedAndDeletedUnseen shows that a pod that was deleted before the cache showed it is created again.
func TestCreatedAndDeletedUnseen(t *testing.T) {
	s := newScenario(t, 1)
	s.delayCache()
	s.Apply(demo)
	s.pass()
	first := s.ListPods()
	if len(first) != 1 {
		t.Fatalf("pods: %v", s.podNames())
	}
	s.Must(s.Client.Delete(context.Background(), &first[0], client.GracePeriodSeconds(0)))
	if o, _ := s.decide(s.cluster); o.Objects.RetryAt.IsZero() || o.Objects.RetryAt.After(s.now.Add(writecache.ConfirmAfter)) {
		t.Errorf("retry at %v, now is %v", o.Objects.RetryAt, s.now)
	}
	s.now = s.now.Add(writecache.ConfirmAfter)
	if o, _ := s.decide(s.cluster); !o.Objects.RetryAt.Equal(s.now) {
		t.Errorf("after the answer the next pass is at %v, now is %v", o.Objects.RetryAt, s.now)
	}
	s.pass()
	if second := s.ListPods(); len(second) != 1 || second[0].UID == first[0].UID {
		t.Errorf("pods: %v, the first one was %s", s.podNames(), first[0].UID)
	}
}

const others = `
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: %s}
spec:
  priority: %d
  nodeSelectors: {matchLabels: {pool: %s}}
  packages: {%s}
`

// TestBadObjects shows that an invalid object never stops the others.
func TestBadObjects(t *testing.T) {
	s := newScenario(t, 2)
	s.AddNode("x1", map[string]string{"pool": "other"})
	ctx := context.Background()
	// A ConfigMap of somebody else where a Skyhook's has to be.
	s.Must(s.Client.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "squat-taken-1.0.0"}, Data: map[string]string{"mine": "yes"}}))
	s.Apply(fmt.Sprintf(others, "squat", 1, "other", `taken: {version: 1.0.0, image: registry.example/p, configMap: {a: b}}`))
	// A cycle, which no schema can find.
	s.Apply(fmt.Sprintf(others, "cycle", 2, "other", `aa: {version: 1.0.0, image: registry.example/p, dependsOn: {bb: 1.0.0}}, bb: {version: 1.0.0, image: registry.example/p, dependsOn: {aa: 1.0.0}}`))
	// A policy that does not exist.
	s.Apply(strings.Replace(fmt.Sprintf(others, "lawless", 3, "other", `aa: {version: 1.0.0, image: registry.example/p}`), "spec:", "spec:\n  deploymentPolicy: nowhere", 1))
	// An annotation that cannot be read, for one Skyhook on one node.
	s.Patch(s.GetNode("n2"), `{"metadata":{"annotations":{"skyhook.nvidia.com/nodeState_demo":"{broken"}}}`)
	// Pods with our label that are not ours: in our namespace and in another, with and without the annotation.
	for _, namespace := range []string{s.Namespace, "default"} {
		for i, annotations := range []map[string]string{nil, {v1alpha1.AnnotationPackage: `{"name":"tuning","version":"1.1.0","skyhook":"demo","stage":"config","image":"x"}`}} {
			s.Must(s.Client.Create(ctx, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("forged-%d", i), Labels: map[string]string{v1alpha1.LabelName: "demo", v1alpha1.LabelPackage: "tuning-1.1.0"}, Annotations: annotations},
				Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "registry.example/x"}}},
			}))
		}
	}
	s.Apply(demo)
	for range 30 {
		s.pass()
		s.now = s.now.Add(time.Second)
		s.SettlePods()
	}
	demo := s.GetSkyhook("demo").Status
	if got := demo.NodeStatus; got["n1"] != v1alpha1.StatusComplete || got["n2"] != v1alpha1.StatusBlocked {
		t.Errorf("Skyhook demo: %v", got)
	}
	if got := s.GetNode("n2").Annotations[v1alpha1.PrefixNodeState+"demo"]; got != "{broken" {
		t.Errorf("the annotation that cannot be read was changed to %q", got)
	}
	for name, want := range map[string]string{"squat": "belongs to somebody else", "cycle": "aa", "lawless": "nowhere"} {
		said := ""
		for _, c := range s.GetSkyhook(name).Status.Conditions {
			if c.Status != metav1.ConditionTrue || c.Type == v1alpha1.ConditionDeploymentPolicyNotFound {
				said += c.Message + "\n"
			}
		}
		if !strings.Contains(said, want) {
			t.Errorf("Skyhook %s does not report %q: %s", name, want, said)
		}
	}
	if marks := testenv.ListMarks(s.GetNode("x1")); slices.ContainsFunc(marks, func(m string) bool { return strings.Contains(m, "nodeState") }) {
		t.Errorf("on x1 something ran: %v", marks)
	}
	if got := s.podNames(); !slices.Equal(got, []string{"forged-0", "forged-1"}) {
		t.Errorf("pods in our namespace: %v", got)
	}
	taken := &corev1.ConfigMap{}
	s.Must(s.Client.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: "squat-taken-1.0.0"}, taken))
	if taken.Data["mine"] != "yes" {
		t.Errorf("the ConfigMap of somebody else is now %v", taken.Data)
	}
}

// TestHandReset shows that deleting the annotation makes a node start from the beginning.
func TestHandReset(t *testing.T) {
	s := newScenario(t, 1)
	s.Apply(demo)
	s.finish()
	if done := s.pass().AllActions(); len(done) > 0 {
		t.Fatalf("at rest: %v", done)
	}
	s.Patch(s.GetNode("n1"), `{"metadata":{"annotations":{"skyhook.nvidia.com/nodeState_demo":null}}}`)
	out := s.pass()
	if !slices.ContainsFunc(out.AllActions(), func(a rollout.Action) bool { return a.Verb == rollout.VerbRun && a.Task == "tuning|1.1.0/apply" }) {
		t.Errorf("after the annotation was deleted: %v", out.AllActions())
	}
	s.finish()
}

// TestOrphanHold shows that a hold is released when the API server confirmed twice, 30 seconds apart, that its owner is gone.
func TestOrphanHold(t *testing.T) {
	s := newScenario(t, 1)
	s.Apply(driver)
	s.pass()
	if !s.GetNode("n1").Spec.Unschedulable {
		t.Fatal("the node is not held")
	}
	for _, p := range s.ListPods() {
		s.Must(s.Client.Delete(context.Background(), &p, client.GracePeriodSeconds(0)))
	}
	h := s.GetSkyhook("driver") // somebody forces it away
	s.Patch(h, `{"metadata":{"finalizers":null}}`)
	s.Must(s.Client.Delete(context.Background(), h))
	o, plan := s.decide(s.cluster)
	if len(plan.Actions) > 0 || !o.Objects.RetryAt.Equal(s.now.Add(orphanConfirmation)) {
		t.Errorf("at once: %v, again at %v", plan.Actions, o.Objects.RetryAt)
	}
	s.now = s.now.Add(orphanConfirmation - 1)
	if done := s.pass().AllActions(); len(done) > 0 || !s.GetNode("n1").Spec.Unschedulable {
		t.Errorf("before the second answer: %v", done)
	}
	s.now = s.now.Add(1)
	s.pass()
	if n := s.GetNode("n1"); n.Spec.Unschedulable || n.Annotations[v1alpha1.PrefixCordon+"driver"] != "" {
		t.Errorf("after the second answer the node is unschedulable: %v, marks %v", n.Spec.Unschedulable, testenv.ListMarks(n))
	}
	if done := s.pass().AllActions(); len(done) > 0 {
		t.Errorf("afterwards: %v", done)
	}
}

// TestOrphanHoldWaitsForPods shows that the hold of an owner that is gone stays as long as it has a pod on the node.
func TestOrphanHoldWaitsForPods(t *testing.T) {
	s := newScenario(t, 1)
	s.Apply(driver)
	s.pass()
	s.pass()
	if len(s.ListPods()) != 1 {
		t.Fatalf("pods: %v", s.podNames())
	}
	h := s.GetSkyhook("driver")
	s.Patch(h, `{"metadata":{"finalizers":null}}`)
	s.Must(s.Client.Delete(context.Background(), h))
	for range 3 {
		s.now = s.now.Add(orphanConfirmation)
		s.pass()
	}
	if !s.GetNode("n1").Spec.Unschedulable {
		t.Fatalf("the hold was released beside %v", s.podNames())
	}
	for _, p := range s.ListPods() {
		s.Must(s.Client.Delete(context.Background(), &p, client.GracePeriodSeconds(0)))
	}
	s.pass()
	if s.GetNode("n1").Spec.Unschedulable {
		t.Error("the pod has gone, and the hold has not")
	}
}

// TestOwnerComesBack shows that a Skyhook that is created again before that confirmation keeps its hold.
func TestOwnerComesBack(t *testing.T) {
	s := newScenario(t, 1)
	s.Apply(driver)
	s.pass()
	h := s.GetSkyhook("driver")
	s.Patch(h, `{"metadata":{"finalizers":null}}`)
	s.Must(s.Client.Delete(context.Background(), h))
	s.decide(s.cluster)
	s.Apply(driver)
	s.now = s.now.Add(orphanConfirmation)
	if o, _ := s.decide(s.cluster); len(o.Objects.Orphans) > 0 {
		t.Errorf("orphans: %v", o.Objects.Orphans)
	}
	s.finish()
	if s.GetNode("n1").Spec.Unschedulable {
		t.Error("the node is still held")
	}
}
