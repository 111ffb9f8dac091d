// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

// tidy removes what nobody needs any more: ConfigMaps, and our finalizer from Skyhooks of which nothing is left.
func (r *round) tidy(ctx context.Context) {
	for _, s := range r.o.Skyhooks {
		name := skyhook.Ref(s.Name)
		by := r.o.compiled[name]
		if by == nil || r.stuck[name] || r.o.sends(name) { // what is on its way to a node may need what seems superfluous
			continue
		}
		var err error
		if by.Removed {
			err = r.letGo(ctx, s)
		} else {
			err = r.drop(ctx, s, by)
		}
		if err != nil && !apierrors.IsConflict(err) {
			r.fail(name, err)
		}
	}
	if err := r.dropMetadata(ctx); err != nil {
		r.fail(rollout.Ref{}, fmt.Errorf("removing metadata of nodes that are gone: %w", err))
	}
}

// letGo takes our finalizer from a Skyhook that is being deleted.
func (r *round) letGo(ctx context.Context, s *v1alpha1.Skyhook) error {
	if !slices.Contains(s.Finalizers, v1alpha1.FinalizerSkyhook) {
		return nil
	}
	changed := s.DeepCopy()
	changed.Finalizers = slices.DeleteFunc(changed.Finalizers, func(f string) bool { return f == v1alpha1.FinalizerSkyhook })
	if err := r.patch(ctx, s, changed); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("taking the finalizer away: %w", err)
	}
	if len(changed.Finalizers) == 0 {
		r.writes.Skyhooks.Remove(s)
	}
	return nil
}

// drop deletes ConfigMaps that are superfluous. A plan decided that they are, so they are deleted as they were seen.
func (r *round) drop(ctx context.Context, s *v1alpha1.Skyhook, by *skyhook.Compiled) error {
	var own []*corev1.ConfigMap
	for _, m := range r.o.ConfigMaps {
		if owner := metav1.GetControllerOf(m); owner != nil && owner.UID == s.UID && m.DeletionTimestamp == nil {
			own = append(own, m)
		}
	}
	superfluous := by.Superfluous(own)
	for _, m := range own {
		if !slices.Contains(superfluous, m.Name) {
			continue
		}
		err := r.options.Core.ConfigMaps(m.Namespace).Delete(ctx, m.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &m.UID, ResourceVersion: &m.ResourceVersion},
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting ConfigMap %s: %w", m.Name, err)
		}
		r.writes.ConfigMaps.Remove(m)
	}
	return nil
}

// dropMetadata deletes the metadata of nodes that no Skyhook targets: of nodes that vanished, and after the first look of
// all that nobody deleted before. What a Skyhook retires from is deleted then and there.
func (r *round) dropMetadata(ctx context.Context) error {
	drop := map[string]bool{}
	for _, by := range r.o.compiled {
		for _, node := range r.o.vanished {
			drop[by.NodeMetadata(&skyhook.Node{Name: node}).Name] = true
		}
	}
	if r.o.first {
		if err := r.untargeted(ctx, drop); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(drop)) {
		if err := r.deleteConfigMap(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// untargeted finds the metadata of nodes that no Skyhook targets.
func (r *round) untargeted(ctx context.Context, found map[string]bool) error {
	targeted := map[string]bool{}
	for _, s := range r.o.Skyhooks {
		if by := r.o.compiled[skyhook.Ref(s.Name)]; by != nil {
			for _, t := range by.Rollout.Targets {
				targeted[s.Name+" "+t.Node] = true
			}
		}
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
	return pages(ctx, r.options.Live, page, list, func() {
		for _, m := range list.Items {
			if !targeted[m.Labels[v1alpha1.LabelNodeMeta]+" "+m.Annotations[v1alpha1.AnnotationNodeName]] {
				found[m.Name] = true
			}
		}
	}, client.InNamespace(r.o.Config.Namespace), client.HasLabels{v1alpha1.LabelNodeMeta})
}

func (r *round) deleteConfigMap(ctx context.Context, name string) error {
	err := r.options.Core.ConfigMaps(r.o.Config.Namespace).Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting ConfigMap %s: %w", name, err)
	}
	return nil
}

// ghost speaks for a Skyhook that is gone and left a hold behind.
func (o *Objects) ghost(name rollout.Ref) *skyhook.Compiled {
	s := &v1alpha1.Skyhook{ObjectMeta: metav1.ObjectMeta{Name: name.Name, DeletionTimestamp: &metav1.Time{}}}
	return skyhook.Compile(&skyhook.Input{Skyhook: s, Nodes: o.Nodes, Definitions: o.Definitions, Config: o.Config})
}
