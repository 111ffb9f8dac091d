// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"math"
	"slices"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// minFailedPulls is how many nodes of a group may fail to pull at the same time before no further one tries, however small the budget
// is: an image that no node can pull is not asked for by all of them.
const minFailedPulls = 3

// pullCount counts the nodes of a group that pull images before their turn, or have pulled them.
type pullCount struct {
	pulls  int      // that succeeded or are running
	failed []string // nodes on which they fail
}

// imagePuller pulls the images that the next targets need: of as many as one more batch has. It runs when it is decided who is admitted.
type imagePuller struct {
	*planner
	counts map[*groupState]*pullCount
}

func (u imagePuller) pullImages() {
	isNeeded := false
	for i := range u.targets {
		t := &u.targets[i]
		if t.target.Pull == nil || !t.exists {
			continue
		}
		u.sweepOld(t)
		isNeeded = isNeeded || t.target.Pull.Needed
		u.count(t)
	}
	if !isNeeded {
		return
	}
	for i := range u.rollouts {
		for _, t := range u.rollouts[i].candidates {
			if t.isAwaitingPull() && !t.isAdmittedNow && !t.isAwaitingPreflight(u.plan.now) {
				u.pullNext(t)
			}
		}
	}
}

// sweepOld deletes objects that nobody needs any more: that of a target which this plan admits is one of them.
func (u imagePuller) sweepOld(t *targetState) {
	old := t.target.Pull.Old
	if object := t.target.Pull.Object; object != "" && t.isAdmittedNow {
		old = append(slices.Clone(old), object)
	}
	for _, object := range old {
		u.plan.addAction(t, rollout.VerbSweep, rollout.Why{Reason: rollout.ReasonReplaced, Text: "nobody needs " + object + " any more", About: object}).Object = object
	}
}

// countOf returns the count of a group.
func (u imagePuller) countOf(g *groupState) *pullCount {
	if u.counts[g] == nil {
		u.counts[g] = &pullCount{}
	}
	return u.counts[g]
}

// count counts a target that is not admitted and whose images are pulled. On a node that is being sent to, one may be starting.
func (u imagePuller) count(t *targetState) {
	p, c := t.target.Pull, u.countOf(t.group)
	switch {
	case !p.Needed || t.isAdmittedNow || !t.passesGates:
	case t.pullFailure != nil && !p.Ended:
		c.failed = append(c.failed, t.target.Node)
	case p.Ended && !t.verdict.Why.Reason.IsOfGroup(): // others go first: they need their images, too
	case p.Object != "" || t.node.Sending:
		c.pulls++
	}
}

// isAwaitingPull reports whether a target is not to be admitted before its images are on the node. Its admission that is written
// already, or being sent, is not withdrawn, and a node that is not given back does not wait.
func (t *targetState) isAwaitingPull() bool {
	p := t.target.Pull
	return p != nil && p.Needed && !p.Ended && !t.isBeginning()
}

// isBeginning reports whether a target is admitted as soon as it may be, whatever is to come before its turn.
func (t *targetState) isBeginning() bool {
	isBegun := t.reservation.isOpen || t.reservation.isElsewhere || t.occupiesNode || t.node.Sending
	return isBegun || t.target.Rollback.WithOthers || t.rollout.Deleting
}

// checkPulled stops candidates whose images are not on the node.
func checkPulled(t *targetState) *rollout.Why {
	if !t.isAwaitingPull() {
		return nil
	}
	why := rollout.Why{Reason: rollout.ReasonPulling, Text: "its images are pulled before it is admitted"}
	if t.pullFailure != nil {
		why = rollout.WithDefaultReason(t.pullFailure, rollout.ReasonImagePull)
	}
	return &why
}

// countUnready counts a candidate whose images cannot be pulled, or whose preflight is against it: a batch is not open for it.
func (p *planner) countUnready(t *targetState) {
	isUnpullable := t.isAwaitingPull() && t.pullFailure != nil
	isRefused := t.target.Check != nil && t.target.Check.Refused != nil
	if t.passesGates && !t.target.Visit.Admitted && (isUnpullable || isRefused) {
		t.group.candidates.unready++
	}
}

