// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"math"
	"slices"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/rollout/graph"
)

// targetState is one target: its input, what was found out about it, and what this plan does with it.
type targetState struct {
	target        *rollout.Target
	rollout       *rolloutState
	node          *nodeState // nil if there is no node of that name
	group         *groupState
	nextOnNode    *targetState // on the same node, of a later rollout
	index         int          // in Rollout.Targets
	invalid       *rollout.Why // the input contradicts itself
	graph         *graph.Graph
	exists        bool // the node exists, and is the one the target was compiled for
	hasWork       bool
	hasFailed     bool          // its outcome is a final failure
	isProofLate   bool          // all work is done, and what must be true of the node did not become true in time
	isHeld        bool          // by its rollout
	isDraining    bool          // a task waits until the node is drained
	isDrained     bool          // the node is drained
	pods          []rollout.Pod // that have to leave the node: Target.Drain.Pods, until those that are protected are waited for no longer
	objects       int           // of the rollout that are on the node, or are going away there
	occupiesNode  bool          // it is not admitted, and its node is not given back: see isOccupied
	soak          soakTime
	reservation   reservedAdmission
	passesGates   bool // all gates
	pullFailure   *rollout.Why
	isRetired     bool // retired by this plan with nothing left to do
	isAdmittedNow bool // admitted by this plan
	reboot        targetReboot
	verdict       rollout.Verdict
}

// soakTime is how long a finished target must stay ready before it counts.
type soakTime struct {
	isOpen bool
	end    time.Time
}

// reservedAdmission is the admission of a target that is written in a ledger.
type reservedAdmission struct {
	isOpen      bool
	order       int  // as written there
	isElsewhere bool // it is written for another group, in which the target was then
}

// inspector finds out the state of one target.
type inspector struct{ *targetState }

func (t inspector) inspect(plan *draftPlan) {
	t.exists = t.isOnItsNode()
	if t.group == nil {
		t.setUnknownGroup()
	}
	t.pods = t.target.Drain.Pods
	t.inspectTasks()
	if !t.exists {
		t.hasWork = t.hasWork && t.rollout.Deleting
		return
	}
	t.objects += len(t.target.Objects.Orphans) + len(t.target.Objects.Going) + len(t.target.Objects.Queues)
	t.node.objects += t.objects
	t.isHeld = slices.ContainsFunc(t.node.Holds, func(h rollout.Hold) bool { return h.Owner == t.rollout.Ref })
	t.sortTasks()
	if t.target.Visit.Admitted {
		t.countAdmission()
	}
	t.occupiesNode = !t.target.Visit.Admitted && t.isOccupied()
	t.isProofLate = t.isProofFailed(plan.now)
	if p := t.target.Pull; p != nil {
		t.pullFailure = p.Failure(plan.now)
		plan.requestNext(p.LateAt())
	}
	t.hasFailed = t.hasFailed || t.isProofLate
	t.inspectSoak(plan)
	t.rollout.noteRollback(t.targetState)
	if t.isUnfinished() {
		t.rollout.unfinished++
	}
}

// isOnItsNode reports whether the node exists and is the one for which the target was compiled.
func (t inspector) isOnItsNode() bool {
	if t.node == nil || t.target.Gone {
		return false
	}
	isUnknown := t.target.UID == "" || t.node.UID == ""
	return isUnknown || t.target.UID == t.node.UID
}

func (t inspector) setUnknownGroup() {
	t.group = &groupState{Group: &rollout.Group{Limit: 0}}
	if t.invalid == nil {
		t.invalid = invalidReason("its group " + t.target.Group.String() + " is unknown")
	}
}

// inspectTasks finds out whether the target has work, whether it failed for good, and what runs on its node.
func (t inspector) inspectTasks() {
	t.hasFailed, t.hasWork = t.target.Visit.Skipped || t.rollsBackItself(), t.isUnreadable()
	for i := range t.target.Tasks {
		task := &t.target.Tasks[i]
		if task.State != rollout.StateDone {
			t.hasWork = true
		}
		if t.target.Visit.Admitted && task.HasFinallyFailed() {
			t.hasFailed = true
		}
		if t.exists && task.MayRun() {
			t.countObject(task)
		}
	}
}

func (t inspector) countObject(task *rollout.Task) {
	t.objects++
	if task.Need == rollout.NeedAlone && t.node.interrupted == nil {
		t.node.interrupted = t.targetState
	}
}

// sortTasks finds the order of the tasks if there is work. Tasks that cannot be ordered make the target invalid.
func (t inspector) sortTasks() {
	if !t.hasWork || t.invalid != nil {
		return
	}
	t.graph = t.rollout.graphs.Of(t.target.Tasks)
	if t.graph.Problem != "" {
		t.invalid = invalidReason(t.graph.Problem)
	}
}

