// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"slices"
)

// groupState is a group as the engine sees it.
type groupState struct {
	*Group
	tally
	ledger       *ledgerState
	memory       Memory // as it should be stored
	candidates   int
	deletions    int             // candidates whose rollout is deleted: they begin though the group stopped
	free         int             // how many more may be admitted
	busy         []string        // nodes that take a seat
	unavailable  map[string]bool // of those, the ones nobody of us put there
	taken        map[string]int  // the same, by name
	failedSeats  []string        // of those, the ones that failed for good
	waitForHold  []*targetState  // seated and not holding their node, nor about to, in the order of their admission
	pendingNames []string        // a few members of the open batch whose outcome is not final
	failedNames  []string        // a few targets that failed for good
	proving      *targetState    // the first target that is finished and does not count yet
	places       map[string]int  // busy nodes by rack or zone
	placed       map[string]bool // nodes counted there
	waitReasons  map[string]*Why
}

func (p *planner) addGroups() {
	groups := slices.Clone(p.Groups)
	p.groups = make([]groupState, len(groups))
	for i := range groups {
		g := &p.groups[i]
		g.Group, g.memory = &groups[i], groups[i].Memory
		if g.Frozen != nil {
			why := withDefaultReason(g.Frozen, ReasonPaused)
			g.Frozen = &why
		}
		if !g.Ledger.IsZero() {
			g.ledger = p.findLedger(g.Ledger)
		}
	}
}

// findGroup finds a group; of two of one name the first counts.
func (p *planner) findGroup(ref GroupRef) *groupState {
	for i := range p.groups {
		if p.groups[i].Ref == ref {
			return &p.groups[i]
		}
	}
	return nil
}

// usesBatches says that the group works in batches. That needs a ledger, which numbers them.
func (g *groupState) usesBatches() bool { return g.Pace.usesBatches() && g.ledger != nil }

// keepsMemory says that the group learns anything.
func (g *groupState) keepsMemory() bool {
	return g.usesBatches() || g.Pace.StopAfter > 0 && g.ledger != nil
}

// countBusyNodes counts, for each group, who takes its seats and how its targets stand.
func (p *planner) countBusyNodes() {
	for i := range p.groups {
		g := &p.groups[i]
		for _, name := range g.Taken {
			if g.unavailable == nil {
				g.unavailable = map[string]bool{}
			}
			g.unavailable[name] = true
			g.addBusy(name)
		}
	}
	for i := range p.targets {
		switch t := &p.targets[i]; {
		case !t.exists:
		case t.invalid == nil:
			t.group.countTarget(t)
		case t.target.Admitted: // it makes no sense any more, and has its seat all the same
			t.group.addBusy(t.target.Node)
			t.group.countInTopology(t)
		}
	}
	for i := range p.ledgers {
		p.countReservations(&p.ledgers[i])
	}
	for i := range p.groups {
		g := &p.groups[i]
		slices.SortStableFunc(g.waitForHold, func(a, b *targetState) int {
			return cmp.Or(a.target.AdmittedAt.Compare(b.target.AdmittedAt), cmp.Compare(a.target.Order, b.target.Order),
				a.rollout.Ref.Compare(b.rollout.Ref), cmp.Compare(a.node.rank, b.node.rank))
		})
	}
}

// addBusy notes that a node takes a seat; a node takes one however often it is named.
func (g *groupState) addBusy(node string) {
	if g.taken == nil {
		g.taken = map[string]int{}
	}
	if g.taken[node]++; g.taken[node] == 1 {
		g.busy = append(g.busy, node)
	}
}

func (g *groupState) countTarget(t *targetState) {
	if t.takesSeat() {
		g.addBusy(t.target.Node)
		g.countInTopology(t)
		if t.hasFailed {
			g.failedSeats = append(g.failedSeats, t.target.Node)
		}
		if t.target.Admitted && !t.isHeld && !t.node.Sending && !g.unavailable[t.target.Node] { // a hold may be on its way to the node that is written to
			g.waitForHold = append(g.waitForHold, t)
		}
	} else if g.taken[t.target.Node] > 0 {
		g.countInTopology(t)
	}
	if t.target.Leaving {
		if t.target.Admitted && g.isMember(t) {
			g.members++ // it keeps its place until it is gone
		}
		return
	}
	g.total++
	switch {
	case t.hasFailed && t.hasWork:
		g.failed++
		if len(g.failedNames) < 3 {
			g.failedNames = append(g.failedNames, t.target.Node)
		}
	case !t.hasWork && !t.target.Admitted && !t.isUnproven():
		g.finished++
	}
	if g.isMember(t) {
		g.members++
		switch {
		case t.hasFailed && t.hasWork:
			g.lost++
		case !t.hasWork && !t.target.Admitted && !t.isUnproven():
			g.passed++
		case t.target.Blocked != nil || t.rollout.isBypassed():
			// it may take any time: the batch does not wait for it
		default:
			g.addPending(t.target.Node)
			if g.proving == nil && !t.hasWork && !t.target.Admitted {
				g.proving = t
			}
		}
	}
}

func (g *groupState) addPending(node string) {
	g.pending++
	if len(g.pendingNames) < 3 {
		g.pendingNames = append(g.pendingNames, node)
	}
}

