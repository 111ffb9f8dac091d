// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// isAwaitingPreflight reports whether a target is not to be admitted before it is known how much of its work the node needs. One that
// joins others on a node cannot be looked at.
func (t *targetState) isAwaitingPreflight(now time.Time) bool {
	c := t.target.Check
	return c != nil && c.Before && !now.Before(c.Due) && !t.isBeginning() && !t.joins()
}

// checkPreflight stops candidates whose node has not been looked at a moment ago, or must not be worked on.
func checkPreflight(t *targetState) *rollout.Why {
	switch c := t.target.Check; {
	case t.isAwaitingPreflight(t.group.now):
		return &rollout.Why{Reason: rollout.ReasonPreflight, Text: "it is looked first what the node needs"}
	case c != nil && c.Refused != nil && !t.isBeginning():
		return c.Refused
	}
	return nil
}

// awaitsAnswer reports whether the node of a candidate is to be looked at now: when nothing is known of it, or when it may be admitted
// but for that, and the answer is of another time. One that is against it is renewed.
func (t *targetState) awaitsAnswer(now time.Time) bool {
	if !t.passesGates || t.target.Visit.Admitted || t.isAdmittedNow || !t.isAwaitingPreflight(now) {
		return false
	}
	return t.target.Check.Due.IsZero() || t.target.Check.Refused != nil || t.verdict.Why.Reason == rollout.ReasonPreflight
}
