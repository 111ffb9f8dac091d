// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// skyhookOwners maintains the Skyhooks themselves: their finalizers, and the ConfigMaps that they own.
type skyhookOwners struct{ *pass }

// prepareAll makes each Skyhook ready to be worked on: it has our finalizer, so that it cannot vanish while nodes carry
// something of it, and its ConfigMaps exist. Nothing is done in this pass for one that cannot be made ready.
func (w skyhookOwners) prepareAll(ctx context.Context) {
	for _, s := range w.objects.Skyhooks {
		name := plan.Ref(s.Name)
		by := w.compiled.Skyhooks[name]
		if by == nil || by.Removed {
			continue
		}
		w.makeReady(name, s, func() error { return w.prepare(ctx, s, by) })
	}
}

// makeReady makes an object ready to be worked on, unless that was refused a moment ago. While it is refused nothing begins.
func (p *pass) makeReady(name rollout.Ref, o client.Object, prepare func() error) {
	q := request{rollout: name, generation: o.GetGeneration()}
	if until, waits := p.refused.isWaiting(q, p.now); waits {
		p.startsNothing[name] = true
		p.inFlight.retry(until)
		return
	}
	done, err := p.try(q, prepare)
	switch {
	case done:
		p.inFlight.forgetConflicts(name)
	case err == nil: // refused: the next pass blocks what has not begun
		p.startsNothing[name] = true
		p.inFlight.retry(p.now)
	case apierrors.IsNotFound(err): // it went meanwhile
		p.notReady[name] = true
		p.inFlight.retry(p.now)
	case apierrors.IsConflict(err) && p.inFlight.retryConflict(failureKey{rollout: name}, p.now):
		p.notReady[name] = true
	default:
		p.notReady[name] = true
		p.inFlight.recordError(name, err)
	}
}

func (w skyhookOwners) prepare(ctx context.Context, s *v1alpha1.Skyhook, by *skyhook.Compiled) error {
	if err := w.addFinalizer(ctx, s); err != nil {
		return fmt.Errorf("putting the finalizer on it: %w", err)
	}
	if by.AwaitsRevisions() {
		return errors.New("its ControllerRevisions could not be listed, which may have the digests of its images")
	}
	var refused error
	for _, want := range by.ConfigMaps() {
		switch err := w.ensureConfigMap(ctx, s, want); {
		case isRefused(err):
			refused = cmp.Or(refused, err)
		case err != nil:
			return err
		}
	}
	return refused
}

// addFinalizer puts our finalizer on a Skyhook, and the version of the operator that last wrote to it.
func (w skyhookOwners) addFinalizer(ctx context.Context, s *v1alpha1.Skyhook) error {
	version := w.objects.Config.Version
	hasVersion := version == "" || s.Annotations[v1alpha1.AnnotationVersion] == version
	hasFinalizer := controllerutil.ContainsFinalizer(s, v1alpha1.FinalizerSkyhook)
	if s.DeletionTimestamp != nil || hasFinalizer && hasVersion {
		return nil
	}
	changed := s.DeepCopy()
	controllerutil.AddFinalizer(changed, v1alpha1.FinalizerSkyhook)
	if !hasVersion {
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, v1alpha1.AnnotationVersion, version)
	}
	return w.patchOwner(ctx, s, changed)
}

// ensureConfigMap creates a ConfigMap, or changes it to what is wanted.
func (w skyhookOwners) ensureConfigMap(ctx context.Context, s *v1alpha1.Skyhook, want *corev1.ConfigMap) error {
	found := w.objects.configMap(want.Name)
	isCached := found != nil
	if !isCached {
		created := want.DeepCopy()
		err := w.options.Client.Create(ctx, created)
		if err == nil {
			w.writes.ConfigMaps.PutCreated(created)
			return nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating ConfigMap %s: %w", want.Name, err)
		}
		found = &corev1.ConfigMap{}
		if err := w.options.Live.Get(ctx, client.ObjectKeyFromObject(want), found); err != nil {
			return fmt.Errorf("reading ConfigMap %s, which exists already: %w", want.Name, err)
		}
	}
	if found.DeletionTimestamp != nil || !isUpToDate(found, want) {
		return w.updateConfigMap(ctx, s, want, found)
	}
	if !isCached {
		w.writes.ConfigMaps.PutCreated(found)
	}
	return nil
}

// updateConfigMap changes a ConfigMap to what is wanted if it is this Skyhook's, or was an earlier one's of the same name.
func (w skyhookOwners) updateConfigMap(ctx context.Context, s *v1alpha1.Skyhook, want, found *corev1.ConfigMap) error {
	if !isOwnedBy(found, s) {
		return fmt.Errorf("ConfigMap %s/%s exists, and %w: delete that ConfigMap, or rename the package", found.Namespace, found.Name, errForeign)
	}
	changed := found.DeepCopy()
	changed.OwnerReferences = want.OwnerReferences
	if changed.Labels == nil {
		changed.Labels = map[string]string{}
	}
	if changed.Annotations == nil {
		changed.Annotations = map[string]string{}
	}
	maps.Copy(changed.Labels, want.Labels)
	maps.Copy(changed.Annotations, want.Annotations)
	if changed.Immutable == nil || !*changed.Immutable {
		changed.Data, changed.BinaryData, changed.Immutable = want.Data, want.BinaryData, want.Immutable
	}
	if err := w.options.Client.Update(ctx, changed); err != nil {
		return fmt.Errorf("updating ConfigMap %s: %w", want.Name, err)
	}
	w.writes.ConfigMaps.Put(changed)
	return nil
}

