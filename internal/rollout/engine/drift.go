// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// driftPoll is how often checks are started, and looked at whether they have ended: nobody waits for them, and a pass for each would cost
// more than they do.
const driftPoll = 20 * time.Second

// nextPoll returns the first moment not before a time at which checks are looked at. All rollouts and nodes share these moments.
func nextPoll(at time.Time) time.Time {
	if on := at.Truncate(driftPoll); on.Before(at) {
		return on.Add(driftPoll)
	}
	return at
}

// driftChecker checks whether finished nodes are still as they were left, and what others need before their turn. It runs when everything
// else is decided, because nodes that are worked on are not checked.
type driftChecker struct{ *planner }

func (d driftChecker) checkNodes() {
	for i := range d.rollouts {
		if r := &d.rollouts[i]; r.CheckLimit > 0 {
			d.checkRollout(r)
		}
	}
}

// checkRollout continues the checks of a rollout and starts those that are due, the longest overdue first.
func (d driftChecker) checkRollout(r *rolloutState) {
	var due, asked []*targetState
	running := 0
	for i := range r.targets {
		t := &r.targets[i]
		if t.target.Check == nil || !t.exists {
			continue
		}
		d.sweepOld(t)
		if t.isBeingChecked(d.plan.now) {
			running++
			if !t.target.Check.Before { // otherwise its end is observed
				d.awaitObject(t)
			}
		}
		switch {
		case t.target.Check.Object != "":
			d.continueCheck(t)
		case t.target.Check.Before && d.mayAsk(t):
			asked = append(asked, t)
		case t.target.Check.Refused != nil:
			d.plan.requestNext(t.target.Check.Due)
		case !d.mayCheck(t):
		case d.plan.now.Before(t.target.Check.Due):
			d.plan.requestNext(nextPoll(t.target.Check.Due))
		default:
			due = append(due, t)
		}
	}
	slices.SortFunc(due, func(a, b *targetState) int {
		return cmp.Or(a.target.Check.Due.Compare(b.target.Check.Due), cmp.Compare(a.node.rank, b.node.rank))
	})
	if len(due) > 0 {
		d.plan.requestNext(nextPoll(d.plan.now.Add(1))) // these have ended, or others can start
	}
	free := max(0, r.CheckLimit-running)
	free -= d.ask(asked, free)
	for _, t := range due[:min(len(due), free)] {
		d.plan.addAction(t, rollout.VerbVerify, rollout.Why{Reason: rollout.ReasonDrift, Text: "it is checked whether the node is still as it was left"})
	}
}

// ask looks at the nodes of candidates, and returns how many these are: all of which nothing is known, and of the others as many of a group
// as it may admit next.
func (d driftChecker) ask(asked []*targetState, free int) int {
	sortStable(asked, compareCandidates)
	again := map[*groupState]int{}
	started := 0
	for _, t := range asked {
		isFirst := t.target.Check.Due.IsZero()
		if started == free || !isFirst && again[t.group] >= t.group.pullLimit() {
			continue
		}
		if !isFirst {
			again[t.group]++
		}
		started++
		d.plan.addAction(t, rollout.VerbVerify, rollout.Why{Reason: rollout.ReasonPreflight, Text: "it is looked what the node needs"})
	}
	return started
}

// mayAsk reports whether the node of a candidate may be looked at now.
func (d driftChecker) mayAsk(t *targetState) bool {
	isStarted := !t.rollout.Paused && t.rollout.Broken == nil && !t.target.Check.Going
	return isStarted && t.awaitsAnswer(d.plan.now) && t.isLeftAlone() && t.node.Ready && !t.node.Sending
}

// awaitObject requests the pass in which the object of a check has ended: no event says so. That it is gone matters when the next check
// is due, there or for another node that waits.
func (d driftChecker) awaitObject(t *targetState) {
	at, due := d.plan.now.Add(1), t.target.Check.Due
	isOver := t.target.Check.Object == "" || t.target.Check.Ended
	if isOver && due.After(at) {
		at = due
	}
	d.plan.requestNext(nextPoll(at))
}

// sweepOld deletes what earlier checks left.
func (d driftChecker) sweepOld(t *targetState) {
	for _, object := range t.target.Check.Old {
		d.plan.addAction(t, rollout.VerbSweep, rollout.Why{Reason: rollout.ReasonReplaced, Text: "nobody needs " + object + " any more", About: object}).Object = object
	}
}

// isBeingChecked reports whether a check runs on the node of a target. One that is to end, or is being deleted, runs until its object is
// gone, because the request may be on its way or be lost, or does not go in time. On a node that is not ready nothing goes, and nothing
// runs that others wait for.
func (t *targetState) isBeingChecked(now time.Time) bool {
	drift := t.target.Check
	isStuck := !drift.GoneBy.IsZero() && !now.Before(drift.GoneBy)
	return drift.Object != "" && !drift.Ended || drift.Going && t.node.Ready && !isStuck
}

// continueCheck ends a check that has ended, takes too long, or is in the way.
func (d driftChecker) continueCheck(t *targetState) {
	drift := t.target.Check
	isUntouched := t.isUntouched()
	if drift.Before {
		isUntouched = t.isLeftAlone()
	}
	note := func(text string) {
		why := rollout.Why{Reason: rollout.ReasonEnded, Text: text, About: drift.Object}
		if drift.Before {
			why.Reason = rollout.ReasonPreflight
		}
		d.plan.addAction(t, rollout.VerbNote, why).Object = drift.Object
		if !drift.Keep {
			d.plan.addAction(t, rollout.VerbSweep, why).Object = drift.Object
		}
		if !drift.Before { // otherwise the change of the node is observed
			d.plan.requestNext(nextPoll(d.plan.now.Add(1))) // in which the outcome counts
		}
	}
	switch {
	case !isUntouched:
		why := rollout.Why{Reason: rollout.ReasonReplaced, Text: "the node is worked on, so it is not checked", About: drift.Object}
		d.plan.addAction(t, rollout.VerbSweep, why).Object = drift.Object
	case drift.Ended:
		note("the node was checked")
	case !d.plan.now.Before(drift.ExpiresAt()):
		note("the check took longer than " + drift.Limit.String())
	default:
		d.plan.requestNext(nextPoll(drift.ExpiresAt()))
	}
}

// mayCheck reports whether a check may start on the node of a target: everything is done there, and nobody works on it or keeps it
// from being used.
func (d driftChecker) mayCheck(t *targetState) bool {
	r := t.rollout
	isStarted := !r.Paused && !r.Deleting && r.Broken == nil
	isDone := t.isComplete() && !t.isSoaking() && !t.target.Check.Going && t.target.Blocked == nil && !t.target.Leaving
	return isStarted && isDone && t.isUntouched() && t.node.Ready && !t.node.Sending
}

// isUntouched reports whether no rollout works on the node of a target, or begins to, and nobody holds it.
func (t *targetState) isUntouched() bool {
	return t.isLeftAlone() && len(t.node.Holds) == 0 && !t.node.Cordoned
}

// isLeftAlone reports whether no rollout works on the node of a target, or begins to.
func (t *targetState) isLeftAlone() bool {
	n := t.node
	isUsed := n.occupant != nil || n.objects > 0 || n.isReserved
	return !isUsed && n.findTarget(func(other *targetState) bool { return other.isAdmittedNow }) == nil
}
