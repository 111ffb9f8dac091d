// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nodeopv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/cluster"
)

// watchedCluster reads from watches what changes often, and the rest from the API server.
//
// The rest is what only some decisions need, such as the workloads of nodes that are drained: it is at most staleAfter old.
type watchedCluster struct {
	client.Reader                                // the API server
	ours, nodeOps cache.Cache                    // as in the operator: one cache has one selector for one kind
	watched       map[reflect.Type]client.Reader // by type of list
	changed       chan struct{}                  // receives when something changed

	mu     sync.Mutex
	recent map[string]recentList
}

// recentList is a list as it was read last.
type recentList struct {
	at   time.Time
	list client.ObjectList
}

const staleAfter = 10 * time.Second

// newWatchedCluster prepares the watches. Kinds that the API server does not know are not watched.
func newWatchedCluster(ctx context.Context, f *session.Factory) (*watchedCluster, error) {
	config, err := f.RestConfig()
	if err != nil {
		return nil, err
	}
	scheme, mapper, err := session.SupportedKinds()
	if err != nil {
		return nil, err
	}
	direct, err := f.NewClient()
	if err != nil {
		return nil, err
	}
	w := &watchedCluster{Reader: direct, watched: map[reflect.Type]client.Reader{}, changed: make(chan struct{}, 1), recent: map[string]recentList{}}
	here := fields.OneTermEqualSelector("metadata.namespace", f.Namespace(ctx)) // needs rights in that namespace only
	w.ours, err = cache.New(config, cache.Options{
		Scheme: scheme, Mapper: mapper, ReaderFailOnMissingInformer: true, DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Node{}:      {Transform: stripWith(cluster.StripNode)},
			&corev1.Pod{}:       {Field: here, Label: cluster.PodSelector, Transform: stripWith(cluster.StripPod)},
			&corev1.ConfigMap{}: {Field: here, Label: cluster.ConfigMapSelector},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("preparing watches: %w", err)
	}
	w.nodeOps, err = cache.New(config, cache.Options{
		Scheme: scheme, Mapper: mapper, ReaderFailOnMissingInformer: true,
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:  {Label: cluster.NodeOpSelector, Transform: stripWith(cluster.StripNodeOpPod)},
			&batchv1.Job{}: {Label: cluster.NodeOpSelector, Transform: stripWith(cluster.StripJob)},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("preparing watches: %w", err)
	}
	return w, w.addKinds(ctx)
}

// stripWith applies a function to objects of its type on their way into a cache.
func stripWith[T any](strip func(T) T) toolscache.TransformFunc {
	return func(o any) (any, error) {
		if typed, ok := o.(T); ok {
			return strip(typed), nil
		}
		return o, nil
	}
}

// addKinds watches every kind that decisions depend on.
func (w *watchedCluster) addKinds(ctx context.Context) error {
	for _, kind := range []struct {
		in       cache.Cache
		object   client.Object
		list     client.ObjectList
		optional bool
	}{
		{w.ours, &corev1.Node{}, &corev1.NodeList{}, false},
		{w.ours, &corev1.Pod{}, nil, false}, // lists of pods are of either cache
		{w.ours, &corev1.ConfigMap{}, &corev1.ConfigMapList{}, false},
		{w.ours, &v1alpha1.Skyhook{}, &v1alpha1.SkyhookList{}, false},
		{w.ours, &v1alpha1.DeploymentPolicy{}, &v1alpha1.DeploymentPolicyList{}, true},
		{w.ours, &nodeopv1.NodeOp{}, &nodeopv1.NodeOpList{}, true},
		{w.ours, &nodeopv1.NodeOpUpgrade{}, &nodeopv1.NodeOpUpgradeList{}, true},
		{w.nodeOps, &batchv1.Job{}, &batchv1.JobList{}, false},
		{w.nodeOps, &corev1.Pod{}, nil, false},
	} {
		if kind.optional && apierrors.IsNotFound(w.Reader.List(ctx, kind.list, client.Limit(1))) {
			continue
		}
		informer, err := kind.in.GetInformer(ctx, kind.object, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watching %T: %w", kind.object, err)
		}
		if _, err := informer.AddEventHandler(w.newHandler()); err != nil {
			return fmt.Errorf("watching %T: %w", kind.object, err)
		}
		if kind.list != nil {
			w.watched[reflect.TypeOf(kind.list)] = kind.in
		}
	}
	return nil
}

// newHandler reports changes, but not the heartbeats of nodes.
func (w *watchedCluster) newHandler() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { w.noteChange() },
		UpdateFunc: func(before, after any) {
			was, isNode := before.(*corev1.Node)
			is, _ := after.(*corev1.Node)
			if !isNode || hasNodeChanged(was, is) {
				w.noteChange()
			}
		},
		DeleteFunc: func(any) { w.noteChange() },
	}
}

