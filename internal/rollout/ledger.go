// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import "slices"

// book is a ledger as the engine sees it.
type book struct {
	Ledger
	open  []Seat // written and not yet seen on their nodes
	added []Seat // by this plan
	write bool
}

func (f *fleet) openBooks() {
	f.books = make([]book, len(f.Ledgers), len(f.Ledgers)+len(f.Groups))
	for i := range f.Ledgers {
		f.books[i].Ledger = f.Ledgers[i]
	}
}

// book finds a ledger, or begins one that nobody wrote yet.
func (f *fleet) book(owner Ref) *book {
	for i := range f.books {
		if f.books[i].Owner == owner {
			return &f.books[i]
		}
	}
	f.books = append(f.books, book{Ledger: Ledger{Owner: owner}})
	return &f.books[len(f.books)-1]
}

// countPromises counts the seats that are written and not yet seen on their nodes.
func (f *fleet) countPromises(b *book) {
	for _, s := range b.Admitting {
		until := s.Since.Add(SeatTerm)
		if !f.Now.Before(until) {
			continue
		}
		p := f.target(s.Rollout, s.Node)
		if p == nil && f.wiped(s) || p != nil && p.saw(s) {
			continue
		}
		f.wake(until)
		b.open = append(b.open, s)
		if q := f.queue(s.Rollout); q != nil {
			q.next = max(q.next, s.Order+1)
		}
		g := f.pool(s.Group)
		if p != nil && p.g == g && p.owes {
			p.promised, p.order = !g.inBatches() || s.Batch >= g.Memory.From, s.Order
		}
		if g != nil {
			g.take(s.Node)
			if s.Batch >= g.Memory.From {
				g.members++
				g.isUndone(s.Node)
			}
			if p != nil {
				g.settleIn(p)
			}
		}
	}
}

// saw says that an admission is seen on its node, or that the node is another one now.
func (p *post) saw(s Seat) bool {
	return !p.exists || p.t.Admitted || p.t.Batch >= s.Batch && (p.t.BatchOf.IsZero() || p.t.BatchOf == s.Group)
}

// wiped says that an admission has come and gone, or can never come: nobody is admitted on a node that does not exist,
// and a rollout that is deleted loses a target only when its node was written to since.
func (f *fleet) wiped(s Seat) bool {
	q := f.queue(s.Rollout)
	return f.byName[s.Node] == nil || q != nil && q.Deleting
}

func (f *fleet) target(rollout Ref, node string) *post {
	n := f.byName[node]
	if n == nil {
		return nil
	}
	for p := n.first; p != nil; p = p.next {
		if p.q.Ref == rollout {
			return p
		}
	}
	return nil
}

// next is the ledger as it should be written: the seats that were not seen yet, and the new ones.
func (b *book) next() Ledger {
	l := Ledger{Owner: b.Owner, Epoch: b.Epoch + 1}
	for _, s := range b.open {
		again := slices.ContainsFunc(b.added, func(n Seat) bool { return n.Rollout == s.Rollout && n.Node == s.Node })
		if !again {
			l.Admitting = append(l.Admitting, s)
		}
	}
	l.Admitting = append(l.Admitting, b.added...)
	return l
}
