// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// ledgerState is a ledger, and what this plan adds to it.
type ledgerState struct {
	rollout.Ledger
	unseen    []rollout.Reservation // written and not observed on their nodes yet
	added     []rollout.Reservation // by this plan
	mustWrite bool
}

// isFull reports whether as many admissions are under way as a ledger may list.
func (l *ledgerState) isFull() bool { return len(l.unseen)+len(l.added) >= rollout.MaxAdmitting }

// requireLedgerWrite returns the ledger that must be written before the target is admitted or held, and has this plan
// write it.
func (t *targetState) requireLedgerWrite() rollout.Ref {
	l := t.group.ledger
	if l == nil {
		return rollout.Ref{}
	}
	if !t.node.Sending {
		l.mustWrite = true
	}
	return l.Owner
}

// nextVersion returns the ledger as it should be written: the admissions that are not observed yet, and the new ones.
func (l *ledgerState) nextVersion() rollout.Ledger {
	unseen := slices.DeleteFunc(slices.Clone(l.unseen), l.isAdded)
	for i := range unseen {
		unseen[i].Observed = time.Time{} // by this process, which nobody else knows
	}
	return rollout.Ledger{Owner: l.Owner, Epoch: l.Epoch + 1, Admitting: append(unseen, l.added...)}
}

// isAdded reports whether this plan adds an admission of the same target.
func (l *ledgerState) isAdded(s rollout.Reservation) bool {
	return slices.ContainsFunc(l.added, func(a rollout.Reservation) bool { return a.Rollout == s.Rollout && a.Node == s.Node })
}
