// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/nodeop/kairos"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
)

// cacheOptions select what is kept in memory: nodes without the fields that nothing reads, our pods and ConfigMaps in our
// namespace, and our own kinds. No Secrets, and no other pods.
func cacheOptions(namespace string, s *stores) cache.Options {
	isShared := true // no reader changes what the cache holds
	here := map[string]cache.Config{namespace: {}}
	return cache.Options{
		NewInformer:                  s.newInformer,
		ReaderFailOnMissingInformer:  true,
		DefaultUnsafeDisableDeepCopy: &isShared,
		DefaultTransform:             cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Node{}:      {Transform: transform(cluster.StripNode)},
			&corev1.Pod{}:       {Namespaces: here, Label: cluster.PodSelector, Transform: transform(cluster.StripPod)},
			&corev1.ConfigMap{}: {Namespaces: here, Label: cluster.ConfigMapSelector},
		},
	}
}

// nodeOpCacheOptions says what is kept in memory of NodeOps' work, wherever it is. Pods of ours in our own namespace are kept by
// other labels, and one cache has one selector for one kind.
func nodeOpCacheOptions(s *stores) cache.Options {
	isShared := true
	return cache.Options{
		NewInformer:                  s.newInformer,
		ReaderFailOnMissingInformer:  true,
		DefaultUnsafeDisableDeepCopy: &isShared,
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:  {Label: cluster.NodeOpSelector, Transform: transform(cluster.StripNodeOpPod)},
			&batchv1.Job{}: {Label: cluster.NodeOpSelector, Transform: transform(cluster.StripJob)},
		},
	}
}

// transform applies a function to objects of its type on their way into the cache.
func transform[T any](f func(T) T) toolscache.TransformFunc {
	return func(o any) (any, error) {
		if t, ok := o.(T); ok {
			return f(t), nil
		}
		return o, nil // the last known state of something deleted
	}
}

// watcher requests a pass when something changes that a decision depends on.
type watcher struct {
	requests *passRequests
	metrics  *metricsCollector
	clock    func() time.Time

	namespace string // of the operator
}

// watchAll watches every kind that decisions depend on. nodeOps is the cache of the Jobs and pods of NodeOps.
func (w watcher) watchAll(ctx context.Context, informers, nodeOps cache.Informers) error {
	for _, watch := range []struct {
		informers cache.Informers
		kind      client.Object
		differs   func(before, after any) bool
	}{
		{nodeOps, &batchv1.Job{}, hasNewVersion},
		{nodeOps, &corev1.Pod{}, hasNewVersion},
		{informers, &opv1.NodeOp{}, hasNewVersion},
		{informers, &opv1.NodeOpUpgrade{}, hasNewVersion},
		{informers, &corev1.Node{}, hasNodeChange},
		{informers, &corev1.Pod{}, w.notePodChange},
		{informers, &corev1.ConfigMap{}, hasNewVersion},
		{informers, &v1alpha1.Skyhook{}, hasNewVersion},
		{informers, &v1alpha1.DeploymentPolicy{}, hasNewVersion},
	} {
		isRelevant := isNoDriftPod
		if _, isPod := watch.kind.(*corev1.Pod); isPod && watch.informers == nodeOps {
			isRelevant = w.isNodeOpPod
		}
		if err := w.watchKind(ctx, watch.informers, watch.kind, isRelevant, watch.differs); err != nil {
			return fmt.Errorf("watching %T: %w", watch.kind, err)
		}
	}
	return nil
}

// isNoDriftPod reports whether an object may matter to a decision soon. A pod that checks a node for drift does not: nobody waits for
// it, and the engine looks from time to time whether it has ended.
func isNoDriftPod(o any) bool {
	p, isPod := o.(*corev1.Pod)
	return !isPod || p.Labels[v1alpha1.LabelDrift] == ""
}

// isNodeOpPod reports whether a pod may be one of a NodeOp, of its Job, or a probe of ours. The label that selects them is one that
// anybody may use.
func (w watcher) isNodeOpPod(o any) bool {
	if unknown, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = unknown.Obj
	}
	p, ok := o.(*corev1.Pod)
	if !ok || kairos.IsProbe(p, w.namespace) {
		return true
	}
	owner := metav1.GetControllerOf(p)
	if owner == nil {
		return false
	}
	isOfJob := owner.Kind == "Job" && p.Labels[opv1.LabelNodeOp] != ""
	return isOfJob || owner.Kind == nodeop.Kind && strings.HasPrefix(owner.APIVersion, opv1.Group+"/")
}

