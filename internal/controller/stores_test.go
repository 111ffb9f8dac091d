// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// TestStores: what a cache watches is listed from its store, each object once and without a copy.
func TestStores(t *testing.T) {
	w := newFixture(t, 2)
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	stored := newStores()
	options := cacheOptions("default", stored) // where workload creates pods
	options.Scheme = scheme
	c, err := cache.New(w.config, options)
	if err != nil {
		t.Fatal(err)
	}
	if got := listStored[*corev1.Pod](stored); got != nil {
		t.Errorf("before anything is watched there are the pods %v, want nil", got)
	}
	for _, kind := range []client.Object{&corev1.Pod{}, &corev1.Node{}} {
		if _, err := c.GetInformer(t.Context(), kind, cache.BlockUntilSynced(false)); err != nil {
			t.Fatal(err)
		}
	}
	go func() { _ = c.Start(t.Context()) }()
	if !c.WaitForCacheSync(t.Context()) {
		t.Fatal("the cache does not sync")
	}
	if nodes := listStored[*corev1.Node](stored); len(nodes) != 2 {
		t.Errorf("%d nodes are stored, want 2", len(nodes))
	}
	if pods := listStored[*corev1.Pod](stored); pods == nil || len(pods) != 0 {
		t.Errorf("the pods are %v, want none and not nil", pods)
	}
	w.Apply(workload("ours", "n1", v1alpha1.LabelName+": demo"))
	w.Apply(workload("foreign", "n1", "app: x"))
	var pods []*corev1.Pod
	w.Eventually("the pod of a Skyhook is stored", func() bool {
		pods = listStored[*corev1.Pod](stored)
		return len(pods) > 0
	})
	if again := listStored[*corev1.Pod](stored); len(pods) != 1 || pods[0].Name != "ours" || again[0] != pods[0] {
		t.Errorf("the stored pods are %v and then %v, want one pod twice", pods, again)
	}

	stored.newInformer(&toolscache.ListWatch{}, &corev1.Pod{}, time.Hour, nil)
	if got := listStored[*corev1.Pod](stored); got != nil {
		t.Errorf("with two informers of pods %v is listed, want nil", got)
	}
}