// isMember says that a target was admitted with the open batch. One that is in flight and does not say since when
// counts as a member: a predecessor admitted it.
func (g *groupState) isMember(t *targetState) bool {
	switch {
	case t.target.Admitted && (t.target.Batch == 0 || g.Memory.From == 0 && g.usesBatches()):
		return true
	case !g.isOfOpenBatch(t):
		return false
	}
	return t.target.Admitted || !t.hasWork || t.target.Skipped
}

// isOfOpenBatch says that the latest admission of a target was one of the open batch. Numbers that come from elsewhere are
// not mistaken for ours: of another group, or of a ledger that was lost meanwhile.
func (g *groupState) isOfOpenBatch(t *targetState) bool {
	known := g.ledger != nil && t.target.Batch <= g.ledger.Epoch && (t.target.BatchOf.IsZero() || t.target.BatchOf == g.Ref)
	return known && t.target.Batch >= max(1, g.Memory.From)
}

// countInTopology counts a busy node for its rack or zone.
func (g *groupState) countInTopology(t *targetState) {
	if g.Spread.Limit <= 0 || t.target.Place == "" || g.placed[t.target.Node] {
		return
	}
	if g.places == nil {
		g.places, g.placed = map[string]int{}, map[string]bool{}
	}
	g.places[t.target.Place]++
	g.placed[t.target.Node] = true
}

func (g *groupState) isTopologyFull(t *targetState) bool {
	busy := g.places[t.target.Place]
	if t.isReserved { // it is counted already
		busy--
	}
	return g.Spread.Limit > 0 && t.target.Place != "" && busy >= g.Spread.Limit
}

// updateBatch learns from the batch that ended and finds out how many may be admitted.
func (g *groupState) updateBatch(p *planner) {
	if g.keepsMemory() {
		g.updateMemory()
	}
	free := unlimited
	if g.Limit != Unlimited {
		free = g.Limit - len(g.busy)
	}
	g.free = free
	if g.usesBatches() {
		if g.members == 0 && g.candidates > 0 && free > 0 && (!g.memory.Stopped || g.deletions > 0) {
			g.memory.Open = max(g.memory.Open, g.nextSize(free)) // nobody has begun yet: it may still grow
		}
		g.free = min(free, g.memory.Open-g.members)
	}
	if g.Frozen != nil && g.candidates > 0 {
		p.requestNext(g.Until)
	}
}

// nextSize is what the next batch is planned for: what the strategy asks for, and no more than what is free.
func (g *groupState) nextSize(free int) int {
	size := g.Pace.nextSize(g.memory, g.total)
	if size == 0 || size > free {
		size = free
	}
	return min(size, max(1, g.total))
}

// updateMemory brings the memory up to date.
func (g *groupState) updateMemory() {
	epoch := g.ledger.Epoch
	g.resumeStopped()
	if g.Reset && g.total > 0 && g.finished == g.total && !g.Memory.isBlank() {
		g.memory = g.memory.reset(epoch)
		return
	}
	if g.onTargetChanged(epoch) {
		return
	}
	if !g.usesBatches() {
		if !g.memory.Stopped {
			g.memory.ConsecutiveFailures = g.lost
		}
		if m := (Memory{Completed: g.finished, Failed: g.failed, ConsecutiveFailures: g.lost}); g.Pace.isStoppedBy(m, g.total) {
			g.memory.Stopped = true
		}
		return
	}
	if g.candidates > 0 {
		g.memory = g.memory.withBatch(epoch)
	}
	if g.Memory.From > 0 && g.members > 0 && g.pending == 0 && (g.members >= g.memory.Open || g.candidates == 0) {
		g.memory = g.memory.afterBatch(g.Pace, g.tally, epoch)
		g.members = 0
	}
}

// resumeStopped lets a group that stopped go on, when somebody asked for that since it was asked for last.
func (g *groupState) resumeStopped() {
	if g.Resume == "" || g.Resume == g.memory.Resumed || !g.memory.Stopped && g.candidates == 0 {
		return
	}
	g.memory.Resumed, g.memory.Stopped, g.memory.ConsecutiveFailures = g.Resume, false, 0
}

// onTargetChanged takes notice that something else is rolled out now; true when there is no more to learn. Batches begin anew, once
// the one that is open has ended: until then it takes nobody else in. Where Memory is kept, only a stop is forgotten.
func (g *groupState) onTargetChanged(epoch int64) bool {
	m := &g.memory
	switch {
	case g.For == m.For:
		return false
	case m.For == "": // nobody said yet what it was for
		if g.candidates > 0 {
			m.For = g.For
		}
		return false
	case !g.Reset:
		m.For, m.Stopped, m.ConsecutiveFailures = g.For, false, 0
		return false
	case g.usesBatches() && g.members > 0 && g.pending > 0:
		m.Open = g.members
		return true
	}
	m.For = g.For
	*m, g.members = m.reset(epoch), 0
	return true
}

// hasUnsavedMemory says that what the group learned has to be stored before anybody is admitted.
func (g *groupState) hasUnsavedMemory() bool { return g.memory != g.Memory }

// isOverLimit says that there are fewer seats than nodes on them.
func (g *groupState) isOverLimit() bool { return g.Limit != Unlimited && len(g.busy) > g.Limit }