// isOccupied reports whether the node is not given back: the rollout holds it, or has an object there. That does not
// depend on what the node records, which may be damaged or reset. If the record cannot be read, a cordon may be that of
// the rollout. A node that stays held after a final failure is given up and not occupied.
func (t inspector) isOccupied() bool {
	mayBeHeld := t.isUnreadable() && t.node.Cordoned
	return t.objects > 0 || t.isHeld && !t.keepsHold() || mayBeHeld
}

func (t inspector) countAdmission() {
	isSecond := t.node.occupant != nil
	if !isSecond {
		t.node.occupant = t.targetState
	}
	t.node.sharesReboots = t.node.sharesReboots || t.rollout.SharesReboots || t.target.Reboot != nil || isSecond
	if t.rollout.isOwnOrder(t.target.Visit.Order) {
		t.rollout.addOrder(t.target.Visit.Order)
	}
}

// inspectSoak finds out until when a finished target must stay ready before it counts.
func (t inspector) inspectSoak(plan *draftPlan) {
	hasFinished := !t.hasWork && !t.target.Visit.Admitted && !t.target.Visit.FinishedAt.IsZero()
	if t.group.Soak <= 0 || !hasFinished {
		return
	}
	t.soak.end = rollout.LaterOf(t.target.Visit.FinishedAt, t.node.ReadyAt).Add(t.group.Soak)
	t.soak.isOpen = !t.node.Ready || plan.now.Before(t.soak.end)
	plan.requestNext(t.soak.end)
}

// isBusy reports whether a target counts against the limit of its group. One that failed for good counts while its
// node is held or not ready, and while something, perhaps a hold, is written to its node. One that is not admitted counts
// while its node is not given back, and a finished one while it soaks.
func (t *targetState) isBusy() bool {
	switch {
	case !t.exists:
		return false
	case !t.target.Visit.Admitted:
		return t.occupiesNode || t.isSoaking()
	case !t.hasFailed, t.rollsBack():
		return true
	}
	return t.isHeld || t.node.Sending || !t.node.Ready
}

// isSoaking reports whether everything is done but does not count yet.
func (t *targetState) isSoaking() bool { return !t.hasWork && t.soak.isOpen }

// isOver reports whether nothing is left to do on the node, and it was given back.
func (t *targetState) isOver() bool {
	return !t.hasWork && !t.target.Visit.Admitted && t.invalid == nil
}

// isComplete reports whether the node has what the rollout wants, and was given back. One that went back has not.
func (t *targetState) isComplete() bool { return t.isOver() && t.target.Rollback.Cause == nil }

// isBack reports whether the node went back, and was given back then.
func (t *targetState) isBack() bool { return t.isOver() && t.target.Rollback.Cause != nil }

// hasPassed reports whether its group counts the target: it is complete, or was taken back with others, and has soaked.
func (t *targetState) hasPassed() bool {
	return (t.isComplete() || t.isBack() && t.target.Rollback.WithOthers) && !t.isSoaking()
}

// isLost reports whether the target failed for good, and still has work, is not proven or rolled back.
func (t *targetState) isLost() bool {
	return t.hasFailed && (t.hasWork || t.isProofLate || t.rollsBackItself())
}

// keepsHold reports whether the node stays held after a final failure.
func (t *targetState) keepsHold() bool {
	return t.target.Visit.Skipped && t.rollout.KeepHeld && !t.rollout.Deleting
}

// isUnfinished reports whether the rollout still has something to do on the node.
func (t *targetState) isUnfinished() bool {
	switch {
	case t.target.Leaving:
		return t.target.Visit.Admitted
	case t.rollout.Once && t.target.Visit.Skipped:
		return false
	}
	return !t.isComplete()
}

// isUnreadable reports whether the work of the target is unknown.
func (t *targetState) isUnreadable() bool {
	return t.target.Blocked != nil && t.target.Blocked.Reason == rollout.ReasonStateUnreadable
}

// isBeingAdmitted reports whether an admission is written in the ledger, or may be being sent to the node.
func (t *targetState) isBeingAdmitted() bool {
	isSent := t.node.Sending && !t.target.Visit.Admitted && t.hasWork
	return t.reservation.isOpen || isSent
}

// withoutNode is the rank of targets without a node: they come last.
const withoutNode = math.MaxInt32

// rank is the place of the node in the total order.
func (t *targetState) rank() int {
	if t.node == nil {
		return withoutNode
	}
	return t.node.rank
}
