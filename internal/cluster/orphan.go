// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

// orphanConfirmation is the time between two answers of the API server that an owner of holds does not exist.
const orphanConfirmation = 30 * time.Second

// findOrphans finds holds whose owner is gone. A list without the owner proves nothing: only the API server itself does,
// twice.
func (v *observer) findOrphans(ctx context.Context, o *Objects, now time.Time) error {
	exists := make(map[rollout.Ref]bool, len(o.Skyhooks))
	for _, s := range o.Skyhooks {
		exists[skyhook.Ref(s.Name)] = true
	}
	for _, op := range o.NodeOps {
		exists[nodeop.Ref(op)] = true
	}
	unlisted := map[rollout.Ref]bool{}
	for _, n := range o.Nodes {
		for _, h := range o.holds(n) {
			if !exists[h.Owner] {
				unlisted[h.Owner] = true
			}
		}
	}
	for owner := range v.missing {
		if !unlisted[owner] {
			delete(v.missing, owner)
		}
	}
	o.Orphans = map[rollout.Ref]bool{}
	var errs []error
	for _, owner := range slices.SortedFunc(maps.Keys(unlisted), rollout.Ref.Compare) {
		since, before := v.missing[owner]
		if before && now.Before(since.Add(orphanConfirmation)) {
			o.RetryAt = node.Earlier(o.RetryAt, since.Add(orphanConfirmation))
			continue
		}
		gone, err := v.isGone(ctx, owner)
		switch {
		case err != nil:
			errs = append(errs, err)
		case !gone:
			delete(v.missing, owner)
		case !before:
			v.missing[owner] = now
			o.RetryAt = node.Earlier(o.RetryAt, now.Add(orphanConfirmation))
		default:
			o.Orphans[owner] = true
		}
	}
	return errors.Join(errs...)
}

// isGone asks the API server itself whether the owner of a hold does not exist. A NodeOp's name has its UID after an "@".
func (v *observer) isGone(ctx context.Context, owner rollout.Ref) (bool, error) {
	var found client.Object = &v1alpha1.Skyhook{}
	if owner.Kind == nodeop.Kind {
		found = &opv1.NodeOp{}
	}
	name, uid, _ := strings.Cut(owner.Name, "@")
	err := v.options.Live.Get(ctx, client.ObjectKey{Namespace: owner.Namespace, Name: name}, found)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking for %s, which holds nodes: %w", owner.Title(), err)
	}
	isAnother := uid != "" && string(found.GetUID()) != uid
	return isAnother, nil
}