// hasNodeChanged compares nodes as they are in the cache, without their versions.
func hasNodeChanged(was, is *corev1.Node) bool {
	return !reflect.DeepEqual(was.Labels, is.Labels) || !reflect.DeepEqual(was.Annotations, is.Annotations) ||
		!reflect.DeepEqual(was.Spec, is.Spec) || !reflect.DeepEqual(was.Status, is.Status)
}

func (w *watchedCluster) noteChange() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// start runs the watches until the context ends, and reports whether they have what the API server has.
func (w *watchedCluster) start(ctx context.Context) (isSynced func() bool) {
	synced := make(chan struct{})
	for _, c := range []cache.Cache{w.ours, w.nodeOps} {
		go func() { _ = c.Start(ctx) }() // it ends with the context
	}
	go func() {
		if w.ours.WaitForCacheSync(ctx) && w.nodeOps.WaitForCacheSync(ctx) {
			close(synced)
			w.noteChange()
		}
	}()
	return func() bool {
		select {
		case <-synced:
			return true
		default:
			return false
		}
	}
}

// List reads objects: those that are watched from memory, and others from the API server unless they were read a moment ago.
func (w *watchedCluster) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(options)
	if from := w.watched[reflect.TypeOf(list)]; from != nil {
		if _, isNodes := list.(*corev1.NodeList); isNodes { // most of what there is; nobody changes their labels and annotations
			options = append(slices.Clip(options), client.UnsafeDisableDeepCopy)
		}
		return from.List(ctx, list, options...)
	}
	if _, isPods := list.(*corev1.PodList); isPods && o.LabelSelector != nil {
		switch o.LabelSelector.String() {
		case cluster.PodSelector.String():
			return w.ours.List(ctx, list, options...)
		case cluster.NodeOpSelector.String():
			return w.nodeOps.List(ctx, list, options...)
		}
	}
	return w.listRecent(ctx, list, o)
}

func (w *watchedCluster) listRecent(ctx context.Context, list client.ObjectList, o *client.ListOptions) error {
	key := fmt.Sprint(reflect.TypeOf(list), o.Namespace, "|", o.LabelSelector, "|", o.FieldSelector)
	w.mu.Lock()
	found, ok := w.recent[key]
	w.mu.Unlock()
	if ok && time.Since(found.at) < staleAfter {
		copied := found.list.DeepCopyObject()
		reflect.ValueOf(list).Elem().Set(reflect.ValueOf(copied).Elem())
		return nil
	}
	if err := w.Reader.List(ctx, list, o); err != nil {
		return err
	}
	if kept, ok := list.DeepCopyObject().(client.ObjectList); ok {
		w.mu.Lock()
		defer w.mu.Unlock()
		for key, old := range w.recent {
			if time.Since(old.at) > staleAfter {
				delete(w.recent, key)
			}
		}
		w.recent[key] = recentList{time.Now(), kept}
	}
	return nil
}

// ping returns an error when the API server does not answer: what watches have is then old, and they do not say so.
func (w *watchedCluster) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("SkyhookList"))
	if err := w.Reader.List(ctx, list, client.Limit(1)); err != nil {
		return fmt.Errorf("no answer from the API server: %w", err)
	}
	return nil
}
