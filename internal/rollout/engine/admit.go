// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// admitter admits targets within the limits of their groups and rollouts.
type admitter struct{ *planner }

// admitTargets admits candidates of a rollout, in the total order, and reports to the others what they wait for.
func (a admitter) admitTargets(r *rolloutState) {
	left := r.remainingLimit()
	looker := podLooker{plan: &a.plan}
	r.candidates = r.sortedCandidates()
	for _, t := range r.candidates {
		isCounted := t.isBeingAdmitted() || t.occupiesNode || t.reservation.isElsewhere
		isOverLimit := left <= 0 && !isCounted
		why := checkAdmission(t, &looker)
		if why == nil && isOverLimit {
			full := r.reasonToWait(rollout.ReasonBudget)
			why = &full
		}
		if why == nil {
			why = looker.look(t, left)
		} else if why.Reason == rollout.ReasonLedger {
			looker.look(t, left) // for the next plan, which is made when the ledger is stored
		}
		if looker.isGivenUp {
			a.giveUpWaiting(t, *why)
			continue
		}
		if why != nil {
			t.verdict = rollout.Verdict{Phase: rollout.PhaseWaiting, Why: *why}
			continue
		}
		if !isCounted {
			left--
		}
		a.admitTarget(t)
	}
}

// giveUpWaiting retires a candidate whose node has protected pods for too long.
func (a admitter) giveUpWaiting(t *targetState, why rollout.Why) {
	if !t.node.Sending { // otherwise an earlier plan may be admitting it
		retirer{a.newBoard(t)}.retireSkipped(why)
	}
	t.verdict = rollout.Verdict{Phase: rollout.PhaseFailed, Why: why}
}

// remainingLimit returns how many more targets a rollout may have in flight, whatever its groups allow.
func (r *rolloutState) remainingLimit() int {
	if r.Limit <= 0 {
		return unlimited
	}
	left := r.Limit
	for i := range r.targets {
		t := &r.targets[i]
		if t.exists && t.isInFlight() {
			left--
		}
	}
	return left
}

// isInFlight reports whether a target is admitted, is being admitted, or has not given its node back. What this plan retires is
// in flight no longer, unless an earlier plan is still being applied to its node.
func (t *targetState) isInFlight() bool {
	if t.isBeingAdmitted() || t.occupiesNode || t.reservation.isElsewhere {
		return true
	}
	return t.target.Visit.Admitted && (!t.isRetired || t.node.Sending)
}

// sortedCandidates returns the candidates of a rollout in the order in which they are admitted.
func (r *rolloutState) sortedCandidates() []*targetState {
	return r.sortedTargets(func(t *targetState) bool { return t.passesGates && !t.target.Visit.Admitted })
}

// sortedTargets returns the targets with a node that match, in the order in which they are admitted: reserved ones,
// then by class, then the node of this operator last, then by age of the node.
func (r *rolloutState) sortedTargets(matches func(*targetState) bool) []*targetState {
	var out []*targetState
	for i := range r.targets {
		if t := &r.targets[i]; t.node != nil && matches(t) {
			out = append(out, t)
		}
	}
	sortStable(out, compareCandidates)
	return out
}

func compareCandidates(a, b *targetState) int {
	return cmp.Or(
		compareBool(b.reservation.isOpen, a.reservation.isOpen),
		cmp.Compare(a.target.Class, b.target.Class),
		compareBool(a.node.Self, b.node.Self),
		cmp.Compare(a.node.rank, b.node.rank),
	)
}

// compareBool orders false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// checkOpen returns why nothing of a group is admitted to the node of a candidate, whatever its limits say.
func checkOpen(t *targetState) *rollout.Why {
	return checkAll(t, checkNodeFree, checkGroupFrozen, checkWave, checkGroupOpen, checkClosing)
}

// checkAdmission returns why a candidate is not admitted now; nil if it may be.
func checkAdmission(t *targetState, looker *podLooker) *rollout.Why {
	looker.isGivenUp = false
	return checkAll(t, checkOpen, looker.checkProtected, checkMemory, checkLimit, checkTopology, checkLedger, checkPreflight, checkPulled)
}

// checkAll returns the first reason why a candidate waits; nil if it does not.
func checkAll(t *targetState, checks ...func(*targetState) *rollout.Why) *rollout.Why {
	for _, check := range checks {
		if why := check(t); why != nil {
			return why
		}
	}
	return nil
}

// checkNodeFree stops candidates on a node to which this plan admitted another target.
func checkNodeFree(t *targetState) *rollout.Why {
	if t.node.occupant == nil || t.joins() {
		return nil
	}
	why := t.node.occupant.rollout.reasonToWait(rollout.ReasonOccupied)
	return &why
}