// isUpToDate reports whether a ConfigMap has everything that is wanted of it.
func isUpToDate(found, want *corev1.ConfigMap) bool {
	if owner := metav1.GetControllerOf(want); owner != nil && !isControlledBy(found, string(owner.UID)) {
		return false
	}
	return containsAll(found.Labels, want.Labels) && containsAll(found.Annotations, want.Annotations) &&
		maps.Equal(found.Data, want.Data) && maps.EqualFunc(found.BinaryData, want.BinaryData, bytes.Equal)
}

// cleanUpAll removes what is not needed any more: ConfigMaps, and our finalizer from Skyhooks of which nothing is left.
func (w skyhookOwners) cleanUpAll(ctx context.Context) {
	for _, s := range w.objects.Skyhooks {
		name := plan.Ref(s.Name)
		by := w.compiled.Skyhooks[name]
		if by == nil || w.notReady[name] || w.objects.hasInFlight(name) { // what is in flight may need what seems superfluous
			continue
		}
		_, err := w.try(request{rollout: name, object: "ConfigMaps"}, func() error {
			if by.Removed {
				return w.removeFinalizer(ctx, s)
			}
			return w.deleteSuperfluous(ctx, s, by)
		})
		if err != nil && !apierrors.IsConflict(err) {
			w.inFlight.recordError(name, err)
		}
	}
	if err := w.deleteStaleMetadata(ctx); err != nil {
		w.inFlight.recordError(rollout.Ref{}, fmt.Errorf("removing metadata of nodes that are gone: %w", err))
	}
}

// removeFinalizer removes our finalizer from a Skyhook that is being deleted.
func (w skyhookOwners) removeFinalizer(ctx context.Context, s *v1alpha1.Skyhook) error {
	changed := s.DeepCopy()
	if !controllerutil.RemoveFinalizer(changed, v1alpha1.FinalizerSkyhook) {
		return nil
	}
	if err := w.patchOwner(ctx, s, changed); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("taking the finalizer away: %w", err)
	}
	if len(changed.Finalizers) == 0 {
		w.writes.Skyhooks.Remove(s)
	}
	return nil
}

// deleteSuperfluous deletes a Skyhook's ConfigMaps that no node needs. The plan decided that about the observed version.
func (w skyhookOwners) deleteSuperfluous(ctx context.Context, s *v1alpha1.Skyhook, by *skyhook.Compiled) error {
	var own []*corev1.ConfigMap
	for _, m := range w.objects.ConfigMaps {
		if m.DeletionTimestamp == nil && metav1.IsControlledBy(m, s) {
			own = append(own, m)
		}
	}
	superfluous := by.Superfluous(own)
	for _, m := range own {
		if !slices.Contains(superfluous, m.Name) {
			continue
		}
		if err := w.deleteConfigMap(ctx, m.ObjectMeta, client.Preconditions{UID: &m.UID, ResourceVersion: &m.ResourceVersion}); err != nil {
			return err
		}
		w.writes.ConfigMaps.Remove(m)
	}
	return nil
}

// deleteStaleMetadata deletes the ConfigMaps with the metadata of nodes that vanished, and on the first pass those of all
// nodes that no Skyhook targets. What a Skyhook retires from is deleted with that action.
func (w skyhookOwners) deleteStaleMetadata(ctx context.Context) error {
	stale := map[string]bool{}
	for _, by := range w.compiled.Skyhooks {
		for _, name := range w.objects.vanished {
			stale[by.NodeMetadataName(name)] = true
		}
	}
	if w.objects.isFirst {
		if err := w.findUntargetedMetadata(ctx, stale); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(stale)) {
		if err := w.deleteConfigMap(ctx, metav1.ObjectMeta{Namespace: w.objects.Config.Namespace, Name: name}); err != nil {
			return err
		}
	}
	return nil
}

// findUntargetedMetadata adds the ConfigMaps of nodes that no Skyhook targets, and those with the name of an earlier version unless a
// pod on the node may read them.
func (w skyhookOwners) findUntargetedMetadata(ctx context.Context, stale map[string]bool) error {
	type place struct{ skyhook, node string }
	targeted, read := map[place]string{}, map[place]bool{}
	for _, s := range w.objects.Skyhooks {
		if by := w.compiled.Skyhook(s); by != nil {
			for _, t := range by.Rollout.Targets {
				targeted[place{s.Name, t.Node}] = by.NodeMetadataName(t.Node)
			}
		}
	}
	for _, p := range w.objects.Pods {
		read[place{p.Labels[v1alpha1.LabelName], p.Spec.NodeName}] = true
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
	return eachItem(ctx, w.options.Live, list, pageSize, func(m *metav1.PartialObjectMetadata) {
		at := place{m.Labels[v1alpha1.LabelNodeMeta], m.Annotations[v1alpha1.AnnotationNodeName]}
		if name := targeted[at]; name == "" || name != m.Name && !read[at] {
			stale[m.Name] = true
		}
	}, client.InNamespace(w.objects.Config.Namespace), client.HasLabels{v1alpha1.LabelNodeMeta})
}
