// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// A reason that goes and comes again is told again after tellAgain; one that stays is told once.
const waitRepeatAfter = 10 * time.Minute

// waitHistory remembers which reasons to wait were told, so that each is told when it is new. It is only about words: an
// operator that has just begun tells them once more.
type waitHistory map[waitKey]time.Time // when it was there last

// waitKey is one reason of one rollout, on the rollout as a whole or on one node in flight.
type waitKey struct {
	rollout rollout.Ref
	node    string
	reason  rollout.Reason
	about   string
}

// waitEvent is an event on a rollout's object, or on a node.
type waitEvent struct {
	node, eventType string
	reason          rollout.Reason
	text            string
}

// needsAttention are the phases that ask for somebody's attention.
var needsAttention = map[rollout.Phase]bool{rollout.PhaseBlocked: true, rollout.PhaseFailing: true, rollout.PhaseFailed: true}

// newEvents are the events for what a rollout waits for now and did not before: one for each reason and the object it is
// about, of the first node that has it, and one on each node in flight. Words that differ in numbers only are not new.
func (w waitHistory) newEvents(r *rollout.Rollout, report rollout.Report, now time.Time) []waitEvent {
	name := r.Ref.Name
	var out []waitEvent
	type group struct {
		first rollout.Verdict
		nodes int
	}
	groups, order := map[waitKey]*group{}, []waitKey{}
	verdicts := report.Verdicts
	if r.Broken != nil && len(verdicts) == 0 {
		verdicts = []rollout.Verdict{{Phase: rollout.PhaseBlocked, Why: *r.Broken}}
	}
	for _, v := range verdicts {
		if !v.Why.Reason.Waits() || v.Why.Reason.Fleeting() {
			continue
		}
		key := waitKey{rollout: r.Ref, reason: v.Why.Reason}
		if v.Phase == rollout.PhaseInFlight || v.Phase == rollout.PhaseFailing || v.Phase == rollout.PhaseFailed {
			onNode := waitKey{r.Ref, v.Node, v.Why.Reason, v.Why.About}
			if w.markSeen(onNode, now) {
				out = append(out, waitEvent{v.Node, eventType(v), v.Why.Reason, r.Ref.Title() + ": " + v.Sentence(name)})
			}
		} else {
			key.about = v.Why.About
		}
		if groups[key] == nil {
			groups[key] = &group{first: v}
			order = append(order, key)
		}
		groups[key].nodes++
	}
	for _, key := range order {
		if !w.markSeen(key, now) {
			continue
		}
		g := groups[key]
		text := g.first.Sentence(name)
		switch {
		case g.first.Node == "":
		case g.nodes > 1:
			text = fmt.Sprintf("%s and %d more: %s", g.first.Node, g.nodes-1, text)
		default:
			text = g.first.Node + ": " + text
		}
		out = append(out, waitEvent{"", eventType(g.first), key.reason, text})
	}
	return out
}

func eventType(v rollout.Verdict) string {
	if needsAttention[v.Phase] {
		return corev1.EventTypeWarning
	}
	return corev1.EventTypeNormal
}

// markSeen says that a wait is to be told, and remembers that it is there.
func (w waitHistory) markSeen(key waitKey, now time.Time) bool {
	_, known := w[key]
	w[key] = now
	return !known
}

// expire drops what has not been there for so long that it is worth telling again.
func (w waitHistory) expire(now time.Time) {
	for key, seen := range w {
		if now.Sub(seen) >= waitRepeatAfter {
			delete(w, key)
		}
	}
}
