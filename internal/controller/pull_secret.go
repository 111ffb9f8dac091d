// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// defaultPullSecret is the Secret for pulling images that the chart names unless told otherwise.
const defaultPullSecret = "node-init-secret"

// pullSecretClient leaves the default Secret out of pods that it creates while there is none: kubelets warn of each pod that names one
// that does not exist. A Secret of another name was asked for, and stays.
type pullSecretClient struct {
	client.Client
	namespace string
	mutex     sync.Mutex
	checked   time.Time
	isMissing bool // when checked
}

// Create creates an object.
func (c *pullSecretClient) Create(ctx context.Context, o client.Object, options ...client.CreateOption) error {
	secret := corev1.LocalObjectReference{Name: defaultPullSecret}
	if pod, ok := o.(*corev1.Pod); ok && pod.Namespace == c.namespace && slices.Contains(pod.Spec.ImagePullSecrets, secret) && c.lacksSecret(ctx) {
		pod.Spec.ImagePullSecrets = slices.DeleteFunc(pod.Spec.ImagePullSecrets, func(s corev1.LocalObjectReference) bool { return s == secret })
	}
	return c.Client.Create(ctx, o, options...)
}

// lacksSecret asks for the name of the Secret, never for its content, and at most every ten seconds. Who may not ask keeps it in pods.
func (c *pullSecretClient) lacksSecret(ctx context.Context) bool {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if now := time.Now(); now.Sub(c.checked) > 10*time.Second {
		o := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}}
		c.checked, c.isMissing = now, apierrors.IsNotFound(c.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: defaultPullSecret}, o))
	}
	return c.isMissing
}
