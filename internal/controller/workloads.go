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
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster"
)

// A watch costs memory here and in the API server. Nodes beyond defaultMaxWatched are listed now and then instead, a few of
// them in one pass.
const (
	defaultMaxWatched = 300
	relistInterval    = 10 * time.Second
	relistBatch       = 20
)

// workloadWatcher watches the pods on held nodes, with one watch per node, as kubelets do. So a pod that leaves is seen at
// once, and the pods of other nodes are not kept in memory.
type workloadWatcher struct {
	client      typedcorev1.PodsGetter
	requestPass func()
	clock       func() time.Time
	maxWatched  int // watched at the same time

	mu     sync.Mutex
	nodes  map[string]*podWatch
	listed map[string]listing
	relist *time.Timer // requests a pass for nodes without a watch; nil before there was one
}

// podWatch watches the pods of one node.
type podWatch struct {
	pods   toolscache.Store
	synced func() bool
	stop   context.CancelFunc
}

// listing holds the pods of a node when they were listed last.
type listing struct {
	pods []*corev1.Pod
	at   time.Time
}

func newWorkloadWatcher(c typedcorev1.PodsGetter, requestPass func()) *workloadWatcher {
	return &workloadWatcher{
		client: c, requestPass: requestPass, clock: time.Now, maxWatched: defaultMaxWatched, nodes: map[string]*podWatch{}, listed: map[string]listing{},
	}
}

// On returns the pods of the nodes as far as they are known. It starts watches of new nodes and stops those of all others.
func (w *workloadWatcher) On(ctx context.Context, nodes []string) (map[string][]*corev1.Pod, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forgetOthers(nodes)
	out := make(map[string][]*corev1.Pod, len(nodes))
	var rest []string
	for _, n := range nodes {
		on := w.nodes[n]
		if on == nil && len(w.nodes) >= w.maxWatched {
			rest = append(rest, n)
			continue
		}
		if on == nil {
			on = w.startWatch(context.WithoutCancel(ctx), n)
			w.nodes[n] = on
			delete(w.listed, n)
		}
		if on.synced() {
			out[n] = podsOf(on.pods.List())
		}
	}
	return out, w.listUnwatched(ctx, rest, out)
}

// forgetOthers stops watching and forgets every other node.
func (w *workloadWatcher) forgetOthers(nodes []string) {
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

// listUnwatched lists the pods of nodes without a watch, those first that were listed the longest time ago.
func (w *workloadWatcher) listUnwatched(ctx context.Context, nodes []string, out map[string][]*corev1.Pod) error {
	now := w.clock()
	var errs []error
	slices.SortStableFunc(nodes, func(a, b string) int { return w.listed[a].at.Compare(w.listed[b].at) })
	for i, n := range nodes {
		if i < relistBatch && !w.listed[n].at.Add(relistInterval).After(now) {
			list, err := w.client.Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: nodeSelector(n)})
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
		if w.relist == nil {
			w.relist = time.AfterFunc(maxWait, w.requestPass)
		}
		w.relist.Reset(relistInterval)
	}
	return errors.Join(errs...)
}

func nodeSelector(name string) string {
	return fields.OneTermEqualSelector("spec.nodeName", name).String()
}

func podsOf(objects []any) []*corev1.Pod {
	out := make([]*corev1.Pod, 0, len(objects))
	for _, o := range objects {
		if p, ok := o.(*corev1.Pod); ok {
			out = append(out, p)
		}
	}
	return out
}

// startWatch lists the pods of one node from the API server, and watches them from there.
func (w *workloadWatcher) startWatch(ctx context.Context, node string) *podWatch {
	ctx, stop := context.WithCancel(ctx)
	selector := nodeSelector(node)
	pods := w.client.Pods(metav1.NamespaceAll)
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
		Transform:  transform(cluster.StripWorkload),
		Handler: toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { w.requestPass() },
			DeleteFunc: func(any) { w.requestPass() },
			UpdateFunc: func(before, after any) {
				if hasWorkloadChange(before, after) {
					w.requestPass()
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
			w.requestPass() // also when no pod runs there
		}
	}()
	return &podWatch{pods: store, synced: follow.HasSynced, stop: stop}
}

// hasWorkloadChange compares what a drain reads of a pod, and whether that of a DaemonSet is ready, which gates and proofs ask for.
func hasWorkloadChange(before, after any) bool {
	b, okBefore := before.(*corev1.Pod)
	a, okAfter := after.(*corev1.Pod)
	if !okBefore || !okAfter {
		return true
	}
	startedToLeave := (b.DeletionTimestamp == nil) != (a.DeletionTimestamp == nil)
	changedReady := isOfDaemonSet(a) && !slices.Equal(b.Status.Conditions, a.Status.Conditions)
	changedProtection := b.Annotations[v1alpha1.AnnotationDoNotInterrupt] != a.Annotations[v1alpha1.AnnotationDoNotInterrupt] ||
		b.Annotations[v1alpha1.AnnotationDoNotDisrupt] != a.Annotations[v1alpha1.AnnotationDoNotDisrupt]
	return startedToLeave || changedReady || changedProtection || b.Status.Phase != a.Status.Phase || !maps.Equal(b.Labels, a.Labels)
}

func isOfDaemonSet(p *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(p)
	return owner != nil && owner.Kind == "DaemonSet"
}

// stop stops all watches.
func (w *workloadWatcher) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for n, on := range w.nodes {
		on.stop()
		delete(w.nodes, n)
	}
}
