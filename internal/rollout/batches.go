// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

// batchUpdater updates the memory of a group from the outcomes of its targets, and finds out how many targets may be
// admitted.
type batchUpdater struct{ *groupState }

// markComplete finds out which groups are complete. Compartments with one ledger are complete together, so that their
// batches begin again together.
func (p *planner) markComplete() {
	totals := make(map[*ledgerState]tally, len(p.ledgers))
	for i := range p.groups {
		g := &p.groups[i]
		all := totals[g.ledger]
		all.total += g.total
		all.finished += g.finished
		totals[g.ledger] = all
	}
	for i := range p.groups {
		g := &p.groups[i]
		all := totals[g.ledger]
		g.isComplete = g.ledger != nil && all.total > 0 && all.finished == all.total
	}
}

func (u batchUpdater) update(plan *draftPlan) {
	if u.usesMemory() {
		u.updateMemory()
	}
	u.memory.Gone += u.goneNow
	u.free = unlimited
	if u.Limit != Unlimited {
		u.free = u.Limit - len(u.usage.busy)
	}
	if u.usesBatches() {
		u.planBatch()
		u.free = min(u.free, u.memory.Open-u.members)
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
	if u.members > 0 || !hasCandidates {
		return
	}
	size := u.Pace.nextSize(u.memory, u.total)
	if size == 0 {
		size = slots
	}
	size = min(size, slots, max(1, u.total))
	u.memory.Open = max(u.memory.Open, size)
}

// admissibleCount returns how many candidates the limit allows: those for which a slot is free, and those whose node is
// not given back unless the group is over its limit.
func (u batchUpdater) admissibleCount() int {
	isUnlimited := u.Limit == Unlimited
	if isUnlimited || u.free < 0 {
		return u.free
	}
	return u.free + u.candidates.occupying
}

func (u batchUpdater) updateMemory() {
	u.resume()
	if u.Reset && u.isComplete && !u.Memory.isBlank() {
		u.memory = u.memory.reset(u.ledger.Epoch)
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
		u.memory.For = u.memory.For.restrict(u.failedOf)
	}
	u.stopByGate()
}

// stopByGate stops the group if a health gate is false that stops it, while targets are in flight or could start.
func (u batchUpdater) stopByGate() {
	isClosed := u.Frozen != nil && u.Frozen.Reason != ReasonHealthGate
	isChecked := u.inFlight > 0 || u.candidates.total > 0 && !isClosed && u.mayBeginAny()
	if u.Failed != nil && isChecked && !u.memory.Stopped {
		u.memory.Stopped, u.memory.StoppedBy = true, truncate(u.Failed.Text)
	}
}

// updateFailures stops a group without batches that has too many failures.
func (u batchUpdater) updateFailures() {
	if !u.memory.Stopped {
		u.memory.ConsecutiveFailures = u.lost
	}
	outcome := Memory{Completed: u.finished, Failed: u.failed, ConsecutiveFailures: u.lost}
	if u.Pace.isStoppedBy(outcome, u.total) {
		u.memory.Stopped = true
	}
}

// updateBatch begins the first batch, and ends the open one when all its outcomes are final and no target may join it.
func (u batchUpdater) updateBatch() {
	if u.admissible() > 0 {
		u.memory = u.memory.withBatch(u.ledger.Epoch)
	}
	isOpen := u.Memory.From > 0 && u.members > 0
	isAllAdmitted := u.members >= u.memory.Open || u.admissible() == 0
	if isOpen && u.pending == 0 && isAllAdmitted {
		u.memory = u.memory.afterBatch(u.Pace, u.tally, u.ledger.Epoch)
		u.members = 0
	}
}

// resume lets a stopped group continue if Resume has a new value.
func (u batchUpdater) resume() {
	isNew := u.Resume != "" && u.Resume != u.memory.Resumed
	isUsed := u.memory.Stopped || u.candidates.total > 0
	if isNew && isUsed {
		u.memory = u.memory.resumed()
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
	isOfEarlierOperator := u.For.hasIDs() && !m.For.hasIDs()
	if isOfEarlierOperator || !m.For.isReplaced(u.For, m.Stopped) {
		if isOfEarlierOperator || !m.Stopped {
			m.For = u.For
		}
		return false
	}
	if !u.Reset {
		*m = m.resumed()
		m.For = u.For
		return false
	}
	isBatchOpen := u.members > 0 && u.pending > 0
	if isBatchOpen && u.usesBatches() {
		m.Open = u.members
		return true
	}
	m.For = u.For
	*m, u.members = m.reset(u.ledger.Epoch), 0
	return true
}

// hasUnsavedMemory reports whether the memory must be stored before targets are admitted.
func (g *groupState) hasUnsavedMemory() bool { return g.memory != g.Memory }