// checkGroupFrozen stops candidates while a window is closed, the policy is paused, or a health gate is false. What rolls back does not
// wait for a gate: the packages that it rolls back from may be why the gate is false.
func checkGroupFrozen(t *targetState) *rollout.Why {
	frozen := t.group.Frozen
	isGate := frozen != nil && frozen.Reason == rollout.ReasonHealthGate
	if isGate && t.target.Rollback.WithOthers {
		return nil
	}
	return frozen
}

func checkGroupOpen(t *targetState) *rollout.Why {
	g := t.group
	switch {
	case g.memory.Stopped && !t.rollout.Deleting && !t.target.Rollback.WithOthers:
		return groupReasons{g}.stopped()
	case g.Failed != nil && !t.rollout.Deleting && !t.target.Rollback.WithOthers:
		return g.Failed
	}
	return nil
}

func checkMemory(t *targetState) *rollout.Why {
	if t.group.hasUnsavedMemory() {
		return groupReasons{t.group}.unsaved()
	}
	return nil
}

// checkLimit stops candidates that would exceed the limit of the group. A reserved one is counted already, and so is one
// whose node is not given back: it needs a place in the open batch only.
func checkLimit(t *targetState) *rollout.Why {
	g := t.group
	isFull := g.free <= 0
	switch {
	case t.reservation.isOpen:
		isFull = g.isOverLimit()
	case t.node.Sending && g.ledger != nil:
		return groupReasons{g}.sending()
	case t.occupiesNode:
		isFull = g.isOverLimit() || g.isBatchFull()
	case t.isCountedHere():
		isFull = g.isOverLimit() || g.isBatchFull() && !t.isOfBatchHere()
	}
	if isFull {
		return groupReasons{g}.full()
	}
	return nil
}

func checkTopology(t *targetState) *rollout.Why {
	if !t.group.isTopologyFull(t) {
		return nil
	}
	return groupReasons{t.group}.topology(t)
}

func checkLedger(t *targetState) *rollout.Why {
	l := t.group.ledger
	needsEntry := l != nil && !t.reservation.isOpen
	if needsEntry && l.isFull() {
		return groupReasons{t.group}.ledgerFull()
	}
	return nil
}

// admitTarget admits a candidate and starts its first tasks. Its failures are counted anew.
func (a admitter) admitTarget(t *targetState) {
	why := rollout.Why{Reason: rollout.ReasonOwed, Text: "it has pending work and a slot is free"}
	if t.target.Rollback.WithOthers {
		why = rollout.WithDefaultReason(t.target.Rollback.Cause, rollout.ReasonRolledBack)
	}
	action := a.plan.addAction(t, rollout.VerbAdmit, why)
	action.Ledger, action.Order, action.Group = t.requireLedgerWrite(), a.nextOrder(t), t.group.Ref
	if !t.node.Sending { // otherwise an earlier plan gave the order
		t.rollout.addOrder(action.Order)
		action.Batch = a.addToLedger(t, action.Order)
	}
	if !t.reservation.isOpen {
		t.group.addAdmitted(t)
	}
	t.isAdmittedNow = true
	if t.joins() {
		t.node.joining = t
	} else {
		t.node.occupant = t
	}
	b := a.newBoard(t)
	for i := range b.tasks {
		b.tasks[i].failures = 0
	}
	b.markHopeless()
	starter{b}.startTasks()
	t.verdict = b.verdict
}

// nextOrder returns the order that a candidate gets. A reserved one keeps its order, which may be being sent to the
// node.
func (a admitter) nextOrder(t *targetState) int {
	if t.reservation.isOpen && t.reservation.order >= t.rollout.Numbering.Next {
		return t.reservation.order
	}
	return t.rollout.nextOrder
}

// isOwnOrder reports whether the rollout can have given this order. Those that the status does not have yet are of admitted
// targets, which wait for it, or are on their way. What a node says beyond that changes no other node's order.
func (r *rolloutState) isOwnOrder(order int) bool {
	return order < max(r.Numbering.Next, r.Numbering.OnTheirWay)+len(r.Targets)+rollout.MaxAdmitting
}

func (r *rolloutState) addOrder(order int) {
	r.givenOrder = max(r.givenOrder, order+1)
	r.nextOrder = max(r.nextOrder, r.givenOrder)
}

// addToLedger adds the admission of a target to the ledger of its group and returns its batch.
func (a admitter) addToLedger(t *targetState, order int) int64 {
	l := t.group.ledger
	if l == nil {
		return 0
	}
	batch := l.Epoch + 1
	l.added = append(l.added, rollout.Reservation{
		Rollout: t.rollout.Ref,
		Node:    t.target.Node,
		Group:   t.group.Ref,
		Order:   order,
		Batch:   batch,
		Since:   a.Now,
	})
	return batch
}
