// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
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
	pods := podsIn(t, "kyverno/pods.yaml")
	deadline := time.Now().Add(2 * time.Minute)
	for create(find(t, pods, "compact-foreign")) == nil { // the policy takes effect after a moment
		if time.Now().After(deadline) {
			t.Fatal("two minutes, and the policy refuses nothing")
		}
		time.Sleep(100 * time.Millisecond)
	}
	for _, p := range pods {
		err := create(p)
		switch want := isRefused(p.Name); {
		case want && (err == nil || !strings.Contains(err.Error(), message)), !want && err != nil:
			t.Errorf("%s: %v, refused is to be %v", p.Name, err, want)
		}
	}
}

func find(t *testing.T, pods []corev1.Pod, name string) corev1.Pod {
	t.Helper()
	for _, p := range pods {
		if p.Name == name {
			return p
		}
	}
	t.Fatalf("there is no pod %s", name)
	return corev1.Pod{}
}

// TestAdmissionPolicyOfPods: images of pods in the operator's namespace count wherever a pod names them, in both layouts.
func TestAdmissionPolicyOfPods(t *testing.T) {
	c := podClient(t, map[string]map[string]string{"skyhook": nil, "team": nil})
	createUntilEnd(t, "../../docs/kyverno/admission-policy.yaml")
	isRefused := func(name string) bool { return strings.Contains(name, "foreign") || strings.Contains(name, "similar") }
	requirePods(t, c, func(p corev1.Pod) string { return p.Namespace }, isRefused, "images of pods and of their volumes come from")
}

// TestNoImageVolumes: where policy-controller checks pods, none mounts an image, because it does not look at volumes.
func TestNoImageVolumes(t *testing.T) {
	c := podClient(t, map[string]map[string]string{"checked": {"policy.sigstore.dev/include": "true"}})
	createUntilEnd(t, "../../docs/kyverno/no-image-volumes.yaml")
	isRefused := func(name string) bool { return strings.HasPrefix(name, "compact") }
	requirePods(t, c, func(corev1.Pod) string { return "checked" }, isRefused, "use podLayout Compatible")
}
