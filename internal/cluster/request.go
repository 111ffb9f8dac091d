// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/internal/cluster/writecache"
)

// apiWriter sends requests that change something, and stores in the write cache what the API server answers.
type apiWriter struct {
	options *Options
	writes  *writecache.Set
}

// patchPodAnnotation writes one annotation of a pod, if it still is the version that was observed, and sets its new version.
func (a apiWriter) patchPodAnnotation(ctx context.Context, p *corev1.Pod, key string) error {
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": p.UID, "resourceVersion": p.ResourceVersion, "annotations": map[string]string{key: p.Annotations[key]},
	}})
	if err != nil {
		return err
	}
	m := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}}
	m.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	if err := a.options.Client.Patch(ctx, m, client.RawPatch(types.MergePatchType, raw)); err != nil {
		return err
	}
	p.ResourceVersion = m.ResourceVersion
	return nil
}

// deletePod deletes a pod, the one that was observed and no later one of its name. One that had not ended must still be the version that
// was observed: what it waited for may have begun since. One that is gone is no error.
func (a apiWriter) deletePod(ctx context.Context, p *corev1.Pod) error {
	preconditions := client.Preconditions{UID: &p.UID}
	hasEnded := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	if !hasEnded {
		preconditions.ResourceVersion = &p.ResourceVersion
	}
	err := a.options.Client.Delete(ctx, p, preconditions)
	if err != nil && !isGone(err) {
		return fmt.Errorf("deleting pod %s: %w", p.Name, err)
	}
	return nil
}

// isGone reports whether the error of a request with a UID as its precondition says that the object of this UID is gone: there
// is none of its name, or one with another UID. Other conflicts say nothing about it.
func isGone(err error) bool {
	isOfOtherUID := strings.Contains(err.Error(), "UID in precondition") || strings.Contains(err.Error(), "UID in the precondition")
	return apierrors.IsNotFound(err) || apierrors.IsConflict(err) && isOfOtherUID
}

func (a apiWriter) deleteConfigMap(ctx context.Context, m metav1.ObjectMeta, options ...client.DeleteOption) error {
	err := a.options.Client.Delete(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name}}, options...)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting ConfigMap %s: %w", m.Name, err)
	}
	return nil
}

// patchOwner patches everything but the status of an object of our API groups, if it still is the version was. Changed
// becomes what the API server has then.
func (a apiWriter) patchOwner(ctx context.Context, was, changed client.Object) error {
	patch := client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{})
	if err := a.options.Client.Patch(ctx, changed, patch); err != nil {
		return err
	}
	a.writes.PutOwner(changed, false)
	return nil
}

// patchOwnerStatus sends a patch of the status of such an object. It reports whether the API server dropped fields of the status that was
// sent, if it is given: they are kept, because the API server would drop them again.
func (a apiWriter) patchOwnerStatus(ctx context.Context, changed client.Object, patchType types.PatchType, patch any, sent json.RawMessage) (hasDropped bool, err error) {
	raw, err := json.Marshal(patch)
	if err != nil {
		return false, fmt.Errorf("encoding the status: %w", err)
	}
	if err := a.options.Client.Status().Patch(ctx, changed, client.RawPatch(patchType, raw)); err != nil {
		return false, err
	}
	whole := changed
	if sent != nil {
		whole = changed.DeepCopyObject().(client.Object)
		err = json.Unmarshal(fmt.Appendf(nil, `{"status":%s}`, sent), whole)
		hasDropped = !equality.Semantic.DeepEqual(whole, changed)
	}
	a.writes.PutOwner(whole, hasDropped)
	return hasDropped, err
}
