// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

// proveGone is the time between two answers of the API server that an owner of holds does not exist.
const proveGone = 30 * time.Second

// findOrphans looks for holds whose owner is gone. A list that does not show the owner proves nothing: only the API
// server itself does, twice.
func (c *Cluster) findOrphans(ctx context.Context, o *Objects, now time.Time) error {
	exists := make(map[rollout.Ref]bool, len(o.Skyhooks))
	for _, s := range o.Skyhooks {
		exists[skyhook.Ref(s.Name)] = true
	}
	for _, op := range o.NodeOps {
		exists[nodeop.Ref(op)] = true
	}
	lost := map[rollout.Ref]bool{}
	for _, n := range o.Nodes {
		for _, h := range append(skyhook.Holds(n), o.opHolds(n.Name)...) {
			if !exists[h.Owner] {
				lost[h.Owner] = true
			}
		}
	}
	for owner := range c.missing {
		if !lost[owner] {
			delete(c.missing, owner)
		}
	}
	o.Orphans = map[rollout.Ref]bool{}
	var errs []error
	for _, owner := range slices.SortedFunc(maps.Keys(lost), rollout.Ref.Compare) {
		since, before := c.missing[owner]
		if before && now.Before(since.Add(proveGone)) {
			o.Again = sooner(o.Again, since.Add(proveGone))
			continue
		}
		gone, err := c.gone(ctx, owner)
		switch {
		case err != nil:
			errs = append(errs, err)
		case !gone:
			delete(c.missing, owner)
		case !before:
			c.missing[owner] = now
			o.Again = sooner(o.Again, now.Add(proveGone))
		default:
			o.Orphans[owner] = true
		}
	}
	return errors.Join(errs...)
}

// gone asks the API server itself whether the owner of a hold does not exist.
func (c *Cluster) gone(ctx context.Context, owner rollout.Ref) (bool, error) {
	if owner.Kind == nodeop.Kind {
		return c.goneOp(ctx, owner)
	}
	err := c.options.Live.Get(ctx, client.ObjectKey{Name: owner.Name}, &v1alpha1.Skyhook{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking for %s, which holds nodes: %w", owner, err)
	}
	return false, nil
}
