// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import "slices"

// ledgerState is a ledger as the engine sees it.
type ledgerState struct {
	Ledger
	unseen    []Seat // written and not yet seen on their nodes
	added     []Seat // by this plan
	mustWrite bool
}

func (p *planner) addLedgers() {
	p.ledgers = make([]ledgerState, len(p.Ledgers), len(p.Ledgers)+len(p.Groups))
	for i := range p.Ledgers {
		p.ledgers[i].Ledger = p.Ledgers[i]
	}
}

// findLedger finds a ledger, or begins one that nobody wrote yet.
func (p *planner) findLedger(owner Ref) *ledgerState {
	for i := range p.ledgers {
		if p.ledgers[i].Owner == owner {
			return &p.ledgers[i]
		}
	}
	p.ledgers = append(p.ledgers, ledgerState{Ledger: Ledger{Owner: owner}})
	return &p.ledgers[len(p.ledgers)-1]
}

// countReservations counts the seats that are written and not yet seen on their nodes.
func (p *planner) countReservations(b *ledgerState) {
	for _, s := range b.Admitting {
		until := s.Since.Add(SeatTerm)
		if !p.Now.Before(until) {
			continue
		}
		t := p.findTarget(s.Rollout, s.Node)
		if t == nil && p.isObsolete(s) || t != nil && t.hasSeen(s) {
			continue
		}
		p.requestNext(until)
		b.unseen = append(b.unseen, s)
		if n := p.byName[s.Node]; n != nil {
			n.isReserved = true
		}
		if q := p.findRollout(s.Rollout); q != nil {
			q.nextOrder = max(q.nextOrder, s.Order+1)
		}
		g := p.findGroup(s.Group)
		if t != nil && t.group == g && t.hasWork {
			t.isReserved, t.reservedOrder = !g.usesBatches() || s.Batch >= g.Memory.From, s.Order
		}
		if g != nil {
			g.addBusy(s.Node)
			if s.Batch >= g.Memory.From {
				g.members++
				g.addPending(s.Node)
			}
			if t != nil {
				g.countInTopology(t)
			}
		}
	}
}

// hasSeen says that an admission is seen on its node, or that the node is another one now.
func (t *targetState) hasSeen(s Seat) bool {
	return !t.exists || t.target.Admitted || t.target.Batch >= s.Batch && (t.target.BatchOf.IsZero() || t.target.BatchOf == s.Group)
}

// isObsolete says that an admission has come and gone, or can never come: nobody is admitted on a node that does not exist,
// and a rollout that is deleted loses a target only when its node was written to since.
func (p *planner) isObsolete(s Seat) bool {
	q := p.findRollout(s.Rollout)
	return p.byName[s.Node] == nil || q != nil && q.Deleting
}

func (p *planner) findTarget(rollout Ref, node string) *targetState {
	n := p.byName[node]
	if n == nil {
		return nil
	}
	for t := n.firstTarget; t != nil; t = t.nextOnNode {
		if t.rollout.Ref == rollout {
			return t
		}
	}
	return nil
}

// nextVersion is the ledger as it should be written: the seats that were not seen yet, and the new ones.
func (b *ledgerState) nextVersion() Ledger {
	l := Ledger{Owner: b.Owner, Epoch: b.Epoch + 1}
	for _, s := range b.unseen {
		again := slices.ContainsFunc(b.added, func(n Seat) bool { return n.Rollout == s.Rollout && n.Node == s.Node })
		if !again {
			l.Admitting = append(l.Admitting, s)
		}
	}
	l.Admitting = append(l.Admitting, b.added...)
	return l
}