// watchKind requests a pass when a relevant object of a kind is added, deleted, or differs.
func (w watcher) watchKind(ctx context.Context, informers cache.Informers, kind client.Object, isRelevant func(any) bool, differs func(before, after any) bool) error {
	informer, err := informers.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	_, err = informer.AddEventHandler(toolscache.FilteringResourceEventHandler{FilterFunc: isRelevant, Handler: toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) {
			if isUserRequest(o) {
				w.requests.requestSoon()
			} else {
				w.requests.requestPass()
			}
		},
		DeleteFunc: func(any) { w.requests.requestPass() },
		UpdateFunc: func(before, after any) {
			switch {
			case !differs(before, after):
			case isAwaited(before, after):
				w.requests.requestSoon()
			default:
				w.requests.requestPass()
			}
		},
	}})
	return err
}

// isUserRequest reports that users create objects of this kind to have something done.
func isUserRequest(o any) bool {
	switch o.(type) {
	case *v1alpha1.Skyhook, *opv1.NodeOp, *opv1.NodeOpUpgrade:
		return true
	}
	return false
}

// isAwaited reports that a node or a user waits for this change: work ended, a node is back, or a spec changed. Most
// changes are only progress, or our own writes.
func isAwaited(before, after any) bool {
	switch a := after.(type) {
	case *corev1.Pod:
		b, ok := before.(*corev1.Pod)
		return ok && (hasSucceeded(a) && !hasSucceeded(b) || nodeop.IsPodFinished(a) && !nodeop.IsPodFinished(b))
	case *batchv1.Job:
		b, ok := before.(*batchv1.Job)
		return ok && a.Status.Succeeded+a.Status.Failed != b.Status.Succeeded+b.Status.Failed
	case *corev1.Node:
		b, ok := before.(*corev1.Node)
		return ok && (a.Status.NodeInfo.BootID != b.Status.NodeInfo.BootID || isReady(a) && !isReady(b))
	case client.Object:
		b, ok := before.(client.Object)
		return ok && a.GetGeneration() != b.GetGeneration()
	}
	return false
}

func isReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func hasNewVersion(before, after any) bool {
	b, okBefore := before.(client.Object)
	a, okAfter := after.(client.Object)
	return !okBefore || !okAfter || b.GetResourceVersion() != a.GetResourceVersion()
}

// hasNodeChange compares what decisions read of a node. Heartbeats change none of it.
func hasNodeChange(before, after any) bool {
	b, okBefore := before.(*corev1.Node)
	a, okAfter := after.(*corev1.Node)
	if !okBefore || !okAfter {
		return true
	}
	sameIdentity := b.UID == a.UID && b.Status.NodeInfo.BootID == a.Status.NodeInfo.BootID
	sameMetadata := maps.Equal(b.Labels, a.Labels) && maps.Equal(ourAnnotations(b), ourAnnotations(a))
	sameScheduling := b.Spec.Unschedulable == a.Spec.Unschedulable && slices.EqualFunc(b.Spec.Taints, a.Spec.Taints, isSameTaint)
	sameStatus := maps.EqualFunc(b.Status.Allocatable, a.Status.Allocatable, resource.Quantity.Equal) &&
		slices.EqualFunc(b.Status.Conditions, a.Status.Conditions, isSameCondition)
	return !sameIdentity || !sameMetadata || !sameScheduling || !sameStatus
}

func isSameTaint(a, b corev1.Taint) bool { return a.MatchTaint(&b) && a.Value == b.Value }

func isSameCondition(a, b corev1.NodeCondition) bool {
	return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason
}

func ourAnnotations(n *corev1.Node) map[string]string {
	ours := map[string]string{}
	for key, value := range n.Annotations {
		if strings.HasPrefix(key, v1alpha1.PrefixDrift) {
			continue // nobody waits for a check
		}
		if strings.HasPrefix(key, v1alpha1.Group+"/") || strings.HasPrefix(key, opv1.Group+"/") {
			ours[key] = value
		}
	}
	return ours
}

// notePodChange notes for the metrics when the work of a pod of ours ended, and reports whether the pod changed.
func (w watcher) notePodChange(before, after any) bool {
	b, okBefore := before.(*corev1.Pod)
	a, okAfter := after.(*corev1.Pod)
	if okBefore && okAfter && countSucceeded(a) > countSucceeded(b) {
		w.metrics.notePodEnd(a.Spec.NodeName, w.clock())
	}
	return hasNewVersion(before, after)
}

// countSucceeded returns how many stages of a pod have ended well.
func countSucceeded(p *corev1.Pod) (count int) {
	if !podstate.IsCompact(p) {
		if hasSucceeded(p) {
			return 1
		}
		return 0
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if c.State.Terminated != nil && c.State.Terminated.ExitCode == 0 {
			count++
		}
	}
	return count
}

// hasSucceeded reports that every init container of a pod ended well: they are the steps of a package.
func hasSucceeded(p *corev1.Pod) bool {
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
