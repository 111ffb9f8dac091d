// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"math"
	"slices"
	"strconv"
)

// admit lets more targets begin: it learns from the batches that ended, asks the paces for the next size, cuts that by
// the budgets, and gives the seats to who is first in the total order.
func (f *fleet) admit() {
	for i := range f.pools {
		f.pools[i].openDoors(f)
	}
	for i := range f.queues {
		f.admitFrom(&f.queues[i])
	}
}

func (f *fleet) admitFrom(q *queue) {
	left := q.left()
	for _, p := range q.inTurn() {
		why := f.refuses(p)
		if why == nil && left <= 0 && !p.underWay() {
			full := q.says(ReasonBudget)
			why = &full
		}
		if why != nil {
			p.verdict = Verdict{Phase: PhaseWaiting, Why: *why}
			continue
		}
		if !p.underWay() {
			left--
		}
		f.admitOne(p)
	}
}

// left is how many more targets a rollout may have in flight, whatever its groups allow.
func (q *queue) left() int {
	if q.Limit <= 0 {
		return endless
	}
	left := q.Limit
	for i := range q.posts {
		if p := &q.posts[i]; p.exists && (p.t.Admitted && (!p.ended || p.n.Sending) || p.underWay()) {
			left--
		}
	}
	return left
}

// underWay says that an admission is written in the ledger, or may be on its way to the node.
func (p *post) underWay() bool {
	return p.promised || p.n.Sending && !p.t.Admitted && p.owes
}

// inTurn are the candidates of a rollout, the next one first: whose seat is written already, then by class, then all
// others before the node that runs this operator, then by age of the node.
func (q *queue) inTurn() []*post {
	var out []*post
	for i := range q.posts {
		if p := &q.posts[i]; p.passes && !p.t.Admitted {
			out = append(out, p)
		}
	}
	turn := func(a, b *post) int {
		return cmp.Or(-compareBool(a.promised, b.promised), cmp.Compare(a.t.Class, b.t.Class),
			compareBool(a.n.Self, b.n.Self), cmp.Compare(a.n.rank, b.n.rank))
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

// refuses says why a candidate is not admitted now; nil when it is.
func (f *fleet) refuses(p *post) *Why {
	g := p.g
	if p.n.occupant != nil { // another rollout was admitted here just now
		why := p.n.occupant.q.says(ReasonOccupied)
		return &why
	}
	switch {
	case g.Frozen != nil:
		return g.Frozen
	case g.memory.Stopped && !p.q.Deleting:
		return g.stopped()
	case g.unsaved():
		return g.saving()
	case p.n.Sending && g.book != nil && !p.promised:
		return g.once(ReasonOccupied, "sending", func() string { return "something is being written to the node" })
	case p.promised && g.overfull():
		return g.full()
	case !p.promised && g.room <= 0:
		return g.full()
	case g.crowded(p):
		return g.crowd(p)
	case !p.promised && g.book != nil && len(g.book.open)+len(g.book.added) >= MaxAdmitting:
		return g.once(ReasonLedger, "full", func() string {
			return "the " + strconv.Itoa(MaxAdmitting) + " admissions under way come first"
		})
	}
	return nil
}

// admitOne gives a candidate its seat and lets it begin.
func (f *fleet) admitOne(p *post) {
	g := p.g
	a := f.act(p, VerbAdmit, Why{Reason: ReasonOwed, Text: "it owes work and a seat is free"})
	a.Ledger, a.Order, a.Group = p.fence(), p.q.next, g.Ref
	if p.promised && p.order >= p.q.NextOrder { // somebody else may be writing it to the node at this moment
		a.Order = p.order
	}
	if g.book != nil && !p.n.Sending {
		a.Batch = g.book.Epoch + 1
		g.book.added = append(g.book.added, Seat{Rollout: p.q.Ref, Node: p.t.Node, Group: g.Ref, Order: a.Order, Batch: a.Batch, Since: f.Now})
	}
	if !p.n.Sending { // it has its order already
		p.q.given = max(p.q.given, a.Order+1)
		p.q.next = max(p.q.next, p.q.given)
	}
	p.admits, p.n.occupant = true, p
	if !p.promised {
		g.room--
		g.members++
		g.take(p.t.Node)
		g.isUndone(p.t.Node)
		g.settleIn(p)
	}
	b := f.layOut(p)
	clear(b.tries) // failures are counted anew
	b.findDead()
	f.start(b)
	p.verdict = b.verdict
}

// fence is the ledger that must have been written before the target may take anything.
func (p *post) fence() Ref {
	if p.g.book == nil {
		return Ref{}
	}
	p.g.book.write = p.g.book.write || !p.n.Sending
	return p.g.book.Owner
}

// mayHold says whether a target may cordon its node now. It may, unless its group is over its limit: the limit was
// lowered, nodes failed by themselves, or a target that had given its seat away goes on. Then those that hold their
// node already come first, and after them whoever was admitted first.
func (f *fleet) mayHold(p *post) (Why, bool) {
	g := p.g
	if g.Limit == Unlimited {
		return Why{}, true
	}
	if !p.seated() && !p.admits {
		if len(g.busy) >= g.Limit {
			return *g.full(), false
		}
		g.take(p.t.Node)
		g.room--
		return Why{}, true
	}
	if len(g.busy) <= g.Limit {
		return Why{}, true
	}
	free := g.Limit - (len(g.busy) - len(g.waitForHold))
	if g.away[p.t.Node] { // its node counts as disrupted already
		if free >= 0 {
			return Why{}, true
		}
	} else if free > 0 && slices.Contains(g.waitForHold[:min(free, len(g.waitForHold))], p) {
		return Why{}, true
	}
	return *g.full(), false
}

// room without end.
const endless = math.MaxInt
