// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// brokenParts: programs of the control plane come back with what was stored, a node without network is not ready until it is connected
// again, and hidden images are not found.
func brokenParts(t *testing.T, c *Cluster) {
	ctx := context.Background()
	for _, program := range []string{"etcd", "kube-apiserver"} {
		if err := c.KillProgram(ctx, program); err != nil {
			t.Fatal(err)
		}
		err := pollUntil(ctx, "the namespace is there again", time.Minute, func(ctx context.Context) (bool, string) {
			_, err := c.Client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
			return err == nil, "it is not"
		})
		if err != nil {
			t.Fatalf("after the end of %s: %v", program, err)
		}
	}
	if err := c.KillProgram(ctx, "nobody"); err == nil || !strings.Contains(err.Error(), "no program of the control plane of that name") {
		t.Errorf("killing a program that does not exist gave %v", err)
	}
	c.requireCutWatches(t)

	if err := c.Disconnect(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitReady(ctx, "a", false); err != nil {
		t.Fatal(err)
	}
	if err := c.Reconnect(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitReady(ctx, "a", true); err != nil {
		t.Fatal(err)
	}

	if err := c.HideImages(ctx, "ghcr.io/acme/tools"); err != nil {
		t.Fatal(err)
	}
	always := func(p *corev1.Pod) { p.Spec.Containers[0].ImagePullPolicy = corev1.PullAlways }
	c.testPod(t, "hidden", "a", toolsImage, always)
	c.waitPod(t, "hidden", "gets no image", refused)
	if err := c.HideImages(ctx); err != nil {
		t.Fatal(err)
	}
	c.testPod(t, "shown", "a", toolsImage, always)
	c.waitPod(t, "shown", "runs", running)
}

// requireCutWatches cuts a watch of the administrator, which ends before its time.
func (c *Cluster) requireCutWatches(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	w, err := c.Client.CoreV1().ConfigMaps("default").Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=nothing"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if n, err := c.CutWatches(ctx, "^admin$"); err != nil || n == 0 {
		t.Errorf("%d watches were cut: %v", n, err)
	}
	for range w.ResultChan() { // until the watch ends
	}
	if ctx.Err() != nil {
		t.Error("the watch went on")
	}
}
