// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

// Rollback is what happens if the work fails for good, or the proof is late: the node goes back, once.
type Rollback struct {
	Cause      *Why   // what failed: the tasks lead back to what was complete before, and the target stays a failure
	WithOthers bool   // with Cause: it failed on another target, so that this one is no failure
	IfFailed   bool   // it goes back if its work fails for good
	IfUnproven bool   // it goes back if its proof is late
	IfOthers   bool   // it goes back if another one does, see JointRollback
	Refused    string // it stays all the same, for this reason
}

// JointRollback is what a rollout does with the other targets when one goes back.
type JointRollback struct {
	Together bool // no further one gets new work, and those in flight go back too
	Cause    *Why // with Together: the work failed on a target, which may be gone
}

// goesBack reports whether a target that failed goes back, or is about to: its node is worked on like any other. A target that was
// given up, because its drain took too long for example, does not: nothing says that its packages are wrong.
func (t *targetState) goesBack() bool {
	isAbout := t.target.rollsBack() && t.hasWork || t.target.rollsBackUnproven() && t.isProofLate
	return t.target.Rollback.Cause != nil || isAbout && !t.target.Visit.Skipped
}

// rollsBack reports whether the node goes back if the work fails for good.
func (t *Target) rollsBack() bool { return t.Rollback.IfFailed && t.Rollback.Refused == "" }

// rollsBackUnproven reports whether the node goes back if its proof is late.
func (t *Target) rollsBackUnproven() bool { return t.Rollback.IfUnproven && t.Rollback.Refused == "" }

// withRefusal adds to a failure why the node does not go back, if that is refused.
func (t *Target) withRefusal(why Why) Why {
	if t.Rollback.Refused != "" {
		why.Text = Truncate(why.Text, maxText-len("; ")-len(t.Rollback.Refused)) + "; " + t.Rollback.Refused
	}
	return why
}

// wentBackItself reports whether the target goes or went back because its own work failed.
func (t *targetState) wentBackItself() bool {
	return t.target.Rollback.Cause != nil && !t.target.Rollback.WithOthers
}

// isGoingBack reports whether a target goes or went back, or is about to.
func (t *targetState) isGoingBack() bool {
	return t.target.Rollback.Cause != nil || t.hasFailed && t.goesBack()
}

// noteRollback notes that a target goes back, if that concerns the others: nothing new begins on them.
func (r *rolloutState) noteRollback(t *targetState) {
	if !r.Rollback.Together || r.Deleting || r.rollback != nil || t.invalid != nil || t.target.Leaving || !t.isGoingBack() {
		return
	}
	r.rollback = &Why{
		Reason: ReasonRolledBack,
		Text:   "no further node gets these packages: they failed, and " + t.target.Node + " goes or went back",
		About:  "Node " + t.target.Node,
	}
}

// stopReason returns why nothing new begins on the targets of a rollout: one goes or went back. It is nil if none does.
func (r *rolloutState) stopReason() *Why {
	if r.Rollback.Together && !r.Deleting && r.Rollback.Cause != nil {
		return r.Rollback.Cause
	}
	return r.rollback
}

// isStoppedByRollback reports whether a target does not get its work because others of its rollout go back.
func isStoppedByRollback(t *targetState) bool {
	isNew := t.target.Rollback.Cause == nil && !t.target.Leaving
	return isNew && t.rollout.stopReason() != nil
}

func rollbackVerdict(t *targetState) Verdict {
	return Verdict{Phase: PhaseWaiting, Why: withDefaultReason(t.rollout.stopReason(), ReasonRolledBack)}
}

// mustBeTakenBack reports whether a target in flight goes back because another one does.
func (t *targetState) mustBeTakenBack() bool {
	isAble := t.target.Rollback.IfOthers && t.target.Rollback.Refused == ""
	isStopped := t.rollout.Paused || t.target.Leaving
	return isAble && !isStopped && !t.isGoingBack() && isStoppedByRollback(t)
}
