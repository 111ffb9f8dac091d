// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package testenv gives tests a small cluster on a real API server: ready nodes, and one fake kubelet for all of them. Pods
// do not really run; test/e2e covers that.
package testenv

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
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

// Env is the cluster of one test. It is emptied when the test ends, so tests that use one must not run in parallel.
type Env struct {
	testing.TB
	Config    *rest.Config
	Client    client.Client
	Namespace string // of the pods of Skyhooks
}

// New creates an environment with nodes n1, n2, … that carry the label pool=gpu.
func New(t testing.TB, plane *controlplane.Plane, nodes int) *Env {
	t.Helper()
	c, err := client.New(plane.Config, client.Options{Scheme: Scheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	e := &Env{TB: t, Config: plane.Config, Client: c, Namespace: plane.Namespace(t)}
	t.Cleanup(e.deleteAll)
	for i := range nodes {
		e.AddNode(fmt.Sprintf("n%d", i+1), map[string]string{"pool": "gpu"})
	}
	return e
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

// Must fails the test on an error that the test is not about.
func (e *Env) Must(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

// AddNode creates a ready node.
func (e *Env) AddNode(name string, labels map[string]string) {
	e.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	e.Must(e.Client.Create(context.Background(), n))
	lift := `[{"op":"test","path":"/spec/taints/0/key","value":"node.kubernetes.io/not-ready"},{"op":"remove","path":"/spec/taints/0"}]`
	e.Must(e.Client.Patch(context.Background(), n, client.RawPatch(types.JSONPatchType, []byte(lift)))) // keep the operator's taint
	status := `{"status":{"nodeInfo":{"bootID":"boot-1","kubeletVersion":"v1.36.0","containerRuntimeVersion":"containerd://2.2.0"},"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady"}]}}`
	e.Must(e.Client.Status().Patch(context.Background(), n, client.RawPatch(types.MergePatchType, []byte(status)))) // the operator may write as well
}

// Patch applies a JSON merge patch to an object.
func (e *Env) Patch(o client.Object, text string) {
	e.Helper()
	e.Must(e.Client.Patch(context.Background(), o, client.RawPatch(types.MergePatchType, []byte(text))))
}

// Apply creates a Skyhook, DeploymentPolicy, Pod or PodDisruptionBudget that is written as YAML, or merges it into the
// one that is there.
func (e *Env) Apply(text string) client.Object {
	e.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	e.Must(err)
	var head metav1.TypeMeta
	e.Must(yaml.Unmarshal([]byte(text), &head))
	made, err := e.Client.Scheme().New(head.GroupVersionKind())
	e.Must(err)
	o, ok := made.(client.Object)
	if !ok {
		e.Fatalf("%T is no object", made)
	}
	e.Must(yaml.UnmarshalStrict([]byte(text), o))
	err = e.Client.Create(context.Background(), o)
	e.Must(client.IgnoreAlreadyExists(err))
	if err != nil {
		e.Patch(o, string(raw))
	}
	return o
}

// GetSkyhook reads a Skyhook.
func (e *Env) GetSkyhook(name string) *v1alpha1.Skyhook {
	e.Helper()
	s := &v1alpha1.Skyhook{}
	e.Must(e.Client.Get(context.Background(), client.ObjectKey{Name: name}, s))
	return s
}

// GetNode reads a node.
func (e *Env) GetNode(name string) *corev1.Node {
	e.Helper()
	n := &corev1.Node{}
	e.Must(e.Client.Get(context.Background(), client.ObjectKey{Name: name}, n))
	return n
}

// ListPods lists the pods of Skyhooks.
func (e *Env) ListPods() []corev1.Pod {
	e.Helper()
	l := &corev1.PodList{}
	e.Must(e.Client.List(context.Background(), l, client.InNamespace(e.Namespace)))
	return l.Items
}

// Eventually polls until a condition holds, and fails the test after two minutes.
func (e *Env) Eventually(what string, holds func() bool) {
	e.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			e.dumpState()
			e.Fatalf("timed out after two minutes: %s", what)
		}
	}
}

// WaitComplete waits until a Skyhook is ready for its current generation.
func (e *Env) WaitComplete(name string) {
	e.Helper()
	e.Eventually("Skyhook "+name+" is complete", func() bool { return IsReady(e.GetSkyhook(name)) })
}

// IsReady reports whether a Skyhook is ready for its current generation.
func IsReady(s *v1alpha1.Skyhook) bool {
	for _, c := range s.Status.Conditions {
		if c.Type == v1alpha1.ConditionReady {
			return c.Status == metav1.ConditionTrue && c.ObservedGeneration == s.Generation
		}
	}
	return false
}

// CountAdmitted counts the admissions that nodes record, of Skyhooks and of NodeOps.
func (e *Env) CountAdmitted() int {
	l := &corev1.NodeList{}
	if err := e.Client.List(context.Background(), l); err != nil {
		e.Error(err)
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

// ListMarks lists the keys of all annotations, labels, conditions and taints of Skyhook on a node.
func ListMarks(n *corev1.Node) []string {
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

// ListRemains lists the marks on a node that a deleted Skyhook may not leave: it may leave the mark that the node is known, and the
// record of packages that stay on the host.
func ListRemains(n *corev1.Node) []string {
	return slices.DeleteFunc(ListMarks(n), func(mark string) bool {
		isRecord := strings.HasPrefix(mark, v1alpha1.PrefixNodeState) || strings.HasPrefix(mark, v1alpha1.PrefixRecord) || strings.HasPrefix(mark, v1alpha1.PrefixVersion)
		return mark == v1alpha1.AnnotationKnown || isRecord
	})
}

// dumpState logs Skyhooks, nodes and pods of a test that fails.
func (e *Env) dumpState() {
	hooks, nodes, pods := &v1alpha1.SkyhookList{}, &corev1.NodeList{}, &corev1.PodList{}
	for _, l := range []client.ObjectList{hooks, nodes, pods} {
		if err := e.Client.List(context.Background(), l); err != nil {
			e.Log(err)
		}
	}
	for _, s := range hooks.Items {
		text, err := yaml.Marshal(s.Status)
		e.Logf("Skyhook %s: %v\n%s", s.Name, err, text)
	}
	for _, n := range nodes.Items {
		e.Logf("node %s: unschedulable %v, taints %v, annotations %v", n.Name, n.Spec.Unschedulable, n.Spec.Taints, n.Annotations)
	}
	for _, p := range pods.Items {
		e.Logf("pod %s/%s on %s: %s, leaving %v", p.Namespace, p.Name, p.Spec.NodeName, p.Status.Phase, p.DeletionTimestamp)
	}
}

// deleteAll removes everything that a test created, in every namespace.
func (e *Env) deleteAll() {
	ctx := context.Background()
	for _, l := range []client.ObjectList{
		&v1alpha1.SkyhookList{}, &opv1.NodeOpUpgradeList{}, &opv1.NodeOpList{}, &batchv1.JobList{}, &v1alpha1.DeploymentPolicyList{}, &corev1.NodeList{}, &corev1.PodList{},
	} {
		e.Must(e.Client.List(ctx, l))
		e.Must(meta.EachListItem(l, func(item runtime.Object) error {
			o, ok := item.(client.Object)
			if !ok {
				return fmt.Errorf("%T is no object", item)
			}
			if len(o.GetFinalizers()) > 0 {
				err := e.Client.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
				if client.IgnoreNotFound(err) != nil {
					return err
				}
			}
			return client.IgnoreNotFound(e.Client.Delete(ctx, o, client.GracePeriodSeconds(0), client.PropagationPolicy(metav1.DeletePropagationBackground)))
		}))
	}
}
