// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

// prepare makes each Skyhook ready to be worked on: it has our finalizer, so that it cannot vanish while nodes carry
// something of it, and its ConfigMaps exist. One that cannot be made ready stands still in this round.
func (r *round) prepare(ctx context.Context) {
	for _, s := range r.o.Skyhooks {
		name := skyhook.Ref(s.Name)
		by := r.o.compiled[name]
		if by == nil || by.Removed {
			continue
		}
		err := r.claim(ctx, s)
		for _, m := range by.ConfigMaps() {
			if err == nil {
				err = r.provide(ctx, s, m, r.o.configMap(m.Name))
			}
		}
		switch {
		case err == nil:
			continue
		case apierrors.IsConflict(err): // somebody else changed it: look again
			r.later(r.now)
		default:
			r.fail(name, err)
		}
		r.stuck[name] = true
	}
}

// claim puts our finalizer on a Skyhook, and the version of who last wrote to it.
func (r *round) claim(ctx context.Context, s *v1alpha1.Skyhook) error {
	version, ours := r.o.Config.Version, v1alpha1.FinalizerSkyhook
	signed := version == "" || s.Annotations[v1alpha1.AnnotationVersion] == version
	if s.DeletionTimestamp != nil || signed && slices.Contains(s.Finalizers, ours) {
		return nil
	}
	changed := s.DeepCopy()
	if !slices.Contains(s.Finalizers, ours) {
		changed.Finalizers = append(changed.Finalizers, ours)
	}
	if !signed {
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, v1alpha1.AnnotationVersion, version)
	}
	if err := r.patch(ctx, s, changed); err != nil {
		return fmt.Errorf("putting the finalizer on it: %w", err)
	}
	return nil
}

// provide makes a ConfigMap exist as it is wanted.
func (r *round) provide(ctx context.Context, s *v1alpha1.Skyhook, want, found *corev1.ConfigMap) error {
	if found != nil && found.DeletionTimestamp == nil && fits(found, want) {
		return nil
	}
	if found == nil {
		created := want.DeepCopy()
		err := r.options.Client.Create(ctx, created)
		if err == nil {
			r.writes.ConfigMaps.PutCreated(created)
			return nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating ConfigMap %s: %w", want.Name, err)
		}
		found = &corev1.ConfigMap{}
		if err := r.options.Live.Get(ctx, client.ObjectKeyFromObject(want), found); err != nil {
			return fmt.Errorf("reading ConfigMap %s, which exists already: %w", want.Name, err)
		}
	}
	return r.correct(ctx, s, want, found)
}

// correct changes a ConfigMap that is there to what is wanted, if it is this Skyhook's, or was an earlier one's of the
// same name.
func (r *round) correct(ctx context.Context, s *v1alpha1.Skyhook, want, found *corev1.ConfigMap) error {
	if !belongs(found, s) {
		return fmt.Errorf("ConfigMap %s/%s exists and does not belong to it: delete that ConfigMap, or rename the package", found.Namespace, found.Name)
	}
	if fits(found, want) && found.DeletionTimestamp == nil {
		r.writes.ConfigMaps.PutCreated(found)
		return nil
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
	if err := r.options.Client.Update(ctx, changed); err != nil {
		return fmt.Errorf("updating ConfigMap %s: %w", want.Name, err)
	}
	r.writes.ConfigMaps.Put(changed)
	return nil
}

// fits says that a ConfigMap has everything that is wanted of it.
func fits(found, want *corev1.ConfigMap) bool {
	owner, wanted := metav1.GetControllerOf(found), metav1.GetControllerOf(want)
	if wanted != nil && (owner == nil || owner.UID != wanted.UID) {
		return false
	}
	for key, value := range want.Labels {
		if found.Labels[key] != value {
			return false
		}
	}
	for key, value := range want.Annotations {
		if found.Annotations[key] != value {
			return false
		}
	}
	return maps.Equal(found.Data, want.Data) && (len(found.BinaryData) == 0 && len(want.BinaryData) == 0 ||
		equality.Semantic.DeepEqual(found.BinaryData, want.BinaryData))
}
