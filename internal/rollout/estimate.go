// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"slices"
	"time"
)

// Completion is when a rollout should have finished, from how long its finished targets took.
type Completion struct {
	At      time.Time     // when what is in flight ends and the others may begin; zero if unknown
	Waiting time.Duration // what the others take after that, while they may begin
}

// FindUsual returns how long visits of a rollout usually take: nine of ten finished targets took at most as long. It is 0 without
// any.
func FindUsual(targets []*Target) time.Duration {
	var visits []time.Duration
	for _, t := range targets {
		hasWork := slices.ContainsFunc(t.Tasks, func(k Task) bool { return k.State != StateDone })
		if isFinished := !t.Visit.Admitted && !t.Leaving && !hasWork; isFinished && t.Visit.Took > 0 {
			visits = append(visits, t.Visit.Took)
		}
	}
	if len(visits) == 0 {
		return 0
	}
	slices.Sort(visits)
	return visits[(9*len(visits)-1)/10]
}

// maxOverdue is how many times as long as usual a target in flight may take: after that its end is unknown.
const maxOverdue = 3

// timedWaits are the reasons to wait that end when targets in flight end, or at a known time. Others end when a person acts.
var timedWaits = []Reason{ReasonBudget, ReasonBatch, ReasonTopology, ReasonWindow, ReasonLedger, ReasonWave, ReasonPulling}

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
	isExcluded := t.target.Blocked != nil || t.invalid != nil || t.target.Leaving || t.hasFailed || t.isRetired
	return t.exists && t.node.Ready && !isExcluded && t.isUnfinished()
}

// estimate returns when a rollout should have finished; zero if that is unknown.
func (e estimator) estimate(r *rolloutState) (out Completion) {
	if r.Usual == 0 || r.unfinished == 0 || r.Paused || r.Deleting || r.Broken != nil || r.barrier != nil {
		return out
	}
	groups := map[*groupState]bool{}
	for i := range r.targets {
		t := &r.targets[i]
		if !t.isEstimated() {
			continue
		}
		if !t.target.Visit.Admitted && !t.isAdmittedNow {
			if !slices.Contains(timedWaits, t.verdict.Why.Reason) {
				return Completion{}
			}
			groups[t.group] = true
			continue
		}
		ends, isKnown := e.endOf(t)
		if !isKnown {
			return Completion{}
		}
		out.At = LaterOf(out.At, ends)
	}
	later := time.Duration(0)
	for g := range groups {
		takes, begins, isKnown := e.estimateGroup(g, r)
		if !isKnown {
			return Completion{}
		}
		out.At = LaterOf(out.At, begins)
		if len(g.After) > 0 { // waves follow each other
			later += takes
		} else {
			out.Waiting = max(out.Waiting, takes)
		}
	}
	out.Waiting += later
	if !out.At.After(e.Now) { // nothing in flight or known ends the wait
		return Completion{}
	}
	return out
}

// endOf estimates when a target in flight ends: after the usual time, or twice or three times as long. That does not move while time
// passes, so that a status with it is not written again and again.
func (e estimator) endOf(t *targetState) (ends time.Time, isKnown bool) {
	usual, began := t.rollout.Usual, t.target.Visit.AdmittedAt
	if t.isAdmittedNow || began.IsZero() {
		began = e.Now
	}
	for range maxOverdue {
		if began = began.Add(usual); began.After(e.Now) {
			return began, true
		}
	}
	return time.Time{}, false
}

// estimateGroup estimates when waiting targets of a group may begin, and what they take. It is unknown when the group waits for
// a person, or for something without a known end.
func (e estimator) estimateGroup(g *groupState, r *rolloutState) (takes time.Duration, begins time.Time, isKnown bool) {
	isFrozen := g.Frozen != nil
	if !g.isApproved(r) || g.memory.Stopped || g.Failed != nil || g.Limit == 0 || isFrozen && g.Until.IsZero() {
		return 0, begins, false
	}
	if isFrozen {
		begins = g.Until
	}
	m, visit := g.memory, r.Usual
	if g.usesBatches() {
		visit += g.Soak
		if g.members > 0 { // the open batch ends well
			m.LastSize, m.LastFailed, m.Completed = g.members, false, m.Completed+g.members
		}
	}
	for rest := e.waiting[g]; rest > 0; takes += visit {
		size := rest
		if g.usesBatches() {
			if next := g.Pace.nextSize(m, g.total); next > 0 {
				size = next
			}
		}
		if g.Limit != Unlimited {
			size = min(size, g.Limit)
		}
		if r.Limit > 0 {
			size = min(size, r.Limit)
		}
		size = min(size, rest)
		m.LastSize, m.LastFailed, m.Completed = size, false, m.Completed+size
		rest -= size
	}
	return takes, begins, true
}
