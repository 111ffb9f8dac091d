// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"math"
	"slices"
	"time"
)

// Pull is the pull of the images that a target needs, before its turn. Its object holds nothing, takes no slot, and is of no admission.
// The target is admitted when its images are on the node.
type Pull struct {
	Needed    bool      // the target has work and is not admitted
	Object    string    // name of the object that pulls, if one exists; none of Orphans
	Created   time.Time // when that was created
	Ended     bool      // every image is on the node, or the node cannot run the object
	Failed    *Why      // what cannot be pulled, and is tried again; or the object was refused
	RetryAt   time.Time // until when no object is created, because one was refused; zero if none was
	Leaving   bool      // an object of that name is being deleted: no other can be created yet
	Old       []string  // names of objects that nobody needs any more
	Exclusive []PullKey // images whose digests are not recorded yet
	// when this process observed the object first, see Durations; zero if unknown
	Observed time.Time
}

// PullKey is a Task.Exclusive, and until when the pull keeps others from starting; zero if it does not.
type PullKey struct {
	Key   string
	Until time.Time
}

// unpulledAt returns from when on a pull that fails counts as failed.
func (p *Pull) unpulledAt() time.Time { return timeOr(p.Observed, p.Created).Add(unpulledLimit) }

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
			if t.isAwaitingPull() && !t.isAdmittedNow {
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
		u.plan.addAction(t, VerbSweep, Why{Reason: ReasonReplaced, Text: "nobody needs " + object + " any more", About: object}).Object = object
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
	case p.Failed != nil && !p.Ended:
		c.failed = append(c.failed, t.target.Node)
	case p.Ended && !t.verdict.Why.Reason.isOfGroup(): // others go first: they need their images, too
	case p.Object != "" || t.node.Sending:
		c.pulls++
	}
}

// isAwaitingPull reports whether a target is not to be admitted before its images are on the node. Its admission that is written
// already, or being sent, is not withdrawn, and a node that is not given back does not wait.
func (t *targetState) isAwaitingPull() bool {
	p := t.target.Pull
	isBegun := t.reservation.isOpen || t.reservation.isElsewhere || t.occupiesNode || t.node.Sending
	return p != nil && p.Needed && !p.Ended && !isBegun && !t.target.Rollback.WithOthers && !t.rollout.Deleting
}

// checkPulled stops candidates whose images are not on the node.
func checkPulled(t *targetState) *Why {
	if !t.isAwaitingPull() {
		return nil
	}
	why := Why{Reason: ReasonPulling, Text: "its images are pulled before it is admitted"}
	if p := t.target.Pull; p.Failed != nil {
		why = withDefaultReason(p.Failed, ReasonImagePull)
	}
	return &why
}

// countUnpullable counts a candidate whose images cannot be pulled: a batch is not open for it.
func (p *planner) countUnpullable(t *targetState) {
	if t.passesGates && !t.target.Visit.Admitted && t.isAwaitingPull() && t.target.Pull.Failed != nil {
		t.group.candidates.unpullable++
	}
}

// pullNext starts the pull of a candidate, or reports why it fails or waits.
func (u imagePuller) pullNext(t *targetState) {
	p := t.target.Pull
	if p.Failed != nil {
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
		if t.verdict.Why.Reason == ReasonPulling {
			t.verdict.Why = *why
		}
		return
	}
	u.plan.addAction(t, VerbPull, Why{Reason: ReasonPulling, Text: "its images are pulled before its turn"})
	if p.Failed == nil { // otherwise it is counted already
		u.countOf(t.group).pulls++
	}
	for _, k := range p.Exclusive {
		t.rollout.exclusiveTasks(u.plan.now)[k.Key] = exclusiveTask{target: t}
	}
}

// reportFailed reports a pull that fails, before the node is cordoned, whatever else the target waits for.
func (u imagePuller) reportFailed(t *targetState) {
	p := t.target.Pull
	t.verdict = Verdict{Phase: PhaseWaiting, Why: withDefaultReason(p.Failed, ReasonImagePull)}
	isLate := p.Object != "" && !u.plan.now.Before(p.unpulledAt())
	switch {
	case isLate:
		t.verdict.Phase = PhaseFailing
	case p.Object != "":
		u.plan.requestNext(p.unpulledAt())
	}
}

// checkPullTurn returns why nothing is pulled on the node of a candidate now, whatever the limits say.
func checkPullTurn(t *targetState) *Why {
	if t.rollout.Paused || t.rollout.Broken != nil {
		return &Why{Reason: ReasonPaused, Text: "the rollout is paused"}
	}
	return checkOpen(t)
}

// checkPullLimits returns what a pull waits for: others of its group, or one that finds out the digest of an image.
func (u imagePuller) checkPullLimits(t *targetState) *Why {
	limit, c := t.group.pullLimit(), u.countOf(t.group)
	if failed := len(c.failed); failed >= max(limit, minFailedPulls) && t.target.Pull.Failed == nil {
		return &Why{Reason: ReasonImagePull, Text: truncate("images cannot be pulled on " + listNames(c.failed, failed) + ", so no further node pulls them")}
	}
	if c.pulls >= limit {
		return &Why{Reason: ReasonPulling, Text: "its images are pulled when others have pulled theirs"}
	}
	for _, k := range t.target.Pull.Exclusive {
		other, waits := t.rollout.exclusiveTasks(u.plan.now)[k.Key]
		if waits && other.target != t {
			u.plan.requestNext(other.until)
			return &Why{Reason: ReasonImageDigest, Text: "it waits until node " + other.target.node.Name + " has pulled an image, so that its digest is known"}
		}
	}
	return nil
}

// pullLimit returns on how many nodes images are pulled before their turn: as many as one more batch has.
func (g *groupState) pullLimit() int {
	limit := g.Limit
	if limit == Unlimited {
		limit = math.MaxInt
	}
	if !g.usesBatches() {
		return limit
	}
	if size := max(g.memory.Open, g.Pace.nextSize(g.memory, g.total)); size > 0 {
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

// measurePull measures since when images are pulled.
func (m *targetMeasurer) measurePull() {
	p := m.target().Pull
	if m.Durations == nil || p == nil || p.Object == "" {
		return
	}
	if observed := m.firstSeenOf("pull", p.Object, p.Created); !observed.Equal(p.Observed) {
		pull := *p
		pull.Observed = observed
		m.change().Pull = &pull
	}
}
