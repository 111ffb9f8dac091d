// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"slices"
)

// pool is a group as the engine sees it.
type pool struct {
	*Group
	tally
	book        *book
	memory      Memory // as it should be stored
	candidates  int
	deletions   int             // candidates whose rollout is deleted: they begin though the group stopped
	room        int             // how many more may be admitted
	busy        []string        // nodes that take a seat
	away        map[string]bool // of those, the ones nobody of us put there
	taken       map[string]int  // the same, by name
	failedSeats []string        // of those, the ones that failed for good
	waitForHold []*post         // seated and not holding their node, nor about to, in the order of their admission
	undoneNames []string        // a few members of the open batch whose outcome is not final
	failedNames []string        // a few targets that failed for good
	proving     *post           // the first target that is finished and does not count yet
	places      map[string]int  // busy nodes by rack or zone
	placed      map[string]bool // nodes counted there
	whys        map[string]*Why
}

func (f *fleet) openPools() {
	groups := slices.Clone(f.Groups)
	f.pools = make([]pool, len(groups))
	for i := range groups {
		g := &f.pools[i]
		g.Group, g.memory = &groups[i], groups[i].Memory
		if g.Frozen != nil {
			why := because(g.Frozen, ReasonPaused)
			g.Frozen = &why
		}
		if !g.Ledger.IsZero() {
			g.book = f.book(g.Ledger)
		}
	}
}

// pool finds a group; of two of one name the first counts.
func (f *fleet) pool(ref GroupRef) *pool {
	for i := range f.pools {
		if f.pools[i].Ref == ref {
			return &f.pools[i]
		}
	}
	return nil
}

// inBatches says that the group works in batches. That needs a ledger, which numbers them.
func (g *pool) inBatches() bool { return g.Pace.batches() && g.book != nil }

// remembers says that the group learns anything.
func (g *pool) remembers() bool { return g.inBatches() || g.Pace.StopAfter > 0 && g.book != nil }

// countSeats counts, for each group, who takes its seats and how its targets stand.
func (f *fleet) countSeats() {
	for i := range f.pools {
		g := &f.pools[i]
		for _, name := range g.Taken {
			if g.away == nil {
				g.away = map[string]bool{}
			}
			g.away[name] = true
			g.take(name)
		}
	}
	for i := range f.posts {
		switch p := &f.posts[i]; {
		case !p.exists:
		case p.odd == nil:
			p.g.count(p)
		case p.t.Admitted: // it makes no sense any more, and has its seat all the same
			p.g.take(p.t.Node)
			p.g.settleIn(p)
		}
	}
	for i := range f.books {
		f.countPromises(&f.books[i])
	}
	for i := range f.pools {
		g := &f.pools[i]
		slices.SortStableFunc(g.waitForHold, func(a, b *post) int {
			return cmp.Or(a.t.AdmittedAt.Compare(b.t.AdmittedAt), cmp.Compare(a.t.Order, b.t.Order),
				a.q.Ref.Compare(b.q.Ref), cmp.Compare(a.n.rank, b.n.rank))
		})
	}
}

// take notes that a node takes a seat; a node takes one however often it is named.
func (g *pool) take(node string) {
	if g.taken == nil {
		g.taken = map[string]int{}
	}
	if g.taken[node]++; g.taken[node] == 1 {
		g.busy = append(g.busy, node)
	}
}

func (g *pool) count(p *post) {
	if p.seated() {
		g.take(p.t.Node)
		g.settleIn(p)
		if p.failed {
			g.failedSeats = append(g.failedSeats, p.t.Node)
		}
		if p.t.Admitted && !p.held && !p.n.Sending && !g.away[p.t.Node] { // a hold may be on its way to the node that is written to
			g.waitForHold = append(g.waitForHold, p)
		}
	} else if g.taken[p.t.Node] > 0 {
		g.settleIn(p)
	}
	if p.t.Leaving {
		if p.t.Admitted && g.isMember(p) {
			g.members++ // it keeps its place until it is gone
		}
		return
	}
	g.total++
	switch {
	case p.failed && p.owes:
		g.failed++
		if len(g.failedNames) < 3 {
			g.failedNames = append(g.failedNames, p.t.Node)
		}
	case !p.owes && !p.t.Admitted && !p.unproven():
		g.finished++
	}
	if g.isMember(p) {
		g.members++
		switch {
		case p.failed && p.owes:
			g.lost++
		case !p.owes && !p.t.Admitted && !p.unproven():
			g.passed++
		case p.t.Blocked != nil || p.q.stepsAside():
			// it may take any time: the batch does not wait for it
		default:
			g.isUndone(p.t.Node)
			if g.proving == nil && !p.owes && !p.t.Admitted {
				g.proving = p
			}
		}
	}
}

