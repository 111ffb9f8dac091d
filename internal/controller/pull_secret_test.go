// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
	"github.com/skyhook-k8s/skyhook/test/testenv"
)

// TestDefaultPullSecret: pods name the default Secret only while it exists, and always where the operator may not ask for it. Secrets of
// other names are named though they do not exist, and pods of other namespaces are left as they are.
func TestDefaultPullSecret(t *testing.T) {
	s, ctx := testenv.New(t, plane, 0), context.Background()
	c := &pullSecretClient{Client: s.Client, namespace: s.Namespace}
	secretsOf := func(namespace string) string {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "pod-"}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "c", Image: "i"}}, ImagePullSecrets: plan.PullSecrets("mine," + defaultPullSecret),
		}}
		c.checked = c.checked.Add(-time.Minute) // as if it was long ago
		s.Must(c.Create(ctx, pod))
		return fmt.Sprint(pod.Spec.ImagePullSecrets)
	}
	requireSecrets := func(when, namespace, want string) {
		t.Helper()
		if got := secretsOf(namespace); got != want {
			t.Errorf("%s a pod names %s, want %s", when, got, want)
		}
	}
	requireSecrets("without the Secret", s.Namespace, "[{mine}]")
	requireSecrets("elsewhere", plane.Namespace(t), "[{mine} {node-init-secret}]")
	s.Must(s.Client.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: defaultPullSecret}}))
	requireSecrets("with the Secret", s.Namespace, "[{mine} {node-init-secret}]")
	s.Must(s.Client.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: defaultPullSecret}}))
	nobody := rest.CopyConfig(plane.Config)
	nobody.Impersonate.UserName = "nobody"
	asking, err := client.New(nobody, client.Options{Scheme: s.Client.Scheme()})
	s.Must(err)
	if forbidden := (&pullSecretClient{Client: asking, namespace: s.Namespace}); forbidden.lacksSecret(ctx) {
		t.Error("who may not ask for the Secret takes it for missing")
	}
}
