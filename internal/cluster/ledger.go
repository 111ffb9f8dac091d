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
	"sync"
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
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// errStatusInFlight means that the status of the ledger's object was being written when the objects were observed: nothing
// was decided about what is in it now. When that write completes the next pass begins.
var errStatusInFlight = errors.New("its status is being written")

// errTooSoon means that the ledger was written a moment ago. Whoever is to be admitted now is admitted with the next write.
var errTooSoon = errors.New("it was written a moment ago")

// ledgerTimes is when ledgers were written a moment ago.
type ledgerTimes struct {
	mu sync.Mutex
	at map[rollout.Ref]time.Time
}

// nextWrite is when a ledger may be written again.
func (t *ledgerTimes) nextWrite(owner rollout.Ref, interval time.Duration) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.at[owner].Add(interval)
}

// note notes that a ledger was written, and forgets what was written earlier than an interval ago.
func (t *ledgerTimes) note(owner rollout.Ref, now time.Time, interval time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.at, func(_ rollout.Ref, written time.Time) bool { return !now.Before(written.Add(interval)) })
	t.at[owner] = now
}

// openLedgers returns the ledgers of a plan that can be written now. What needs one of the others is not done in this pass.
func (p *pass) openLedgers(ledgers []rollout.Ledger) []ledgerEntry {
	var out []ledgerEntry
	for _, l := range ledgers {
		entry, err := p.openLedger(l)
		if err != nil {
			p.denyLedger(l.Owner, err)
			continue
		}
		out = append(out, entry)
	}
	return out
}

func (p *pass) openLedger(l rollout.Ledger) (ledgerEntry, error) {
	entry, found := p.findLedger(l)
	if !found {
		return entry, errors.New("there is no such object")
	}
	if p.objects.inFlight.statuses[entry.was.GetUID()] {
		return entry, errStatusInFlight
	}
	if p.now.Before(p.ledgers.nextWrite(l.Owner, p.options.LedgerInterval)) {
		return entry, errTooSoon
	}
	return entry, nil
}

// denyLedger notes that a ledger was not written. Whoever wrote meanwhile, another operator or a person, made the decision stale.
func (p *pass) denyLedger(owner rollout.Ref, err error) {
	p.denied[owner] = true
	switch {
	case errors.Is(err, errStatusInFlight):
	case errors.Is(err, errTooSoon):
		p.inFlight.retry(p.ledgers.nextWrite(owner, p.options.LedgerInterval))
	case apierrors.IsConflict(err) && p.inFlight.retryConflict(failureKey{rollout: owner}, p.now):
	default:
		p.inFlight.recordError(owner, fmt.Errorf("writing the admissions: %w", err))
	}
}

// writeLedger writes a ledger before anybody is admitted, if its object is still the version that was decided about.
func (p *pass) writeLedger(ctx context.Context, entry ledgerEntry) {
	patch, err := entry.patch()
	if err != nil {
		err = fmt.Errorf("encoding the admissions: %w", err)
	} else {
		_, err = p.patchOwnerStatus(ctx, entry.changed, types.MergePatchType, patch, nil)
	}
	if err != nil {
		p.denyLedger(entry.owner, err)
		return
	}
	p.ledgers.note(entry.owner, p.now, p.options.LedgerInterval)
	p.inFlight.forgetConflicts(entry.owner)
}

// sendWithLedgers writes ledgers, and sends the work of nodes that needs them. The loop does not wait for that with Options.OnComplete:
// until it is done these nodes are in flight, and so are the statuses of the objects that have the ledgers.
func (p *pass) sendWithLedgers(ctx context.Context, plan rollout.Plan, ledgers []ledgerEntry, all []*nodeWork) {
	if len(ledgers) == 0 {
		return
	}
	p.inFlight.add(all)
	if p.options.OnComplete == nil {
		p.writeAndSend(ctx, plan, ledgers, all)
		return
	}
	for _, l := range ledgers {
		p.inFlight.beginLedger(l.was.GetUID())
	}
	later := *p
	later.denied, later.incomplete = maps.Clone(p.denied), map[rollout.Ref]bool{}
	p.inFlight.senders.Go(func() {
		later.writeAndSend(ctx, plan, ledgers, all)
		for _, l := range ledgers {
			if writeStatus := p.inFlight.endLedger(l.was.GetUID(), !later.denied[l.owner]); writeStatus != nil {
				writeStatus()
			}
		}
		p.options.OnComplete("")
	})
}

