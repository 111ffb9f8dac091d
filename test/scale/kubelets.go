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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// live plays the kubelets: they run pods, let deleted ones go, and report now and then.
func (f *fleet) live(ctx context.Context) {
	pods := f.typed.CoreV1().Pods(namespace)
	_, follow := toolscache.NewInformerWithOptions(toolscache.InformerOptions{
		ListerWatcher: &toolscache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return pods.List(ctx, o) },
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return pods.Watch(ctx, o)
			},
		},
		ObjectType: &corev1.Pod{},
		Handler: toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(o any) {
				p, _ := o.(*corev1.Pod)
				f.more()
				time.AfterFunc(f.somewhat(f.stage), func() { f.finish(ctx, p) })
			},
			UpdateFunc: func(before, after any) {
				was, _ := before.(*corev1.Pod)
				is, _ := after.(*corev1.Pod)
				if was.DeletionTimestamp == nil && is.DeletionTimestamp != nil {
					time.AfterFunc(f.somewhat(200*time.Millisecond), func() { f.let(ctx, is) })
				}
			},
			DeleteFunc: func(any) { f.busy.Add(-1) },
		},
	})
	go follow.RunWithContext(ctx)
	f.liveJobs(ctx)
	go f.report(ctx)
}

// more counts one more at work.
func (f *fleet) more() {
	most := f.busy.Add(1)
	for old := f.most.Load(); most > old && !f.most.CompareAndSwap(old, most); old = f.most.Load() {
	}
}

func (f *fleet) somewhat(d time.Duration) time.Duration { return d/2 + rand.N(d) }

// finish says that all init containers of a pod have ended well.
func (f *fleet) finish(ctx context.Context, p *corev1.Pod) {
	q := p.DeepCopy()
	q.Status.Phase = corev1.PodRunning
	for _, c := range p.Spec.InitContainers {
		q.Status.InitContainerStatuses = append(q.Status.InitContainerStatuses, corev1.ContainerStatus{Name: c.Name, Image: c.Image, State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", FinishedAt: metav1.Now()}}})
	}
	if err := f.client.Status().Patch(ctx, q, client.MergeFrom(p)); client.IgnoreNotFound(err) != nil && ctx.Err() == nil {
		fmt.Fprintf(os.Stderr, "scale: ending pod %s: %v\n", p.Name, err)
	}
	f.ended.Add(1)
}

// let lets a deleted pod go.
func (f *fleet) let(ctx context.Context, p *corev1.Pod) {
	now := int64(0)
	err := f.client.Delete(ctx, p, &client.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &p.UID}})
	if client.IgnoreNotFound(err) != nil && ctx.Err() == nil {
		fmt.Fprintf(os.Stderr, "scale: letting pod %s go: %v\n", p.Name, err)
	}
}

// report has one kubelet after the other say that it is alive.
func (f *fleet) report(ctx context.Context) {
	each := time.NewTicker(f.heartbeat / time.Duration(f.nodes))
	defer each.Stop()
	for i := 0; ; i = (i + 1) % f.nodes {
		select {
		case <-ctx.Done():
			return
		case <-each.C:
		}
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node(i).Name}}
		beat := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","lastHeartbeatTime":%q}]}}`, time.Now().UTC().Format(time.RFC3339))
		if err := f.client.Status().Patch(ctx, n, client.RawPatch(types.StrategicMergePatchType, []byte(beat))); err != nil && ctx.Err() == nil {
			fmt.Fprintf(os.Stderr, "scale: reporting for node %s: %v\n", n.Name, err)
		}
	}
}
