// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package testenv gives tests a small cluster on a real API server: nodes that are ready, and one kubelet that plays all
// of theirs. Pods do not really run; the tests on real nodes are for that.
package testenv

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/test/controlplane"
)

// World is one test's cluster. It is emptied when the test ends, so tests that have one do not run side by side.
type World struct {
	testing.TB
	Config    *rest.Config
	Client    client.Client
	Namespace string // where pods of Skyhooks belong
}

// New makes a world with nodes n1, n2, … that carry the label pool=gpu.
func New(t testing.TB, plane *controlplane.Plane, nodes int) *World {
	t.Helper()
	c, err := client.New(plane.Config, client.Options{Scheme: Scheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	w := &World{TB: t, Config: plane.Config, Client: c, Namespace: plane.Namespace(t)}
	t.Cleanup(w.clear)
	for i := range nodes {
		w.AddNode(fmt.Sprintf("n%d", i+1), map[string]string{"pool": "gpu"})
	}
	return w
}

// Scheme knows the kinds of Kubernetes and of Skyhook.
func Scheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme, opv1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// Must ends the test when something went wrong that the test is not about.
func (w *World) Must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// AddNode makes a node that is ready.
func (w *World) AddNode(name string, labels map[string]string) {
	w.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	w.Must(w.Client.Create(context.Background(), n))
	lift := `[{"op":"test","path":"/spec/taints/0/key","value":"node.kubernetes.io/not-ready"},{"op":"remove","path":"/spec/taints/0"}]`
	w.Must(w.Client.Patch(context.Background(), n, client.RawPatch(types.JSONPatchType, []byte(lift)))) // an operator's taint stays
	status := `{"status":{"nodeInfo":{"bootID":"boot-1"},"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady"}]}}`
	w.Must(w.Client.Status().Patch(context.Background(), n, client.RawPatch(types.MergePatchType, []byte(status)))) // an operator may write too
}

// Patch merges JSON into an object, as a person would with kubectl.
func (w *World) Patch(o client.Object, text string) {
	w.Helper()
	w.Must(w.Client.Patch(context.Background(), o, client.RawPatch(types.MergePatchType, []byte(text))))
}

// Apply creates a Skyhook, DeploymentPolicy, Pod or PodDisruptionBudget that is written as YAML, or merges it into the
// one that is there.
func (w *World) Apply(text string) client.Object {
	w.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	w.Must(err)
	var head metav1.TypeMeta
	w.Must(yaml.Unmarshal([]byte(text), &head))
	made, err := w.Client.Scheme().New(head.GroupVersionKind())
	w.Must(err)
	o, ok := made.(client.Object)
	if !ok {
		w.Fatalf("%T is no object", made)
	}
	w.Must(yaml.UnmarshalStrict([]byte(text), o))
	err = w.Client.Create(context.Background(), o)
	w.Must(client.IgnoreAlreadyExists(err))
	if err != nil {
		w.Patch(o, string(raw))
	}
	return o
}

// Skyhook reads a Skyhook.
func (w *World) Skyhook(name string) *v1alpha1.Skyhook {
	w.Helper()
	s := &v1alpha1.Skyhook{}
	w.Must(w.Client.Get(context.Background(), client.ObjectKey{Name: name}, s))
	return s
}

// Node reads a node.
func (w *World) Node(name string) *corev1.Node {
	w.Helper()
	n := &corev1.Node{}
	w.Must(w.Client.Get(context.Background(), client.ObjectKey{Name: name}, n))
	return n
}

// Pods lists the pods of Skyhooks.
func (w *World) Pods() []corev1.Pod {
	w.Helper()
	l := &corev1.PodList{}
	w.Must(w.Client.List(context.Background(), l, client.InNamespace(w.Namespace)))
	return l.Items
}

// Eventually waits until something is so. It asks again and again, because others have to act; the time is a bound only.
func (w *World) Eventually(what string, so func() bool) {
	w.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !so(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.explain()
			w.Fatalf("waited two minutes, and still not: %s", what)
		}
	}
}

// Complete waits until a Skyhook is complete and says so of its present generation.
func (w *World) Complete(name string) {
	w.Helper()
	w.Eventually("Skyhook "+name+" is complete", func() bool { return Ready(w.Skyhook(name)) })
}

// Ready says that a Skyhook claims to be ready for its present generation.
func Ready(s *v1alpha1.Skyhook) bool {
	for _, c := range s.Status.Conditions {
		if c.Type == v1alpha1.ConditionReady {
			return c.Status == metav1.ConditionTrue && c.ObservedGeneration == s.Generation
		}
	}
	return false
}

// Admitted counts the admissions that nodes record, of Skyhooks and of NodeOps.
func (w *World) Admitted() int {
	l := &corev1.NodeList{}
	if err := w.Client.List(context.Background(), l); err != nil {
		w.Error(err)
	}
	n := 0
	for _, node := range l.Items {
		for key, value := range node.Annotations {
			ours := strings.HasPrefix(key, v1alpha1.PrefixRecord) || strings.HasPrefix(key, opv1.PrefixRecord)
			if ours && strings.Contains(value, `"admitted":true`) {
				n++
			}
		}
	}
	return n
}

// Marks lists what is ours on a node: annotations, labels, conditions and taints.
func Marks(n *corev1.Node) []string {
	var out []string
	add := func(key string) {
		if strings.HasPrefix(key, v1alpha1.Group+"/") || key == v1alpha1.Group {
			out = append(out, key)
		}
	}
	for key := range n.Annotations {
		add(key)
	}
	for key := range n.Labels {
		add(key)
	}
	for _, c := range n.Status.Conditions {
		add(string(c.Type))
	}
	for _, t := range n.Spec.Taints {
		add(t.Key)
	}
	return out
}

// explain prints how things are, for a test that fails.
func (w *World) explain() {
	hooks, nodes, pods := &v1alpha1.SkyhookList{}, &corev1.NodeList{}, &corev1.PodList{}
	for _, l := range []client.ObjectList{hooks, nodes, pods} {
		if err := w.Client.List(context.Background(), l); err != nil {
			w.Log(err)
		}
	}
	for _, s := range hooks.Items {
		text, err := yaml.Marshal(s.Status)
		w.Logf("Skyhook %s: %v\n%s", s.Name, err, text)
	}
	for _, n := range nodes.Items {
		w.Logf("node %s: unschedulable %v, taints %v, annotations %v", n.Name, n.Spec.Unschedulable, n.Spec.Taints, n.Annotations)
	}
	for _, p := range pods.Items {
		w.Logf("pod %s/%s on %s: %s, leaving %v", p.Namespace, p.Name, p.Spec.NodeName, p.Status.Phase, p.DeletionTimestamp)
	}
}

// clear removes what a test left, so that the next one begins with nothing.
func (w *World) clear() {
	ctx := context.Background()
	hooks, pods := &v1alpha1.SkyhookList{}, &corev1.PodList{}
	w.Must(w.Client.List(ctx, hooks))
	for i := range hooks.Items {
		s := &hooks.Items[i]
		w.Must(client.IgnoreNotFound(w.Client.Patch(ctx, s, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))))
		w.Must(client.IgnoreNotFound(w.Client.Delete(ctx, s)))
	}
	w.clearOps(ctx)
	policies := &v1alpha1.DeploymentPolicyList{}
	w.Must(w.Client.List(ctx, policies))
	for i := range policies.Items {
		p := &policies.Items[i]
		w.Must(client.IgnoreNotFound(w.Client.Patch(ctx, p, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))))
		w.Must(client.IgnoreNotFound(w.Client.Delete(ctx, p)))
	}
	w.Must(w.Client.DeleteAllOf(ctx, &corev1.Node{}))
	w.Must(w.Client.List(ctx, pods))
	for i := range pods.Items {
		w.Must(client.IgnoreNotFound(w.Client.Delete(ctx, &pods.Items[i], client.GracePeriodSeconds(0))))
	}
}

// clearOps deletes NodeOps, upgrades and Jobs, in every namespace.
func (w *World) clearOps(ctx context.Context) {
	ops, upgrades, jobs := &opv1.NodeOpList{}, &opv1.NodeOpUpgradeList{}, &batchv1.JobList{}
	w.Must(w.Client.List(ctx, ops))
	w.Must(w.Client.List(ctx, upgrades))
	w.Must(w.Client.List(ctx, jobs))
	var all []client.Object
	for i := range upgrades.Items {
		all = append(all, &upgrades.Items[i])
	}
	for i := range ops.Items {
		all = append(all, &ops.Items[i])
	}
	for i := range jobs.Items {
		all = append(all, &jobs.Items[i])
	}
	for _, o := range all {
		w.Must(client.IgnoreNotFound(w.Client.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))))
		w.Must(client.IgnoreNotFound(w.Client.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationBackground))))
	}
}
