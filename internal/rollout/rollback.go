// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

// Rollback is what happens if the work fails for good, or the proof is late: the node rolls back, once.
type Rollback struct {
	Cause      *Why   // what failed: the tasks lead back to what was complete before, and the target stays a failure
	WithOthers bool   // with Cause: it failed on another target, so that this one is no failure
	IfFailed   bool   // it rolls back if its work fails for good
	IfUnproven bool   // it rolls back if its proof is late
	IfOthers   bool   // it rolls back if another one does, see JointRollback
	Refused    string // it stays all the same, for this reason
}

// JointRollback is what a rollout does with the other targets when one rolls back.
type JointRollback struct {
	Together bool // no further one gets new work, and those in flight roll back too
	Cause    *Why // with Together: the work failed on a target, which may be gone
}

// rollsBack reports whether a target that failed rolls back, or is about to: its node is worked on like any other. A target that was
// given up, because its drain took too long for example, does not: nothing says that its packages are wrong.
func (t *targetState) rollsBack() bool {
	isAbout := t.target.mayRollBack() && t.hasWork || t.target.mayRollBackUnproven() && t.isProofLate
	return t.target.Rollback.Cause != nil || isAbout && !t.target.Visit.Skipped
}

// mayRollBack reports whether the node rolls back if the work fails for good.
func (t *Target) mayRollBack() bool { return t.Rollback.IfFailed && t.Rollback.Refused == "" }

// mayRollBackUnproven reports whether the node rolls back if its proof is late.
func (t *Target) mayRollBackUnproven() bool { return t.Rollback.IfUnproven && t.Rollback.Refused == "" }

// withRefusal adds to a failure why the node does not roll back, if that is refused.
func (t *Target) withRefusal(why Why) Why {
	if t.Rollback.Refused != "" {
		why.Text = Truncate(why.Text, maxText-len("; ")-len(t.Rollback.Refused)) + "; " + t.Rollback.Refused
	}
	return why
}

// rollsBackItself reports whether the target rolls or rolled back because its own work failed.
func (t *targetState) rollsBackItself() bool {
	return t.target.Rollback.Cause != nil && !t.target.Rollback.WithOthers
}

// isRollingBack reports whether a target rolls or rolled back, or is about to.
func (t *targetState) isRollingBack() bool {
	return t.target.Rollback.Cause != nil || t.hasFailed && t.rollsBack()
}

// noteRollback notes that a target rolls back, if that concerns the others: nothing new begins on them.
func (r *rolloutState) noteRollback(t *targetState) {
	if !r.Rollback.Together || r.Deleting || r.rollback != nil || t.invalid != nil || t.target.Leaving || !t.isRollingBack() {
		return
	}
	r.rollback = &Why{
		Reason: ReasonRolledBack,
		Text:   "no further node gets these packages: they failed, and " + t.target.Node + " goes or went back",
		About:  "Node " + t.target.Node,
	}
}

// stopReason returns why nothing new begins on the targets of a rollout: one rolls or rolled back. It is nil if none does.
func (r *rolloutState) stopReason() *Why {
	if r.Rollback.Together && !r.Deleting && r.Rollback.Cause != nil {
		return r.Rollback.Cause
	}
	return r.rollback
}

// isStoppedByRollback reports whether a target does not get its work because others of its rollout roll back.
func isStoppedByRollback(t *targetState) bool {
	isNew := t.target.Rollback.Cause == nil && !t.target.Leaving
	return isNew && t.rollout.stopReason() != nil
}

func rollbackVerdict(t *targetState) Verdict {
	return Verdict{Phase: PhaseWaiting, Why: withDefaultReason(t.rollout.stopReason(), ReasonRolledBack)}
}

// mustRollBackWithOthers reports whether a target in flight rolls back because another one does.
func (t *targetState) mustRollBackWithOthers() bool {
	isAble := t.target.Rollback.IfOthers && t.target.Rollback.Refused == ""
	isStopped := t.rollout.Paused || t.target.Leaving
	return isAble && !isStopped && !t.isRollingBack() && isStoppedByRollback(t)
}
