// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine

import "github.com/skyhook-k8s/skyhook/internal/rollout"

// batchUpdater updates the memory of a group from the outcomes of its targets, and finds out how many targets may be
// admitted.
type batchUpdater struct{ *groupState }

// markComplete finds out which groups are complete. Compartments with one ledger are complete together, so that their
// batches begin again together.
func (p *planner) markComplete() {
	totals := make(map[*ledgerState]rollout.Tally, len(p.ledgers))
	for i := range p.groups {
		g := &p.groups[i]
		all := totals[g.ledger]
		all.Total += g.Total
		all.Finished += g.Finished
		totals[g.ledger] = all
	}
	for i := range p.groups {
		g := &p.groups[i]
		all := totals[g.ledger]
		g.isComplete = g.ledger != nil && all.Total > 0 && all.Finished == all.Total
	}
}

func (u batchUpdater) update(plan *draftPlan) {
	if u.usesMemory() {
		u.updateMemory()
	} else { // it had another pace when it stopped
		u.memory = u.memory.Continued()
	}
	u.memory.Gone += u.goneNow
	u.free = unlimited
	if u.Limit != rollout.Unlimited {
		u.free = u.Limit - len(u.usage.busy)
	}
	if u.usesBatches() {
		u.planBatch()
		u.free = min(u.free, u.memory.Open-u.Members)
	}
	if u.Frozen != nil && u.candidates.total > 0 {
		plan.requestNext(u.Until)
	}
	if u.Closing != nil && u.candidates.total > 0 {
		plan.requestNext(u.Opens)
	}
}

// planBatch plans the size of the open batch. Until a target of it is admitted it may still grow.
func (u batchUpdater) planBatch() {
	mayAdmit := !u.memory.Stopped && u.mayBeginAny() || u.candidates.unstoppable > 0
	slots := u.admissibleCount()
	hasCandidates := u.admissible() > 0 && slots > 0 && mayAdmit
	if u.Members > 0 || !hasCandidates {
		return
	}
	size := u.Pace.NextSize(u.memory, u.Total)
	if size == 0 {
		size = slots
	}
	size = min(size, slots, max(1, u.Total))
	u.memory.Open = max(u.memory.Open, size)
}

// admissibleCount returns how many candidates the limit allows: those for which a slot is free, and those whose node is
// not given back unless the group is over its limit.
func (u batchUpdater) admissibleCount() int {
	isUnlimited := u.Limit == rollout.Unlimited
	if isUnlimited || u.free < 0 {
		return u.free
	}
	return u.free + u.candidates.occupying
}

func (u batchUpdater) updateMemory() {
	u.resume()
	if u.Reset && u.isComplete && !u.Memory.IsBlank() {
		u.memory = u.memory.WithoutBatches(u.ledger.Epoch)
		return
	}
	if u.updateFor() {
		return
	}
	wasStopped := u.memory.Stopped
	if u.usesBatches() {
		u.updateBatch()
	} else {
		u.updateFailures()
	}
	if u.memory.Stopped && !wasStopped {
		u.memory.For = u.memory.For.Restrict(u.failedOf)
	}
	u.stopByGate()
}

// stopByGate stops the group if a health gate is false that stops it, while targets are in flight or could start.
func (u batchUpdater) stopByGate() {
	isClosed := u.Frozen != nil && u.Frozen.Reason != rollout.ReasonHealthGate
	isChecked := u.inFlight > 0 || u.candidates.total > 0 && !isClosed && u.mayBeginAny()
	if u.Failed != nil && isChecked && !u.memory.Stopped {
		u.memory.Stopped, u.memory.StoppedBy = true, rollout.Shorten(u.Failed.Text)
	}
}

// updateFailures stops a group without batches that has too many failures.
func (u batchUpdater) updateFailures() {
	if !u.memory.Stopped {
		u.memory.ConsecutiveFailures = u.Lost
	}
	outcome := rollout.Memory{Completed: u.Finished, Failed: u.Failures, ConsecutiveFailures: u.Lost}
	if u.Pace.IsStoppedBy(outcome, u.Total) {
		u.memory.Stopped = true
	}
}

// updateBatch begins the first batch, and ends the open one when all its outcomes are final and no target may join it.
func (u batchUpdater) updateBatch() {
	if u.admissible() > 0 {
		u.memory = u.memory.WithBatch(u.ledger.Epoch)
	}
	isOpen := u.Memory.From > 0 && u.Members > 0
	isAllAdmitted := u.Members >= u.memory.Open || u.admissible() == 0
	if isOpen && u.Pending == 0 && isAllAdmitted {
		u.memory = u.memory.AfterBatch(u.Pace, u.Tally, u.ledger.Epoch)
		u.Members = 0
	}
}

// resume lets a stopped group continue if Resume has a new value.
func (u batchUpdater) resume() {
	isNew := u.Resume != "" && u.Resume != u.memory.Resumed
	isUsed := u.memory.Stopped || u.candidates.total > 0
	if isNew && isUsed {
		u.memory = u.memory.Continued()
		u.memory.Resumed = u.Resume
	}
}

// updateFor updates the memory if something else is rolled out now, and reports whether the memory is up to date with
// that. Batches begin anew when the open one has ended; until then no target joins it. A group that keeps its memory
// only forgets that it stopped. While it is unknown what is rolled out, nothing else is.
func (u batchUpdater) updateFor() bool {
	m := &u.memory
	if u.For == m.For || u.For == "" {
		return false
	}
	isFirst := m.For == ""
	if isFirst {
		if u.candidates.total > 0 {
			m.For = u.For
		}
		return false
	}
	isOfEarlierOperator := u.For.HasIDs() && !m.For.HasIDs()
	if isOfEarlierOperator || !m.For.IsReplaced(u.For, m.Stopped) {
		if isOfEarlierOperator || !m.Stopped {
			m.For = u.For
		}
		return false
	}
	if !u.Reset {
		*m = m.Continued()
		m.For = u.For
		return false
	}
	isBatchOpen := u.Members > 0 && u.Pending > 0
	if isBatchOpen && u.usesBatches() {
		m.Open = u.Members
		return true
	}
	m.For = u.For
	*m, u.Members = m.WithoutBatches(u.ledger.Epoch), 0
	return true
}

// hasUnsavedMemory reports whether the memory must be stored before targets are admitted.
func (g *groupState) hasUnsavedMemory() bool { return g.memory != g.Memory }
