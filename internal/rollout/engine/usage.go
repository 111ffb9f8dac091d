// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"slices"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// usageCounter counts, for each group, the nodes that use its limit and the outcomes of its targets.
type usageCounter struct{ *planner }

func (c usageCounter) countUsage() {
	for i := range c.rollouts {
		c.countOmitted(&c.rollouts[i])
	}
	for i := range c.groups {
		g := &c.groups[i]
		for _, name := range g.Taken {
			g.addUnavailable(name)
		}
		if g.usesBatches() {
			g.Members, g.Passed = g.Memory.Gone, g.Memory.Gone
		}
	}
	for i := range c.targets {
		t := &c.targets[i]
		if t.exists {
			memberCounter{t.group}.countTarget(t)
			t.group.wave.addAwaited(t)
		}
	}
	for i := range c.ledgers {
		c.countReservations(&c.ledgers[i])
	}
	for i := range c.groups {
		slices.SortStableFunc(c.groups[i].waitForHold, compareAdmissions)
	}
}

// compareAdmissions orders targets by their admission.
func compareAdmissions(a, b *targetState) int {
	return cmp.Or(
		a.target.Visit.AdmittedAt.Compare(b.target.Visit.AdmittedAt),
		cmp.Compare(a.target.Visit.Order, b.target.Visit.Order),
		a.rollout.Ref.Compare(b.rollout.Ref),
		cmp.Compare(a.node.rank, b.node.rank),
	)
}

// countOmitted counts the targets that a snapshot leaves out.
func (c usageCounter) countOmitted(r *rolloutState) {
	mayAdmit := !r.Paused && r.Broken == nil && r.barrier == nil && r.stopReason() == nil
	for _, o := range r.Omitted {
		g := c.findGroup(o.Group)
		if g == nil {
			continue
		}
		g.Total += o.Finished + o.Waiting + o.Blocked + o.Excluded
		g.Finished += o.Finished
		if mayAdmit && o.Waiting > 0 {
			g.candidates.total += o.Waiting
			g.wave.addAsking(r)
		}
		g.wave.addOmitted(r, &o)
	}
}

// memberCounter counts the targets of a group.
type memberCounter struct{ *groupState }

// countTarget counts one target. An invalid one counts against the limit while it is admitted or its node is not given
// back.
func (g memberCounter) countTarget(t *targetState) {
	if t.target.Visit.Admitted {
		g.inFlight++
	}
	if t.invalid == nil {
		g.countBusy(t)
		g.countOutcome(t)
		return
	}
	if t.target.Visit.Admitted || t.occupiesNode {
		g.addBusy(t.target.Node)
		g.addInTopology(t)
	}
}

// countBusy counts the node of a target against the limit if the target uses it.
func (g memberCounter) countBusy(t *targetState) {
	name := t.target.Node
	if !t.isBusy() {
		if g.usage.useCount[name] > 0 {
			g.addInTopology(t)
		}
		return
	}
	g.addBusy(name)
	g.addInTopology(t)
	if t.hasFailed {
		g.usage.failedBusy = append(g.usage.failedBusy, name)
	}
	mayBeHeld := t.isHeld || t.node.Sending || g.usage.unavailable[name]
	if t.target.Visit.Admitted && !mayBeHeld {
		g.waitForHold = append(g.waitForHold, t)
	}
}

// countOutcome counts how far a target is, in the group and in its open batch. One that is no longer selected stays in
// the batch while it is admitted, and counts nowhere else.
func (g memberCounter) countOutcome(t *targetState) {
	isMember := g.isMember(t)
	if t.target.Leaving {
		if t.target.Visit.Admitted && isMember {
			g.Members++
		}
		return
	}
	g.Total++
	switch {
	case t.isLost():
		g.Failures++
		g.failedNames = appendListed(g.failedNames, t.target.Node)
		if g.failedOf == nil {
			g.failedOf = map[rollout.Ref]bool{}
		}
		g.failedOf[t.rollout.Ref] = true
	case t.hasPassed():
		g.Finished++
	}
	if isMember {
		g.countMember(t)
	}
}

// countMember counts a target of the open batch. The batch does not wait for targets that may take any time.
func (g memberCounter) countMember(t *targetState) {
	g.Members++
	mayTakeForever := t.target.Blocked != nil || t.rollout.isBypassed()
	switch {
	case t.isLost():
		g.Lost++
	case t.hasPassed():
		g.Passed++
	case mayTakeForever:
	default:
		g.addPending(t.target.Node)
		isProving := !t.hasWork && !t.target.Visit.Admitted
		if isProving && g.proving == nil {
			g.proving = t
		}
	}
}

// countReservations counts the admissions of a ledger that are not observed on their nodes yet.
func (c usageCounter) countReservations(l *ledgerState) {
	for _, s := range l.Admitting {
		expires := s.CountsFrom().Add(rollout.ReservationTerm)
		if !c.Now.Before(expires) || c.isSettled(s) {
			continue
		}
		c.plan.requestNext(expires)
		l.unseen = append(l.unseen, s)
		c.countReservation(s)
	}
}

// isSettled reports whether an admission was observed on its node, or cannot be observed any more: the target is finished for good,
// the node does not exist, or the rollout is being deleted, and its target disappeared when its node was written to.
func (c usageCounter) isSettled(s rollout.Reservation) bool {
	if s.Ended {
		return true
	}
	if t := c.findTarget(s.Rollout, s.Node); t != nil {
		return t.hasSeen(s)
	}
	r := c.findRollout(s.Rollout)
	isDeleting := r != nil && r.Deleting
	return isDeleting || c.nodeNamed(s.Node) == nil
}

// hasSeen reports whether an admission was observed on its node or refused there, or the node is another one now. What else is known of the
// target, that its pods are refused for example, says nothing about a request that is still on its way.
func (t *targetState) hasSeen(s rollout.Reservation) bool {
	if !t.exists || t.target.Visit.Admitted || t.node.Refused {
		return true
	}
	isOfGroup := t.target.Visit.BatchOf.IsZero() || t.target.Visit.BatchOf == s.Group
	return isOfGroup && t.target.Visit.Batch >= s.Batch
}

func (c usageCounter) countReservation(s rollout.Reservation) {
	if n := c.nodeNamed(s.Node); n != nil {
		n.isReserved = true
	}
	if r := c.findRollout(s.Rollout); r != nil {
		r.nextOrder = max(r.nextOrder, s.Order+1)
	}
	g, t := c.findGroup(s.Group), c.findTarget(s.Rollout, s.Node)
	if t != nil && t.group != g {
		t.countReservedElsewhere(s)
	}
	if g == nil {
		return
	}
	g.addBusy(s.Node)
	if s.Batch >= g.Memory.From {
		g.Members++
		g.addPending(s.Node)
	}
	if t == nil {
		return
	}
	g.addInTopology(t)
	if t.group == g && t.hasWork {
		t.reservation.isOpen = !g.usesBatches() || s.Batch >= g.Memory.From
		t.reservation.order = s.Order
	}
}

// countReservedElsewhere counts a target with an admission that was written for another group: the compartments, the scope
// or the name of the policy changed since. When the admission is observed the target counts in the present group. Numbers
// of batches of two groups cannot be compared, so a target that finished since was admitted.
func (t *targetState) countReservedElsewhere(s rollout.Reservation) {
	hasFinishedSince := t.target.Visit.FinishedAt.After(s.CountsFrom())
	if !t.hasWork || hasFinishedSince {
		return
	}
	t.reservation.isElsewhere = true
	t.group.addBusy(t.target.Node)
	t.group.addInTopology(t)
}
