// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"math"
	"slices"
	"strconv"
)

// admitTargets lets more targets begin: it learns from the batches that ended, asks the paces for the next size, cuts that by
// the budgets, and gives the seats to who is first in the total order.
func (p *planner) admitTargets() {
	for i := range p.groups {
		p.groups[i].updateBatch(p)
	}
	for i := range p.rollouts {
		p.admitFrom(&p.rollouts[i])
	}
}

func (p *planner) admitFrom(q *rolloutState) {
	left := q.remainingLimit()
	for _, t := range q.sortedCandidates() {
		why := p.findRefusal(t)
		if why == nil && left <= 0 && !t.isUnderWay() {
			full := q.reasonToWait(ReasonBudget)
			why = &full
		}
		if why != nil {
			t.verdict = Verdict{Phase: PhaseWaiting, Why: *why}
			continue
		}
		if !t.isUnderWay() {
			left--
		}
		p.admitTarget(t)
	}
}

// remainingLimit is how many more targets a rollout may have in flight, whatever its groups allow.
func (q *rolloutState) remainingLimit() int {
	if q.Limit <= 0 {
		return unlimited
	}
	left := q.Limit
	for i := range q.targets {
		if t := &q.targets[i]; t.exists && (t.target.Admitted && (!t.isRetired || t.node.Sending) || t.isUnderWay()) {
			left--
		}
	}
	return left
}

// isUnderWay says that an admission is written in the ledger, or may be on its way to the node.
func (t *targetState) isUnderWay() bool {
	return t.isReserved || t.node.Sending && !t.target.Admitted && t.hasWork
}

// sortedCandidates are the candidates of a rollout, the next one first: whose seat is written already, then by class, then all
// others before the node that runs this operator, then by age of the node.
func (q *rolloutState) sortedCandidates() []*targetState {
	return q.sortedTargets(func(t *targetState) bool { return t.passesGates && !t.target.Admitted })
}

// sortedTargets are the targets on nodes for which include holds, in the order in which they are admitted.
func (q *rolloutState) sortedTargets(include func(*targetState) bool) []*targetState {
	var out []*targetState
	for i := range q.targets {
		if t := &q.targets[i]; t.node != nil && include(t) {
			out = append(out, t)
		}
	}
	turn := func(a, b *targetState) int {
		return cmp.Or(-compareBool(a.isReserved, b.isReserved), cmp.Compare(a.target.Class, b.target.Class),
			compareBool(a.node.Self, b.node.Self), cmp.Compare(a.node.rank, b.node.rank))
	}
	if !slices.IsSortedFunc(out, turn) {
		slices.SortStableFunc(out, turn)
	}
	return out
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// findRefusal says why a candidate is not admitted now; nil when it is.
func (p *planner) findRefusal(t *targetState) *Why {
	g := t.group
	if t.node.occupant != nil { // another rollout was admitted here just now
		why := t.node.occupant.rollout.reasonToWait(ReasonOccupied)
		return &why
	}
	switch {
	case g.Frozen != nil:
		return g.Frozen
	case g.memory.Stopped && !t.rollout.Deleting:
		return g.stoppedReason()
	case g.hasUnsavedMemory():
		return g.unsavedReason()
	case t.node.Sending && g.ledger != nil && !t.isReserved:
		return g.cachedReason(ReasonOccupied, "sending", func() string { return "something is being written to the node" })
	case t.isReserved && g.isOverLimit():
		return g.fullReason()
	case !t.isReserved && g.free <= 0:
		return g.fullReason()
	case g.isTopologyFull(t):
		return g.topologyReason(t)
	case !t.isReserved && g.ledger != nil && len(g.ledger.unseen)+len(g.ledger.added) >= MaxAdmitting:
		return g.cachedReason(ReasonLedger, "full", func() string {
			return "the " + strconv.Itoa(MaxAdmitting) + " admissions under way come first"
		})
	}
	return nil
}

// admitTarget gives a candidate its seat and lets it begin.
func (p *planner) admitTarget(t *targetState) {
	g := t.group
	a := p.addAction(t, VerbAdmit, Why{Reason: ReasonOwed, Text: "it owes work and a seat is free"})
	a.Ledger, a.Order, a.Group = t.requireLedgerWrite(), t.rollout.nextOrder, g.Ref
	if t.isReserved && t.reservedOrder >= t.rollout.NextOrder { // somebody else may be writing it to the node at this moment
		a.Order = t.reservedOrder
	}
	if g.ledger != nil && !t.node.Sending {
		a.Batch = g.ledger.Epoch + 1
		g.ledger.added = append(g.ledger.added, Seat{Rollout: t.rollout.Ref, Node: t.target.Node, Group: g.Ref, Order: a.Order, Batch: a.Batch, Since: p.Now})
	}
	if !t.node.Sending { // it has its order already
		t.rollout.givenOrder = max(t.rollout.givenOrder, a.Order+1)
		t.rollout.nextOrder = max(t.rollout.nextOrder, t.rollout.givenOrder)
	}
	t.isAdmittedNow, t.node.occupant = true, t
	if !t.isReserved {
		g.free--
		g.members++
		g.addBusy(t.target.Node)
		g.addPending(t.target.Node)
		g.countInTopology(t)
	}
	b := p.newBoard(t)
	clear(b.attempts) // failures are counted anew
	b.findHopeless()
	p.startTasks(b)
	t.verdict = b.verdict
}

// requireLedgerWrite is the ledger that must have been written before the target may take anything.
func (t *targetState) requireLedgerWrite() Ref {
	if t.group.ledger == nil {
		return Ref{}
	}
	t.group.ledger.mustWrite = t.group.ledger.mustWrite || !t.node.Sending
	return t.group.ledger.Owner
}

// tryReserveSeat says whether a target may cordon its node now. It may, unless its group is over its limit: the limit was
// lowered, nodes failed by themselves, or a target that had given its seat away goes on. Then those that hold their
// node already come first, and after them whoever was admitted first.
func (p *planner) tryReserveSeat(t *targetState) (Why, bool) {
	g := t.group
	if g.Limit == Unlimited {
		return Why{}, true
	}
	if !t.takesSeat() && !t.isAdmittedNow {
		if len(g.busy) >= g.Limit {
			return *g.fullReason(), false
		}
		g.addBusy(t.target.Node)
		g.free--
		return Why{}, true
	}
	if len(g.busy) <= g.Limit {
		return Why{}, true
	}
	free := g.Limit - (len(g.busy) - len(g.waitForHold))
	if g.unavailable[t.target.Node] { // its node counts as disrupted already
		if free >= 0 {
			return Why{}, true
		}
	} else if free > 0 && slices.Contains(g.waitForHold[:min(free, len(g.waitForHold))], t) {
		return Why{}, true
	}
	return *g.fullReason(), false
}

// room without end.
const unlimited = math.MaxInt