func (g *pool) isUndone(node string) {
	g.undone++
	if len(g.undoneNames) < 3 {
		g.undoneNames = append(g.undoneNames, node)
	}
}

// isMember says that a target was admitted with the open batch. One that is in flight and does not say since when
// counts as a member: a predecessor admitted it.
func (g *pool) isMember(p *post) bool {
	switch {
	case p.t.Admitted && (p.t.Batch == 0 || g.Memory.From == 0 && g.inBatches()):
		return true
	case !g.admitted(p):
		return false
	}
	return p.t.Admitted || !p.owes || p.t.Skipped
}

// admitted says that the latest admission of a target was one of the open batch. Numbers that come from elsewhere are
// not mistaken for ours: of another group, or of a ledger that was lost meanwhile.
func (g *pool) admitted(p *post) bool {
	known := g.book != nil && p.t.Batch <= g.book.Epoch && (p.t.BatchOf.IsZero() || p.t.BatchOf == g.Ref)
	return known && p.t.Batch >= max(1, g.Memory.From)
}

// settleIn counts a busy node for its rack or zone.
func (g *pool) settleIn(p *post) {
	if g.Spread.Limit <= 0 || p.t.Place == "" || g.placed[p.t.Node] {
		return
	}
	if g.places == nil {
		g.places, g.placed = map[string]int{}, map[string]bool{}
	}
	g.places[p.t.Place]++
	g.placed[p.t.Node] = true
}

func (g *pool) crowded(p *post) bool {
	busy := g.places[p.t.Place]
	if p.promised { // it is counted already
		busy--
	}
	return g.Spread.Limit > 0 && p.t.Place != "" && busy >= g.Spread.Limit
}

// openDoors learns from the batch that ended and finds out how many may be admitted.
func (g *pool) openDoors(f *fleet) {
	if g.remembers() {
		g.learn()
	}
	free := endless
	if g.Limit != Unlimited {
		free = g.Limit - len(g.busy)
	}
	g.room = free
	if g.inBatches() {
		if g.members == 0 && g.candidates > 0 && free > 0 && (!g.memory.Stopped || g.deletions > 0) {
			g.memory.Open = max(g.memory.Open, g.nextSize(free)) // nobody has begun yet: it may still grow
		}
		g.room = min(free, g.memory.Open-g.members)
	}
	if g.Frozen != nil && g.candidates > 0 {
		f.wake(g.Until)
	}
}

// nextSize is what the next batch is planned for: what the strategy asks for, and no more than what is free.
func (g *pool) nextSize(free int) int {
	size := g.Pace.size(g.memory, g.total)
	if size == 0 || size > free {
		size = free
	}
	return min(size, max(1, g.total))
}

// learn brings the memory up to date.
func (g *pool) learn() {
	epoch := g.book.Epoch
	g.resume()
	if g.Reset && g.total > 0 && g.finished == g.total && !g.Memory.blank() {
		g.memory = g.memory.anew(epoch)
		return
	}
	if g.turns(epoch) {
		return
	}
	if !g.inBatches() {
		if !g.memory.Stopped {
			g.memory.ConsecutiveFailures = g.lost
		}
		if m := (Memory{Completed: g.finished, Failed: g.failed, ConsecutiveFailures: g.lost}); g.Pace.stops(m, g.total) {
			g.memory.Stopped = true
		}
		return
	}
	if g.candidates > 0 {
		g.memory = g.memory.begun(epoch)
	}
	if g.Memory.From > 0 && g.members > 0 && g.undone == 0 && (g.members >= g.memory.Open || g.candidates == 0) {
		g.memory = g.memory.after(g.Pace, g.tally, epoch)
		g.members = 0
	}
}

// resume lets a group that stopped go on, when somebody asked for that since it was asked for last.
func (g *pool) resume() {
	if g.Resume == "" || g.Resume == g.memory.Resumed || !g.memory.Stopped && g.candidates == 0 {
		return
	}
	g.memory.Resumed, g.memory.Stopped, g.memory.ConsecutiveFailures = g.Resume, false, 0
}

// turns takes notice that something else is rolled out now; true when there is no more to learn. Batches begin anew, once
// the one that is open has ended: until then it takes nobody else in. Where Memory is kept, only a stop is forgotten.
func (g *pool) turns(epoch int64) bool {
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
	case g.inBatches() && g.members > 0 && g.undone > 0:
		m.Open = g.members
		return true
	}
	m.For = g.For
	*m, g.members = m.anew(epoch), 0
	return true
}

// unsaved says that what the group learned has to be stored before anybody is admitted.
func (g *pool) unsaved() bool { return g.memory != g.Memory }

// overfull says that there are fewer seats than nodes on them.
func (g *pool) overfull() bool { return g.Limit != Unlimited && len(g.busy) > g.Limit }
