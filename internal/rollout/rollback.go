// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

// Rollback is what happens if the work fails for good, or the proof is late: the node rolls back, once.
type Rollback struct {
	Cause      *Why   // what failed: the tasks lead back to what was complete before, and the target stays a failure
	First      bool   // nothing was complete on the node before: it goes back to nothing
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

// MayRollBack reports whether the node rolls back if the work fails for good.
func (t *Target) MayRollBack() bool { return t.Rollback.IfFailed && t.Rollback.Refused == "" }

// MayRollBackUnproven reports whether the node rolls back if its proof is late.
func (t *Target) MayRollBackUnproven() bool { return t.Rollback.IfUnproven && t.Rollback.Refused == "" }

// WithRefusal adds to a failure why the node does not roll back, if that is refused.
func (t *Target) WithRefusal(why Why) Why {
	if t.Rollback.Refused != "" {
		why.Text = Truncate(why.Text, MaxText-len("; ")-len(t.Rollback.Refused)) + "; " + t.Rollback.Refused
	}
	return why
}