// writeAndSend writes ledgers, and then sends what needs them. Nothing is sent to the nodes of a rollout one of whose ledgers was not
// written: what was decided about them is out of date.
func (p *pass) writeAndSend(ctx context.Context, plan rollout.Plan, ledgers []ledgerEntry, all []*nodeWork) {
	limited, cancel := p.withDeadline(ctx)
	defer cancel()
	for _, l := range ledgers {
		p.writeLedger(limited, l)
	}
	p.markIncomplete(plan)
	var sent []*nodeWork
	for _, w := range all {
		if w.hasRollout(p.incomplete) {
			p.complete(w)
		} else {
			sent = append(sent, w)
		}
	}
	p.startSending(ctx, sent)
}

// splitByPending separates the work that waits for ledgers: on nodes that need one, and what reports on the rollouts that do.
func splitByPending(plan rollout.Plan, ledgers []ledgerEntry, all []*nodeWork) (now, later []*nodeWork) {
	pending := map[rollout.Ref]bool{}
	for _, a := range plan.Actions {
		if !a.Ledger.IsZero() && slices.ContainsFunc(ledgers, func(l ledgerEntry) bool { return l.owner == a.Ledger }) {
			pending[a.Rollout] = true
		}
	}
	for _, w := range all {
		if w.hasRollout(pending) {
			later = append(later, w)
		} else {
			now = append(now, w)
		}
	}
	return now, later
}

// hasRollout reports whether one of some rollouts has a part in the work, or reports on the node.
func (w *nodeWork) hasRollout(some map[rollout.Ref]bool) bool {
	for name := range w.rollouts {
		if some[name] {
			return true
		}
	}
	return slices.ContainsFunc(w.updates, func(u annotationUpdate) bool { return some[u.by.Rollout.Ref] })
}

// ledgerEntry is a ledger in the status of its object, before and after it is written.
type ledgerEntry struct {
	owner         rollout.Ref
	was, changed  client.Object
	before, after any
}

// findLedger finds the object that holds a ledger, as we left it, and puts the new admissions into a copy.
func (p *pass) findLedger(l rollout.Ledger) (entry ledgerEntry, found bool) {
	if o := findOwner(p.writes.NodeOps, p.objects.NodeOps, l, nodeop.Ref); o != nil {
		changed := o.DeepCopy()
		changed.Status.Internal.Admission = policy.ToAdmission(l)
		return ledgerEntry{l.Owner, o, changed, o.Status.Internal.Admission, changed.Status.Internal.Admission}, true
	}
	if s := findOwner(p.writes.Skyhooks, p.objects.Skyhooks, l, func(s *v1alpha1.Skyhook) rollout.Ref { return plan.Ref(s.Name) }); s != nil {
		changed := s.DeepCopy()
		changed.Status.Internal.Admission = policy.ToAdmission(l)
		return ledgerEntry{l.Owner, s, changed, s.Status.Internal.Admission, changed.Status.Internal.Admission}, true
	}
	if d := findOwner(p.writes.Policies, p.objects.Policies, l, policy.Ref); d != nil {
		changed := d.DeepCopy()
		changed.Status.Internal.Admission = policy.ToAdmission(l)
		return ledgerEntry{l.Owner, d, changed, d.Status.Internal.Admission, changed.Status.Internal.Admission}, true
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
		"status":   map[string]any{"internal": map[string]any{"admission": json.RawMessage(admission)}},
	}, nil
}
