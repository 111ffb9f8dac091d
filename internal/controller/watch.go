// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
)

// caches says what is kept in memory: nodes without what nobody reads, our pods and our ConfigMaps in our namespace,
// and our own kinds. No Secrets, and nobody else's pods.
func caches(namespace string) cache.Options {
	shared := true // nobody changes what the cache holds
	here := map[string]cache.Config{namespace: {}}
	return cache.Options{
		ReaderFailOnMissingInformer:  true,
		DefaultUnsafeDisableDeepCopy: &shared,
		DefaultTransform:             cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Node{}:      {Transform: strip(cluster.StripNode)},
			&corev1.Pod{}:       {Namespaces: here, Label: cluster.PodSelector, Transform: strip(cluster.StripPod)},
			&corev1.ConfigMap{}: {Namespaces: here, Label: cluster.ConfigMapSelector},
		},
	}
}

// cachesOps says what is kept in memory of NodeOps' work, wherever it is. Pods of ours in our own namespace are kept by
// other labels, and one cache has one selector for one kind.
func cachesOps() cache.Options {
	shared := true
	return cache.Options{
		ReaderFailOnMissingInformer:  true,
		DefaultUnsafeDisableDeepCopy: &shared,
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:  {Label: cluster.NodeOpSelector, Transform: strip(cluster.StripNodeOpPod)},
			&batchv1.Job{}: {Label: cluster.NodeOpSelector, Transform: strip(cluster.StripJob)},
		},
	}
}

// strip applies a function to objects of its type on their way into the cache.
func strip[T any](f func(T) T) toolscache.TransformFunc {
	return func(o any) (any, error) {
		if t, ok := o.(T); ok {
			return f(t), nil
		}
		return o, nil // the last known state of something deleted
	}
}

// watch wakes the loop when something changes that a decision could depend on.
func (l *Loop) watch(ctx context.Context, informers, ops cache.Informers) error {
	for _, w := range []struct {
		kind    client.Object
		differs func(before, after any) bool
	}{
		{&batchv1.Job{}, when(versionDiffers[*batchv1.Job])},
		{&corev1.Pod{}, when(versionDiffers[*corev1.Pod])},
	} {
		if err := l.follow(ctx, ops, w.kind, w.differs); err != nil {
			return err
		}
	}
	for _, w := range []struct {
		kind    client.Object
		differs func(before, after any) bool
	}{
		{&opv1.NodeOp{}, when(versionDiffers[*opv1.NodeOp])},
		{&opv1.NodeOpUpgrade{}, when(versionDiffers[*opv1.NodeOpUpgrade])},
		{&corev1.Node{}, when(nodeDiffers)},
		{&corev1.Pod{}, when(l.podDiffers)},
		{&corev1.ConfigMap{}, when(versionDiffers[*corev1.ConfigMap])},
		{&v1alpha1.Skyhook{}, when(versionDiffers[*v1alpha1.Skyhook])},
		{&v1alpha1.DeploymentPolicy{}, when(versionDiffers[*v1alpha1.DeploymentPolicy])},
	} {
		if err := l.follow(ctx, informers, w.kind, w.differs); err != nil {
			return err
		}
	}
	return nil
}

// follow wakes the loop when an object of a kind comes, goes, or differs.
func (l *Loop) follow(ctx context.Context, informers cache.Informers, kind client.Object, differs func(before, after any) bool) error {
	informer, err := informers.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching %T: %w", kind, err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) {
			if asks(o) {
				l.hurry()
				return
			}
			l.wake()
		},
		DeleteFunc: func(any) { l.wake() },
		UpdateFunc: func(before, after any) {
			switch {
			case !differs(before, after):
			case awaited(before, after):
				l.hurry()
			default:
				l.wake()
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watching %T: %w", kind, err)
	}
	return nil
}

// asks says that an object is somebody's request.
func asks(o any) bool {
	switch o.(type) {
	case *v1alpha1.Skyhook, *opv1.NodeOp, *opv1.NodeOpUpgrade:
		return true
	}
	return false
}

// awaited says that a change is what somebody waits for: work ended, a node is back, or something new is asked for. Most
// changes only tell how far work is, or are our own.
func awaited(before, after any) bool {
	switch a := after.(type) {
	case *corev1.Pod:
		b, ok := before.(*corev1.Pod)
		return ok && (ended(a) && !ended(b) || nodeop.Over(a) && !nodeop.Over(b))
	case *batchv1.Job:
		b, ok := before.(*batchv1.Job)
		return ok && a.Status.Succeeded+a.Status.Failed != b.Status.Succeeded+b.Status.Failed
	case *corev1.Node:
		b, ok := before.(*corev1.Node)
		return ok && (a.Status.NodeInfo.BootID != b.Status.NodeInfo.BootID || ready(a) && !ready(b))
	case client.Object:
		b, ok := before.(client.Object)
		return ok && a.GetGeneration() != b.GetGeneration()
	}
	return false
}

func ready(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func when[T any](differs func(before, after T) bool) func(before, after any) bool {
	return func(before, after any) bool {
		b, okBefore := before.(T)
		a, okAfter := after.(T)
		return !okBefore || !okAfter || differs(b, a)
	}
}

func versionDiffers[T client.Object](before, after T) bool {
	return before.GetResourceVersion() != after.GetResourceVersion()
}

// nodeDiffers compares what decisions read of a node. A kubelet that says it is alive changes none of it.
func nodeDiffers(before, after *corev1.Node) bool {
	return before.UID != after.UID || !maps.Equal(before.Labels, after.Labels) || !sameMarks(before.Annotations, after.Annotations) ||
		before.Spec.Unschedulable != after.Spec.Unschedulable ||
		!slices.EqualFunc(before.Spec.Taints, after.Spec.Taints, func(a, b corev1.Taint) bool { return a.MatchTaint(&b) && a.Value == b.Value }) ||
		!maps.EqualFunc(before.Status.Allocatable, after.Status.Allocatable, quantity.Quantity.Equal) ||
		before.Status.NodeInfo.BootID != after.Status.NodeInfo.BootID ||
		!slices.EqualFunc(before.Status.Conditions, after.Status.Conditions, func(a, b corev1.NodeCondition) bool {
			return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason
		})
}

// sameMarks compares our annotations and nobody else's.
func sameMarks(a, b map[string]string) bool {
	ours, theirs := 0, 0
	for key, value := range a {
		if mark(key) {
			ours++
			if other, ok := b[key]; !ok || other != value {
				return false
			}
		}
	}
	for key := range b {
		if mark(key) {
			theirs++
		}
	}
	return ours == theirs
}

func mark(key string) bool {
	return strings.HasPrefix(key, v1alpha1.Group+"/") || strings.HasPrefix(key, opv1.Group+"/")
}

// podDiffers compares what decisions read of a pod of ours, and notes when its work ended.
func (l *Loop) podDiffers(before, after *corev1.Pod) bool {
	if before.ResourceVersion == after.ResourceVersion {
		return false
	}
	if ended(after) && !ended(before) {
		l.board.podEnded(after.Spec.NodeName, l.clock())
	}
	return true
}

// ended says that every init container of a pod has ended well.
func ended(p *corev1.Pod) bool {
	if len(p.Status.InitContainerStatuses) < len(p.Spec.InitContainers) {
		return false
	}
	for _, c := range p.Status.InitContainerStatuses {
		if c.State.Terminated == nil || c.State.Terminated.ExitCode != 0 {
			return false
		}
	}
	return len(p.Status.InitContainerStatuses) > 0
}
