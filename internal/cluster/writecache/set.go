// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package writecache

import (
	"context"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
)

// Set is a cache for each kind of object that we write.
type Set struct {
	Nodes      *Cache[*node.Node]
	Pods       *Cache[*corev1.Pod]
	ConfigMaps *Cache[*corev1.ConfigMap]
	Skyhooks   *Cache[*v1alpha1.Skyhook]
	Policies   *Cache[*v1alpha1.DeploymentPolicy]
	NodeOps    *Cache[*opv1.NodeOp]
	Upgrades   *Cache[*opv1.NodeOpUpgrade]
	Jobs       *Cache[*batchv1.Job]
	OpPods     *Cache[*corev1.Pod]
}

// NewSet makes empty caches.
func NewSet(clock func() time.Time) *Set {
	return &Set{
		Nodes: newCache(clock, func(n *node.Node) Identity {
			return Identity{NamespacedName: types.NamespacedName{Name: n.Name}, UID: n.UID, Version: n.ResourceVersion}
		}),
		Pods:       newCache(clock, identifyObject[*corev1.Pod]),
		ConfigMaps: newCache(clock, identifyObject[*corev1.ConfigMap]),
		Skyhooks:   newCache(clock, identifyObject[*v1alpha1.Skyhook]),
		Policies:   newCache(clock, identifyObject[*v1alpha1.DeploymentPolicy]),
		NodeOps:    newCache(clock, identifyObject[*opv1.NodeOp]),
		Upgrades:   newCache(clock, identifyObject[*opv1.NodeOpUpgrade]),
		Jobs:       newCache(clock, identifyObject[*batchv1.Job]),
		OpPods:     newCache(clock, identifyObject[*corev1.Pod]),
	}
}

// PutOwner stores an object of our own API groups: as the API server returned it or, if it dropped fields, as it was written.
func (s *Set) PutOwner(o client.Object, hasDropped bool) {
	switch o := o.(type) {
	case *v1alpha1.Skyhook:
		s.Skyhooks.put(o, hasDropped)
	case *v1alpha1.DeploymentPolicy:
		s.Policies.put(o, hasDropped)
	case *opv1.NodeOp:
		s.NodeOps.put(o, hasDropped)
	case *opv1.NodeOpUpgrade:
		s.Upgrades.put(o, hasDropped)
	}
}

// Confirm reads the objects from the API server that we created and that the informer cache should have shown by now. It
// returns when to do so again; zero for never.
func (s *Set) Confirm(ctx context.Context, live client.Reader) (retryAt time.Time, err error) {
	for _, confirmKind := range []func() (time.Time, error){
		func() (time.Time, error) { return confirm(ctx, live, s.Pods) },
		func() (time.Time, error) { return confirm(ctx, live, s.ConfigMaps) },
		func() (time.Time, error) { return confirm(ctx, live, s.Jobs) },
		func() (time.Time, error) { return confirm(ctx, live, s.OpPods) },
		func() (time.Time, error) { return confirm(ctx, live, s.NodeOps) },
	} {
		due, err := confirmKind()
		if err != nil {
			return time.Time{}, err
		}
		if retryAt.IsZero() || !due.IsZero() && due.Before(retryAt) {
			retryAt = due
		}
	}
	return retryAt, nil
}
