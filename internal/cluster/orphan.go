// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// orphanConfirmation is the time between two answers of the API server that an owner of holds does not exist.
const orphanConfirmation = 30 * time.Second

// maxOrphans bounds the owners whose holds one pass releases: annotations of nodes may name any number of them.
const maxOrphans = 100

// findOrphans finds holds whose owner is gone. A list of a cache without the owner proves nothing: only the API server itself does,
// twice. However many owners holds name, it is asked for one list of each kind.
func (v *observer) findOrphans(ctx context.Context, o *Objects, now time.Time) error {
	unlisted := o.findUnlistedOwners()
	maps.DeleteFunc(v.missing, func(owner rollout.Ref, _ time.Time) bool { return !unlisted[owner] })
	o.Orphans = map[rollout.Ref]bool{}
	var due []rollout.Ref
	for owner := range unlisted {
		since, isMissing := v.missing[owner]
		if next := since.Add(orphanConfirmation); isMissing && now.Before(next) {
			o.RetryAt = node.Earlier(o.RetryAt, next)
		} else {
			due = append(due, owner)
		}
	}
	if len(due) == 0 {
		return nil
	}
	slices.SortFunc(due, rollout.Ref.Compare)
	live, err := v.listOwners(ctx, due)
	if err != nil {
		return err
	}
	for _, owner := range due {
		_, isMissing := v.missing[owner]
		switch {
		case live.exists(owner):
			delete(v.missing, owner)
		case !isMissing:
			v.missing[owner] = now
			o.RetryAt = node.Earlier(o.RetryAt, now.Add(orphanConfirmation))
		case len(o.Orphans) < maxOrphans:
			o.Orphans[owner] = true
		default:
			o.RetryAt = node.Earlier(o.RetryAt, now)
		}
	}
	return nil
}

// findUnlistedOwners returns the owners of holds that are not among the objects.
func (o *Objects) findUnlistedOwners() map[rollout.Ref]bool {
	exists := make(map[rollout.Ref]bool, len(o.Skyhooks)+len(o.NodeOps))
	for _, s := range o.Skyhooks {
		exists[plan.Ref(s.Name)] = true
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
	return unlisted
}

// owners are the UIDs of all objects of the kinds that hold nodes.
type owners map[rollout.Ref]types.UID

// exists reports whether the owner of a hold exists. A NodeOp's name has its UID after an "@".
func (l owners) exists(owner rollout.Ref) bool {
	name, uid, hasUID := strings.Cut(owner.Name, "@")
	owner.Name = name
	found, ok := l[owner]
	return ok && (!hasUID || string(found) == uid)
}

// listOwners lists the kinds of some owners from the API server itself.
func (v *observer) listOwners(ctx context.Context, wanted []rollout.Ref) (owners, error) {
	out := owners{}
	isWanted := func(kind string) bool {
		return slices.ContainsFunc(wanted, func(owner rollout.Ref) bool { return owner.Kind == kind })
	}
	if isWanted(plan.Kind) {
		err := eachItem(ctx, v.options.Live, &v1alpha1.SkyhookList{}, pageSize, func(s *v1alpha1.Skyhook) { out[plan.Ref(s.Name)] = s.UID })
		if err != nil {
			return nil, fmt.Errorf("looking for Skyhooks that hold nodes: %w", err)
		}
	}
	if isWanted(nodeop.Kind) {
		err := eachItem(ctx, v.options.Live, &opv1.NodeOpList{}, pageSize, func(op *opv1.NodeOp) { out[nodeop.Ref(op)] = op.UID })
		if err != nil {
			return nil, fmt.Errorf("looking for NodeOps that hold nodes: %w", err)
		}
	}
	return out, nil
}