// pullNext starts the pull of a candidate, or reports why it fails or waits.
func (u imagePuller) pullNext(t *targetState) {
	p := t.target.Pull
	if t.pullFailure != nil {
		u.reportFailed(t)
	}
	switch {
	case p.Object != "" || p.Leaving:
		return
	case u.plan.now.Before(p.RetryAt):
		u.plan.requestNext(p.RetryAt)
		return
	case checkPullTurn(t) != nil:
		return
	}
	if why := u.checkPullLimits(t); why != nil {
		if t.verdict.Why.Reason == rollout.ReasonPulling {
			t.verdict.Why = *why
		}
		return
	}
	u.plan.addAction(t, rollout.VerbPull, rollout.Why{Reason: rollout.ReasonPulling, Text: "its images are pulled before its turn"})
	if t.pullFailure == nil { // otherwise it is counted already
		u.countOf(t.group).pulls++
	}
	for _, k := range p.Exclusive {
		t.rollout.exclusiveTasks(u.plan.now)[k.Key] = exclusiveTask{target: t}
	}
}

// reportFailed reports a pull that fails, before the node is cordoned, whatever else the target waits for.
func (u imagePuller) reportFailed(t *targetState) {
	p := t.target.Pull
	t.verdict = rollout.Verdict{Phase: rollout.PhaseWaiting, Why: rollout.WithDefaultReason(t.pullFailure, rollout.ReasonImagePull)}
	isLate := p.Object != "" && !u.plan.now.Before(p.UnpulledAt())
	switch {
	case isLate:
		t.verdict.Phase = rollout.PhaseFailing
	case p.Object != "":
		u.plan.requestNext(p.UnpulledAt())
	}
}

// checkPullTurn returns why nothing is pulled on the node of a candidate now, whatever the limits say.
func checkPullTurn(t *targetState) *rollout.Why {
	if t.rollout.Paused || t.rollout.Broken != nil {
		return &rollout.Why{Reason: rollout.ReasonPaused, Text: "the rollout is paused"}
	}
	return checkAll(t, checkOpen, checkMemory)
}

// checkPullLimits returns what a pull waits for: others of its group, or one that finds out the digest of an image.
func (u imagePuller) checkPullLimits(t *targetState) *rollout.Why {
	limit, c := t.group.pullLimit(), u.countOf(t.group)
	if failed := len(c.failed); failed >= max(limit, minFailedPulls) && t.pullFailure == nil {
		return &rollout.Why{Reason: rollout.ReasonImagePull, Text: rollout.Shorten("images cannot be pulled on " + listNames(c.failed, failed) + ", so no further node pulls them")}
	}
	if c.pulls >= limit {
		return &rollout.Why{Reason: rollout.ReasonPulling, Text: "its images are pulled when others have pulled theirs"}
	}
	for _, k := range t.target.Pull.Exclusive {
		other, waits := t.rollout.exclusiveTasks(u.plan.now)[k.Key]
		if waits && other.target != t {
			u.plan.requestNext(other.until)
			return &rollout.Why{Reason: rollout.ReasonImageDigest, Text: "it waits until node " + other.target.node.Name + " has pulled an image, so that its digest is known"}
		}
	}
	return nil
}

// pullLimit returns on how many nodes images are pulled before their turn: as many as one more batch has.
func (g *groupState) pullLimit() int {
	limit := g.Limit
	if limit == rollout.Unlimited {
		limit = math.MaxInt
	}
	if !g.usesBatches() {
		return limit
	}
	if size := max(g.memory.Open, g.Pace.NextSize(g.memory, g.Total)); size > 0 {
		limit = min(limit, size)
	}
	return limit
}

// addExclusivePulls adds the pulls that keep tasks from starting which pull the same image.
func (r *rolloutState) addExclusivePulls(now time.Time) {
	for i := range r.targets {
		t := &r.targets[i]
		if t.target.Pull == nil || !t.exists {
			continue
		}
		for _, k := range t.target.Pull.Exclusive {
			mayBeStarting := t.node.Sending && !t.target.RequestFailed && t.target.Pull.Needed && t.target.Pull.Object == ""
			if _, isKnown := r.exclusive[k.Key]; !isKnown && (k.Until.After(now) || mayBeStarting) {
				r.exclusive[k.Key] = exclusiveTask{target: t, until: k.Until}
			}
		}
	}
}
