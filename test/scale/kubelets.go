// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// startKubelets starts fake kubelets, which complete pods, remove deleted ones, and send heartbeats.
func (f *simulation) startKubelets(ctx context.Context) {
	_, follow := toolscache.NewInformerWithOptions(toolscache.InformerOptions{
		ListerWatcher: toolscache.NewListWatchFromClient(f.typed.CoreV1().RESTClient(), "pods", namespace, fields.Everything()),
		ObjectType:    &corev1.Pod{},
		Handler: toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(o any) {
				p, _ := o.(*corev1.Pod)
				f.countActive()
				go f.runPod(ctx, p.DeepCopy())
			},
			UpdateFunc: func(before, after any) {
				was, _ := before.(*corev1.Pod)
				is, _ := after.(*corev1.Pod)
				if was.DeletionTimestamp == nil && is.DeletionTimestamp != nil {
					time.AfterFunc(f.randomize(200*time.Millisecond), func() { f.removePod(ctx, is) })
				}
			},
			DeleteFunc: func(any) { f.active.Add(-1) },
		},
	})
	go follow.RunWithContext(ctx)
	f.startJobController(ctx)
	go f.sendHeartbeats(ctx)
}

// countActive counts a pod or Job that starts.
func (f *simulation) countActive() {
	most := f.active.Add(1)
	for old := f.mostActive.Load(); most > old && !f.mostActive.CompareAndSwap(old, most); old = f.mostActive.Load() {
	}
}

func (f *simulation) randomize(d time.Duration) time.Duration { return d/2 + rand.N(d) }

// removePod removes a pod that was deleted.
func (f *simulation) removePod(ctx context.Context, p *corev1.Pod) {
	now := int64(0)
	err := f.client.Delete(ctx, p, &client.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &p.UID}})
	if client.IgnoreNotFound(err) != nil && ctx.Err() == nil {
		fmt.Fprintf(os.Stderr, "scale: removing pod %s: %v\n", p.Name, err)
	}
}

// sendHeartbeats updates the Ready condition of one node after the other.
func (f *simulation) sendHeartbeats(ctx context.Context) {
	each := time.NewTicker(f.heartbeat / time.Duration(f.nodes))
	defer each.Stop()
	for i := 0; ; i = (i + 1) % f.nodes {
		select {
		case <-ctx.Done():
			return
		case <-each.C:
		}
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: newNode(int(f.oldest.Load()) + i).Name}}
		beat := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","lastHeartbeatTime":%q}]}}`, time.Now().UTC().Format(time.RFC3339))
		if err := f.client.Status().Patch(ctx, n, client.RawPatch(types.StrategicMergePatchType, []byte(beat))); client.IgnoreNotFound(err) != nil && ctx.Err() == nil {
			fmt.Fprintf(os.Stderr, "scale: sending a heartbeat for node %s: %v\n", n.Name, err)
		}
	}
}
