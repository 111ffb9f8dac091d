// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster/writecache"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

// errStatusInFlight means that the status of the ledger's object was being written when the objects were observed: nothing
// was decided about what is in it now. When that write completes the next pass begins.
var errStatusInFlight = errors.New("its status is being written")

// errTooSoon means that the ledger was written a moment ago. Whoever is to be admitted now is admitted with the next write.
var errTooSoon = errors.New("it was written a moment ago")

// writeLedgers writes the ledgers before anybody is admitted, each only if its object is still the version that was decided
// about. Whoever wrote meanwhile, another operator or a person, made the decision stale: what needs that ledger is not
// done in this pass.
func (p *pass) writeLedgers(ctx context.Context, ledgers []rollout.Ledger) {
	for _, l := range ledgers {
		err := p.writeLedger(ctx, l)
		if err == nil {
			p.inFlight.forgetConflicts(l.Owner)
			continue
		}
		p.denied[l.Owner] = true
		switch {
		case errors.Is(err, errStatusInFlight):
		case errors.Is(err, errTooSoon):
			p.inFlight.retry(p.ledgers[l.Owner].Add(p.options.LedgerInterval))
		case apierrors.IsConflict(err) && p.inFlight.retryConflict(failureKey{rollout: l.Owner}, p.now):
		default:
			p.inFlight.recordError(l.Owner, fmt.Errorf("writing the admissions: %w", err))
		}
	}
}

func (p *pass) writeLedger(ctx context.Context, l rollout.Ledger) error {
	entry, found := p.findLedger(l)
	if !found {
		return errors.New("there is no such object")
	}
	if p.objects.inFlight.statuses[entry.was.GetUID()] {
		return errStatusInFlight
	}
	isTooSoon := func(written time.Time) bool { return p.now.Before(written.Add(p.options.LedgerInterval)) }
	if isTooSoon(p.ledgers[l.Owner]) {
		return errTooSoon
	}
	patch, err := entry.patch()
	if err != nil {
		return fmt.Errorf("encoding the admissions: %w", err)
	}
	if err := p.patchOwnerStatus(ctx, entry.changed, types.MergePatchType, patch); err != nil {
		return err
	}
	maps.DeleteFunc(p.ledgers, func(_ rollout.Ref, written time.Time) bool { return !isTooSoon(written) })
	p.ledgers[l.Owner] = p.now
	return nil
}

// ledgerEntry is a ledger in the status of its object, before and after it is written.
type ledgerEntry struct {
	was, changed  client.Object
	before, after any
}

// findLedger finds the object that holds a ledger, as we left it, and puts the new admissions into a copy.
func (p *pass) findLedger(l rollout.Ledger) (entry ledgerEntry, found bool) {
	if o := findOwner(p.writes.NodeOps, p.objects.NodeOps, l, nodeop.Ref); o != nil {
		changed := o.DeepCopy()
		changed.Status.Admission = nodeop.AdmissionStatus(l)
		return ledgerEntry{o, changed, o.Status.Admission, changed.Status.Admission}, true
	}
	if s := findOwner(p.writes.Skyhooks, p.objects.Skyhooks, l, func(s *v1alpha1.Skyhook) rollout.Ref { return skyhook.Ref(s.Name) }); s != nil {
		changed := s.DeepCopy()
		changed.Status.Admission = policy.ToAdmission(l)
		return ledgerEntry{s, changed, s.Status.Admission, changed.Status.Admission}, true
	}
	if d := findOwner(p.writes.Policies, p.objects.Policies, l, policy.Ref); d != nil {
		changed := d.DeepCopy()
		changed.Status.Admission = policy.ToAdmission(l)
		return ledgerEntry{d, changed, d.Status.Admission, changed.Status.Admission}, true
	}
	return ledgerEntry{}, false
}

// findOwner returns the object of one kind that a ledger belongs to; the zero value for none.
func findOwner[T any](writes *writecache.Cache[T], all []T, l rollout.Ledger, ref func(T) rollout.Ref) (owner T) {
	if at := slices.IndexFunc(all, func(o T) bool { return ref(o) == l.Owner }); at >= 0 {
		return writes.Latest(all[at])
	}
	return owner
}

// patch is a merge patch of nothing but the admissions, if the object still is the version that was observed.
func (e ledgerEntry) patch() (any, error) {
	before, err := json.Marshal(e.before)
	if err != nil {
		return nil, err
	}
	after, err := json.Marshal(e.after)
	if err != nil {
		return nil, err
	}
	admission, err := jsonmergepatch.CreateThreeWayJSONMergePatch(before, after, before)
	if err != nil {
		return nil, err
	}
	return map[string]any{
		"metadata": map[string]any{"resourceVersion": e.was.GetResourceVersion()},
		"status":   map[string]any{"admission": json.RawMessage(admission)},
	}, nil
}
