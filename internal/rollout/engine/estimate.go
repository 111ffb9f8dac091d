// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// maxOverdue is how many times as long as usual a target in flight may take: after that its end is unknown.
const maxOverdue = 3

// timedWaits are the reasons to wait that end when targets in flight end, or at a known time. Others end when a person acts.
var timedWaits = []rollout.Reason{rollout.ReasonBudget, rollout.ReasonBatch, rollout.ReasonTopology, rollout.ReasonWindow, rollout.ReasonLedger, rollout.ReasonWave, rollout.ReasonPulling}

// estimator estimates when rollouts finish. Targets that cannot be worked on, or that failed for good, do not count.
type estimator struct {
	*planner
	waiting map[*groupState]int // targets of all rollouts
}

func newEstimator(p *planner) estimator {
	e := estimator{p, nil}
	for i := range p.targets {
		if t := &p.targets[i]; t.isEstimated() && !t.target.Visit.Admitted && !t.isAdmittedNow {
			if e.waiting == nil {
				e.waiting = map[*groupState]int{}
			}
			e.waiting[t.group]++
		}
	}
	return e
}

// isEstimated reports whether a target has work that is expected to end well.
func (t *targetState) isEstimated() bool {
	isExcluded := t.target.Blocked != nil || t.target.Avoided != nil && !t.target.Visit.Admitted || t.invalid != nil || t.target.Leaving || t.hasFailed || t.isRetired
	return t.exists && t.node.Ready && !isExcluded && t.isUnfinished()
}

// estimate returns when a rollout should have finished; zero if that is unknown.
func (e estimator) estimate(r *rolloutState) (out rollout.Completion) {
	if r.unfinished == 0 || r.Paused || r.Deleting || r.Broken != nil || r.barrier != nil {
		return out
	}
	groups := map[*groupState]rollout.Estimate{} // of the first target that waits
	for i := range r.targets {
		t := &r.targets[i]
		if !t.isEstimated() {
			continue
		}
		if !t.target.Visit.Admitted && !t.isAdmittedNow {
			if !slices.Contains(timedWaits, t.verdict.Why.Reason) {
				return rollout.Completion{}
			}
			if _, isKnown := groups[t.group]; !isKnown {
				groups[t.group] = e.Times.Visit(r.Rollout, t.target.Tasks)
			}
			continue
		}
		ends, isKnown := e.endOf(t)
		if !isKnown {
			return rollout.Completion{}
		}
		out.At = rollout.LaterOf(out.At, ends)
	}
	later := time.Duration(0)
	for g, visit := range groups {
		takes, begins, isKnown := e.estimateGroup(g, r, &visit)
		if !isKnown || visit.Basis == rollout.BasisAssumed {
			return rollout.Completion{}
		}
		out.At = rollout.LaterOf(out.At, begins)
		if len(g.After) > 0 { // waves follow each other
			later += takes
		} else {
			out.Waiting = max(out.Waiting, takes)
		}
	}
	out.Waiting += later
	if !out.At.After(e.Now) { // nothing in flight or known ends the wait
		return rollout.Completion{}
	}
	return out
}

// endOf estimates when a target in flight ends: as its work usually does, or after twice or three times as long. That does not move while
// time passes, so that a status with it is not written again and again.
func (e estimator) endOf(t *targetState) (ends time.Time, isKnown bool) {
	v := &t.target.Visit
	visit, began := e.Times.Visit(t.rollout.Rollout, t.target.Tasks), v.AdmittedAt
	if t.isAdmittedNow || began.IsZero() {
		began = e.Now
	}
	ends = began.Add(visit.Of(v.Order))
	if last := v.LastEnd(); !last.IsZero() { // what is left follows
		rest := e.Times.Rest(t.rollout.Rollout).Of(v.Order)
		ends = rollout.LaterOf(ends, last.Add(visit.Of(v.Order)-rest))
	}
	for takes, tries := ends.Sub(began), 1; !ends.After(e.Now); tries++ {
		if takes <= 0 || tries == maxOverdue {
			return time.Time{}, false
		}
		ends = ends.Add(takes)
	}
	return ends, visit.Basis != rollout.BasisAssumed
}

// estimateGroup estimates when waiting targets of a group may begin, and what they take. It is unknown when the group waits for
// a person, or for something without a known end.
func (e estimator) estimateGroup(g *groupState, r *rolloutState, visit *rollout.Estimate) (takes time.Duration, begins time.Time, isKnown bool) {
	isFrozen := g.Frozen != nil
	if !g.isApproved(r) || g.memory.Stopped || g.Failed != nil || g.Limit == 0 || isFrozen && g.Until.IsZero() {
		return 0, begins, false
	}
	if isFrozen {
		begins = g.Until
	}
	m, rest := g.memory, e.waiting[g]
	if g.usesBatches() && g.Members > 0 { // the open batch ends well
		m.LastSize, m.LastFailed, m.Completed = g.Members, false, m.Completed+g.Members
	}
	for order := r.givenOrder; rest > 0; {
		size := rest
		if g.usesBatches() {
			if next := g.Pace.NextSize(m, g.Total); next > 0 {
				size = next
			}
		}
		if g.Limit != rollout.Unlimited {
			size = min(size, g.Limit)
		}
		if r.Limit > 0 {
			size = min(size, r.Limit)
		}
		size = min(size, rest)
		if !g.usesBatches() {
			return visit.InWindow(order, rest, size), begins, true
		}
		takes += visit.Slowest(order, size) + g.Soak
		m.LastSize, m.LastFailed, m.Completed = size, false, m.Completed+size
		rest, order = rest-size, order+size
	}
	return takes, begins, true
}
