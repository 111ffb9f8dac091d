// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"slices"
	"time"
)

// ledgerState is a ledger, and what this plan adds to it.
type ledgerState struct {
	Ledger
	unseen    []Reservation // written and not observed on their nodes yet
	added     []Reservation // by this plan
	mustWrite bool
}

// isFull reports whether as many admissions are under way as a ledger may list.
func (l *ledgerState) isFull() bool { return len(l.unseen)+len(l.added) >= MaxAdmitting }

// requireLedgerWrite returns the ledger that must be written before the target is admitted or held, and has this plan
// write it.
func (t *targetState) requireLedgerWrite() Ref {
	l := t.group.ledger
	if l == nil {
		return Ref{}
	}
	if !t.node.Sending {
		l.mustWrite = true
	}
	return l.Owner
}

// nextVersion returns the ledger as it should be written: the admissions that are not observed yet, and the new ones.
func (l *ledgerState) nextVersion() Ledger {
	unseen := slices.DeleteFunc(slices.Clone(l.unseen), l.isAdded)
	for i := range unseen {
		unseen[i].Observed = time.Time{} // by this process, which nobody else knows
	}
	return Ledger{Owner: l.Owner, Epoch: l.Epoch + 1, Admitting: append(unseen, l.added...)}
}

// isAdded reports whether this plan adds an admission of the same target.
func (l *ledgerState) isAdded(s Reservation) bool {
	return slices.ContainsFunc(l.added, func(a Reservation) bool { return a.Rollout == s.Rollout && a.Node == s.Node })
}
