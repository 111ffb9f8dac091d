// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"
)

// podClient creates pods on the API server of the tests, in namespaces with a label.
func podClient(t *testing.T, namespaces map[string]map[string]string) kubernetes.Interface {
	t.Helper()
	connect(t)
	c, err := kubernetes.NewForConfig(plane.Config)
	if err != nil {
		t.Fatal(err)
	}
	for name, labels := range namespaces {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
		if _, err := c.CoreV1().Namespaces().Create(context.Background(), n, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
		a := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
		if _, err := c.CoreV1().ServiceAccounts(name).Create(context.Background(), a, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	return c
}

// requirePods checks which pods of kyverno/pods.yaml the API server refuses, by a part of its message.
func requirePods(t *testing.T, c kubernetes.Interface, in func(corev1.Pod) string, isRefused func(name string) bool, message string) {
	t.Helper()
	create := func(p corev1.Pod) error {
		p.Namespace = in(p)
		_, err := c.CoreV1().Pods(p.Namespace).Create(context.Background(), &p, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	for _, p := range podsIn(t, "kyverno/pods.yaml") {
		err := create(p)
		switch want := isRefused(p.Name); {
		case want && (err == nil || !strings.Contains(err.Error(), message)), !want && err != nil:
			t.Errorf("%s: %v, refused is to be %v", p.Name, err, want)
		}
	}
}

// TestAdmissionPolicyOfPods: images of pods in the operator's namespace count wherever a pod names them, in both layouts.
func TestAdmissionPolicyOfPods(t *testing.T) {
	c := podClient(t, map[string]map[string]string{"skyhook": nil, "team": nil})
	createUntilEnd(t, "../../docs/kyverno/admission-policy.yaml")
	isRefused := func(name string) bool { return strings.Contains(name, "foreign") || strings.Contains(name, "similar") }
	requirePods(t, c, func(p corev1.Pod) string { return p.Namespace }, isRefused, "images of pods and of their volumes come from")
}

// TestDeletionPastAdmissionPolicy: what is older than the policies and violates them can be deleted, and nothing else of it changed.
func TestDeletionPastAdmissionPolicy(t *testing.T) {
	c := podClient(t, map[string]map[string]string{"skyhook": nil, "team": nil})
	at := map[string]dynamic.ResourceInterface{
		"/spec/packages/tool/image": client.Resource(schema.GroupVersionResource{Group: "skyhook.nvidia.com", Version: "v1alpha1", Resource: "skyhooks"}),
		"/spec/image":               client.Resource(schema.GroupVersionResource{Group: "operator.kairos.io", Version: "v1alpha1", Resource: "nodeops"}).Namespace("default"),
		"/spec/containers/0/image":  client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Namespace("skyhook"),
	}
	awaitPolicies(t) // of another test, which are not in effect any more
	for field, text := range map[string]string{
		"/spec/packages/tool/image": "{apiVersion: skyhook.nvidia.com/v1alpha1, kind: Skyhook, metadata: {name: old, finalizers: [example.org/held]}, spec: {packages: {tool: {version: 1.0.0, image: example.com/tool}}}}",
		"/spec/image":               "{apiVersion: operator.kairos.io/v1alpha1, kind: NodeOp, metadata: {name: old, finalizers: [example.org/held]}, spec: {command: [x], image: 'example.com/tool:1'}}",
		"/spec/containers/0/image":  "{apiVersion: v1, kind: Pod, metadata: {name: old, finalizers: [example.org/held]}, spec: {containers: [{name: a, image: 'example.com/tool:1'}]}}",
	} {
		var o unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
			t.Fatal(err)
		}
		_, err := at[field].Create(t.Context(), &o, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := at[field].Delete(t.Context(), "old", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	createUntilEnd(t, "../../docs/kyverno/admission-policy.yaml")
	requirePods(t, c, func(p corev1.Pod) string { return p.Namespace }, func(name string) bool { return strings.Contains(name, "foreign") || strings.Contains(name, "similar") }, "come from")
	for field, objects := range at {
		_, err := objects.Patch(t.Context(), "old", types.JSONPatchType, fmt.Appendf(nil, `[{"op":"replace","path":%q,"value":"example.com/other:1"}]`, field), metav1.PatchOptions{})
		if err == nil || !strings.Contains(err.Error(), "come from") {
			t.Errorf("%s of what is being deleted can be changed: %v", field, err)
		}
		if _, err := objects.Patch(t.Context(), "old", types.JSONPatchType, []byte(`[{"op":"remove","path":"/metadata/finalizers"}]`), metav1.PatchOptions{}); err != nil {
			t.Errorf("with %s it keeps its finalizer: %v", field, err)
		}
	}
}

// TestNoImageVolumes: where policy-controller checks pods, none mounts an image, because it does not look at volumes.
func TestNoImageVolumes(t *testing.T) {
	c := podClient(t, map[string]map[string]string{"checked": {"policy.sigstore.dev/include": "true"}})
	createUntilEnd(t, "../../docs/kyverno/no-image-volumes.yaml")
	isRefused := func(name string) bool { return strings.HasPrefix(name, "compact") }
	requirePods(t, c, func(corev1.Pod) string { return "checked" }, isRefused, "use podLayout Compatible")
}
