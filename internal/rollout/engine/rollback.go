// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine

import "github.com/skyhook-k8s/skyhook/internal/rollout"

// rollsBack reports whether a target that failed rolls back, or is about to: its node is worked on like any other. A target that was
// given up, because its drain took too long for example, does not: nothing says that its packages are wrong.
func (t *targetState) rollsBack() bool {
	isAbout := t.target.MayRollBack() && t.hasWork || t.target.MayRollBackUnproven() && t.isProofLate
	return t.target.Rollback.Cause != nil || isAbout && !t.target.Visit.Skipped
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
	r.rollback = &rollout.Why{
		Reason: rollout.ReasonRolledBack,
		Text:   "no further node gets these packages: they failed, and " + t.target.Node + " goes or went back",
		About:  "Node " + t.target.Node,
	}
}

// stopReason returns why nothing new begins on the targets of a rollout: one rolls or rolled back. It is nil if none does.
func (r *rolloutState) stopReason() *rollout.Why {
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

func rollbackVerdict(t *targetState) rollout.Verdict {
	return rollout.Verdict{Phase: rollout.PhaseWaiting, Why: rollout.WithDefaultReason(t.rollout.stopReason(), rollout.ReasonRolledBack)}
}

// mustRollBackWithOthers reports whether a target in flight rolls back because another one does.
func (t *targetState) mustRollBackWithOthers() bool {
	isAble := t.target.Rollback.IfOthers && t.target.Rollback.Refused == ""
	isStopped := t.rollout.Paused || t.target.Leaving
	return isAble && !isStopped && !t.isRollingBack() && isStoppedByRollback(t)
}
