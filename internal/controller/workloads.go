// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/skyhook-k8s/skyhook/internal/cluster"
)

// A watch costs memory here and in the API server. Nodes beyond mostWatched are listed now and then instead, a few of
// them in one pass.
const (
	mostWatched  = 300
	listedAgain  = 10 * time.Second
	listedAtOnce = 20
)

// workloads watches the pods on the nodes that are held, each node by itself as its kubelet does, and only as long as
// it is held: so a pod that leaves is seen at once, and nobody keeps all pods of a large cluster in memory.
type workloads struct {
	client kubernetes.Interface
	wake   func()
	clock  func() time.Time
	most   int // watched at the same time

	mu     sync.Mutex
	nodes  map[string]*watched
	listed map[string]listing
	again  *time.Timer // wakes the loop for the nodes that are listed; nil before there was one
}

// watched is a node whose pods are followed.
type watched struct {
	pods   toolscache.Store
	synced func() bool
	stop   context.CancelFunc
}

// listing is what ran on a node some time ago.
type listing struct {
	pods []*corev1.Pod
	at   time.Time
}

func newWorkloads(c kubernetes.Interface, wake func()) *workloads {
	return &workloads{
		client: c, wake: wake, clock: time.Now, most: mostWatched, nodes: map[string]*watched{}, listed: map[string]listing{},
	}
}

// On gives the pods on the nodes as far as they were listed, begins to watch new ones, and ends watching all others.
func (w *workloads) On(ctx context.Context, nodes []string) (map[string][]*corev1.Pod, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keepOnly(nodes)
	out := make(map[string][]*corev1.Pod, len(nodes))
	var rest []string
	for _, n := range nodes {
		on := w.nodes[n]
		if on == nil && len(w.nodes) >= w.most {
			rest = append(rest, n)
			continue
		}
		if on == nil {
			on = w.begin(context.WithoutCancel(ctx), n)
			w.nodes[n] = on
			delete(w.listed, n)
		}
		if on.synced() {
			out[n] = pointers(on.pods.List())
		}
	}
	return out, w.list(ctx, rest, out)
}

// keepOnly forgets every other node.
func (w *workloads) keepOnly(nodes []string) {
	wanted := make(map[string]bool, len(nodes))
	for _, n := range nodes {
		wanted[n] = true
	}
	for n, on := range w.nodes {
		if !wanted[n] {
			on.stop()
			delete(w.nodes, n)
		}
	}
	for n := range w.listed {
		if !wanted[n] {
			delete(w.listed, n)
		}
	}
}

// list looks at nodes for which there is no watch, at those first that were not looked at for the longest time.
func (w *workloads) list(ctx context.Context, nodes []string, out map[string][]*corev1.Pod) error {
	now := w.clock()
	var errs []error
	slices.SortStableFunc(nodes, func(a, b string) int { return w.listed[a].at.Compare(w.listed[b].at) })
	for i, n := range nodes {
		if i < listedAtOnce && !w.listed[n].at.Add(listedAgain).After(now) {
			list, err := w.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: onNode(n)})
			if err != nil {
				errs = append(errs, fmt.Errorf("listing pods on node %s: %w", n, err))
				continue
			}
			l := listing{at: now, pods: []*corev1.Pod{}}
			for i := range list.Items {
				l.pods = append(l.pods, cluster.StripWorkload(&list.Items[i]))
			}
			w.listed[n] = l
		}
		if l, ok := w.listed[n]; ok {
			out[n] = l.pods
		}
	}
	if len(nodes) > 0 {
		if w.again == nil {
			w.again = time.AfterFunc(never, w.wake)
		}
		w.again.Reset(listedAgain)
	}
	return errors.Join(errs...)
}

func onNode(name string) string { return fields.OneTermEqualSelector("spec.nodeName", name).String() }

func pointers(objects []any) []*corev1.Pod {
	out := make([]*corev1.Pod, 0, len(objects))
	for _, o := range objects {
		if p, ok := o.(*corev1.Pod); ok {
			out = append(out, p)
		}
	}
	return out
}

// begin lists the pods of one node from the API server itself, and follows them from there.
func (w *workloads) begin(ctx context.Context, node string) *watched {
	ctx, stop := context.WithCancel(ctx)
	selector := onNode(node)
	pods := w.client.CoreV1().Pods(metav1.NamespaceAll)
	store, follow := toolscache.NewInformerWithOptions(toolscache.InformerOptions{
		ListerWatcher: &toolscache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				o.FieldSelector, o.ResourceVersion = selector, ""
				return pods.List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				o.FieldSelector = selector
				return pods.Watch(ctx, o)
			},
		},
		ObjectType: &corev1.Pod{},
		Transform:  strip(cluster.StripWorkload),
		Handler: toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { w.wake() },
			DeleteFunc: func(any) { w.wake() },
			UpdateFunc: func(before, after any) {
				b, okBefore := before.(*corev1.Pod)
				a, okAfter := after.(*corev1.Pod)
				if !okBefore || !okAfter || b.Status.Phase != a.Status.Phase || !maps.Equal(b.Labels, a.Labels) ||
					(b.DeletionTimestamp == nil) != (a.DeletionTimestamp == nil) {
					w.wake()
				}
			},
		},
	})
	go func() {
		defer stop()
		follow.RunWithContext(ctx)
	}()
	go func() {
		if toolscache.WaitForCacheSync(ctx.Done(), follow.HasSynced) {
			w.wake() // also when nothing runs there
		}
	}()
	return &watched{pods: store, synced: follow.HasSynced, stop: stop}
}

// end stops watching.
func (w *workloads) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for n, on := range w.nodes {
		on.stop()
		delete(w.nodes, n)
	}
}
