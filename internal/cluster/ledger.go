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
	"github.com/skyhook-k8s/skyhook/internal/cluster/writecache"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

// fence writes the ledgers before anybody is admitted, each only if its object is still the version that was decided
// about. Whoever wrote meanwhile, another operator or a person, made this decision stale: what needs that ledger does
// not happen in this round.
func (r *round) fence(ctx context.Context, ledgers []rollout.Ledger) {
	for _, l := range ledgers {
		err := r.enter(ctx, l)
		if err == nil {
			continue
		}
		r.denied[l.Owner] = true
		switch {
		case errors.Is(err, errSpeaking):
		case errors.Is(err, errGathering):
			r.later(r.ledgers[l.Owner].Add(r.options.Gather))
		case apierrors.IsConflict(err):
			r.later(r.now)
		default:
			r.fail(l.Owner, fmt.Errorf("writing the admissions: %w", err))
		}
	}
}

func (r *round) enter(ctx context.Context, l rollout.Ledger) error {
	was, changed, before, after := r.keeper(l)
	switch {
	case was == nil:
		return errors.New("there is no such object")
	case r.o.words[was.GetUID()]:
		return errSpeaking
	case r.now.Before(r.ledgers[l.Owner].Add(r.options.Gather)):
		return errGathering
	}
	if err := r.patchLedger(ctx, was, changed, before, after); err != nil {
		return err
	}
	maps.DeleteFunc(r.ledgers, func(_ rollout.Ref, at time.Time) bool { return !r.now.Before(at.Add(r.options.Gather)) })
	r.ledgers[l.Owner] = r.now
	return nil
}

// errSpeaking says that a status was on its way when this was decided: what is in that object now was not decided about.
// Its landing has the loop look again.
var errSpeaking = errors.New("its status is being written")

// errGathering says that a ledger was written a moment ago: whoever is to be admitted is admitted with the next.
var errGathering = errors.New("admissions are gathered")

// keeper finds the object that holds a ledger, and makes the one that is to be; nil when there is none.
func (r *round) keeper(l rollout.Ledger) (was, changed client.Object, before, after any) {
	if o, c := holding(r.writes.NodeOps, r.o.NodeOps, l, nodeop.Ref); o != nil {
		c.Status.Admission = nodeop.Admission(l)
		return o, c, o.Status.Admission, c.Status.Admission
	}
	if s, c := holding(r.writes.Skyhooks, r.o.Skyhooks, l, func(s *v1alpha1.Skyhook) rollout.Ref { return skyhook.Ref(s.Name) }); s != nil {
		c.Status.Admission = policy.Admission(l)
		return s, c, s.Status.Admission, c.Status.Admission
	}
	if p, c := holding(r.writes.Policies, r.o.Policies, l, policy.Ref); p != nil {
		c.Status.Admission = policy.Admission(l)
		return p, c, p.Status.Admission, c.Status.Admission
	}
	return nil, nil, nil, nil
}

// holding finds the object whose ledger this is, as we left it, and copies it.
func holding[T interface{ DeepCopy() T }](writes *writecache.Cache[T], all []T, l rollout.Ledger, name func(T) rollout.Ref) (was, changed T) {
	if at := slices.IndexFunc(all, func(o T) bool { return name(o) == l.Owner }); at >= 0 {
		was = writes.Latest(all[at])
		changed = was.DeepCopy()
	}
	return was, changed
}

// exactly is a merge patch that only touches the version it was made from.
func exactly(from client.Object) client.Patch {
	return client.MergeFromWithOptions(from, client.MergeFromWithOptimisticLock{})
}

// patchStatus brings the status of changed to the API server, if the object still is as it was. Changed becomes what the
// API server has then.
func (c *Cluster) patchStatus(ctx context.Context, was, changed client.Object) error {
	patch, err := wholeStatus(was, changed)
	if err != nil {
		return err
	}
	return c.sendStatus(ctx, changed, patch)
}

// patchLedger does the same for nothing but the admissions.
func (c *Cluster) patchLedger(ctx context.Context, was, changed client.Object, before, after any) error {
	patch, err := onlyAdmission(was, before, after)
	if err != nil {
		return err
	}
	return c.sendStatus(ctx, changed, patch)
}

func (c *Cluster) sendStatus(ctx context.Context, changed client.Object, patch client.Patch) error {
	if err := c.options.Client.Status().Patch(ctx, changed, patch); err != nil {
		return err
	}
	c.writes.PutOwner(changed)
	return nil
}

// patch does the same for everything but the status.
func (c *Cluster) patch(ctx context.Context, was, changed client.Object) error {
	if err := c.options.Client.Patch(ctx, changed, exactly(was)); err != nil {
		return err
	}
	c.writes.PutOwner(changed)
	return nil
}
