// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// waitRepeatAfter is how long a reason must have been absent before its return emits another event. One that stays emits one.
const waitRepeatAfter = 10 * time.Minute

// waitHistory remembers for which reasons to wait an event was emitted, so that each emits one when it is new. A restarted
// operator emits them once more.
type waitHistory map[waitKey]time.Time // when it was seen last

// waitKey is one reason of one rollout, on the rollout as a whole or on one node in flight.
type waitKey struct {
	rollout rollout.Ref
	node    string
	reason  rollout.Reason
	about   string
}

// waitEvent is an event on a rollout's object, or on a node.
type waitEvent struct {
	node, eventType, reason, text string
}

// isDrainWarning are the waits whose events have the type and the reason that NodeWright gives them.
var isDrainWarning = map[rollout.Reason]bool{rollout.ReasonProtectedPod: true, rollout.ReasonDrainTimeout: true, rollout.ReasonHandoverTimeout: true}

// needsAttention are the phases that users should look at.
var needsAttention = map[rollout.Phase]bool{rollout.PhaseBlocked: true, rollout.PhaseFailing: true, rollout.PhaseFailed: true}

// newEvents returns the events for reasons to wait that are new: one for each reason and the object it is about, naming the
// first node that has it, and one on each node in flight.
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
		if !v.Why.Reason.IsWait() || v.Why.Reason.IsTransient() {
			continue
		}
		key := waitKey{rollout: r.Ref, reason: v.Why.Reason}
		if hasStarted(v) {
			onNode := waitKey{r.Ref, v.Node, v.Why.Reason, v.Why.About}
			if w.markSeen(onNode, now) {
				out = append(out, waitEvent{v.Node, eventType(v), eventReason(v), r.Ref.Title() + ": " + v.Sentence(name)})
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
		out = append(out, waitEvent{"", eventType(g.first), eventReason(g.first), text})
	}
	return out
}

// hasStarted reports that work on the node of a verdict has begun.
func hasStarted(v rollout.Verdict) bool {
	return v.Phase == rollout.PhaseInFlight || v.Phase == rollout.PhaseFailing || v.Phase == rollout.PhaseFailed
}

func eventType(v rollout.Verdict) string {
	if needsAttention[v.Phase] || isDrainWarning[v.Why.Reason] {
		return corev1.EventTypeWarning
	}
	return corev1.EventTypeNormal
}

func eventReason(v rollout.Verdict) string {
	if isDrainWarning[v.Why.Reason] {
		return v1alpha1.EventDrain
	}
	return string(v.Why.Reason)
}

// markSeen remembers that a wait was seen, and returns whether it is new.
func (w waitHistory) markSeen(key waitKey, now time.Time) bool {
	_, known := w[key]
	w[key] = now
	return !known
}

// forgetExpired forgets waits whose return is to emit an event again.
func (w waitHistory) forgetExpired(now time.Time) {
	for key, seen := range w {
		if now.Sub(seen) >= waitRepeatAfter {
			delete(w, key)
		}
	}
}
