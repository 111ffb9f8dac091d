// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"slices"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// rebootStage is how far an admitted target is on a node whose reboots are shared.
type rebootStage int

const (
	stageUnknown   rebootStage = iota // its work is unknown
	stageBefore                       // it has work before its reboot
	stageAwaiting                     // it is recorded that only the reboot is missing
	stageRebooting                    // its interrupt was started and has not ended
	stageAfter                        // it owes no reboot, or the shared one is done
)

// targetReboot is the part of a target in a reboot that is shared.
type targetReboot struct {
	stage     rebootStage      // on a node whose reboots are shared
	postponed *postponedReboot // it starts in this plan unless others join it
}

// rebootSharer lets the rollouts of a node share one reboot. One rollout after the other does what comes before its reboot, each on a
// node on which all earlier ones only await theirs. Then one of them reboots the node, and it counts for all. Afterwards they go on one
// after the other.
type rebootSharer struct{ *planner }

// findTurns finds out which target may work on each node whose reboots are shared.
func (s rebootSharer) findTurns() {
	for i := range s.nodes {
		if n := &s.nodes[i]; n.sharesReboots {
			s.findTurn(n)
		}
	}
}

func (s rebootSharer) findTurn(n *nodeState) {
	n.awaitsReboot = true
	for t := n.firstTarget; t != nil; t = t.nextOnNode {
		if t.isAdmittedHere() {
			t.reboot.stage = s.findStage(t)
			n.awaitsReboot = n.awaitsReboot && t.reboot.stage == stageAwaiting
		}
	}
	choices := []func(*targetState) bool{
		func(t *targetState) bool { return t.reboot.stage == stageRebooting },
		func(t *targetState) bool {
			return t.reboot.stage == stageAfter && !t.rollout.isBypassed() && t.usesTurn()
		},
		func(t *targetState) bool { return t.reboot.stage == stageBefore && t.canWork() && !t.hasFailed },
		func(t *targetState) bool { return t.reboot.stage == stageAwaiting && t.canWork() },
		func(t *targetState) bool { return t.reboot.stage == stageBefore && t.canWork() },
	}
	for _, matches := range choices {
		t := n.findTarget(func(t *targetState) bool { return t.isAdmittedHere() && matches(t) })
		if t == nil {
			continue
		}
		if t.reboot.stage != stageAwaiting {
			n.turn = t
		}
		return
	}
}

// usesTurn reports whether something of a target runs, or is to run. One that only waits for its proof needs no turn: what is to become
// true may be the work of another one.
func (t *targetState) usesTurn() bool { return t.hasWork || t.objects > 0 }

func (t *targetState) isAdmittedHere() bool { return t.exists && t.target.Visit.Admitted }

// canWork reports whether tasks of an admitted target may start.
func (t *targetState) canWork() bool {
	isStopped := t.rollout.Paused || t.rollout.Broken != nil || t.invalid != nil
	return !isStopped && t.target.Blocked == nil && !t.target.Leaving
}

// findStage finds out how far a target is, from what is recorded.
func (s rebootSharer) findStage(t *targetState) rebootStage {
	if t.invalid != nil || t.rollout.Broken != nil || t.isUnreadable() {
		return stageUnknown
	}
	b := s.newBoard(t)
	b.markHopeless()
	interrupts := interruptStarter{starter{b}}
	isBegun := func(k *boardTask) bool { return k.isOpenInterrupt() && (k.isBusy || k.hasBegun() && !k.isHopeless) }
	isOwed := func(k *boardTask) bool { return k.Reboot && k.isPending() }
	switch {
	case b.find(isBegun) != nil:
		return stageRebooting
	case t.target.Reboot.IsOver(t.node.BootID) || b.find(isOwed) == nil:
		return stageAfter
	case interrupts.isJoined():
		return stageAwaiting
	}
	return stageBefore
}

// isJoined reports whether the node records that the target awaits the reboot with all that is ready for it.
func (s interruptStarter) isJoined() bool {
	shared := s.target.target.Reboot
	ready, isUrgent := s.findReady()
	if shared == nil || shared.Boot != s.target.node.BootID || !isUrgent || s.findDelaying() != nil {
		return false
	}
	ids := taskIDs(ready)
	return len(ids) == len(shared.Tasks) && !slices.ContainsFunc(ids, func(id string) bool { return !slices.Contains(shared.Tasks, id) })
}

func taskIDs(tasks []*boardTask) []string {
	var out []string
	for _, k := range tasks {
		out = append(out, k.ID)
	}
	return out
}

// isRebooted reports whether the shared reboot carried out an interrupt, which nothing else has begun.
func (b *taskBoard) isRebooted(k *boardTask) bool {
	t := b.target
	isShared := t.exists && t.node.Ready && t.target.Reboot.Includes(k.ID, t.node.BootID)
	isUntouched := k.planned == rollout.StatePending && k.Object.Name == "" && !k.Object.Leaving && !k.hasBegun()
	return isShared && isUntouched && k.isInterrupt() && t.graph != nil && b.isReady(k)
}

// owesReboot reports whether a reboot belongs to the work of the target.
func (t *targetState) owesReboot() bool {
	return slices.ContainsFunc(t.target.Tasks, func(k rollout.Task) bool { return k.Reboot && k.State != rollout.StateDone })
}

// mayShare reports whether the rollout lets its reboot on this node be shared. What rolls back, or is removed, reboots alone.
func (t *targetState) mayShare() bool {
	isOrdinary := !t.rollout.Deleting && !t.target.Leaving && t.target.Rollback.Cause == nil
	return t.exists && t.rollout.SharesReboots && isOrdinary && t.node.BootID != ""
}

// joins reports whether a target that is not admitted may be admitted to a node on which others only await their reboot.
func (t *targetState) joins() bool {
	isFree := t.node.sharesReboots && t.node.awaitsReboot && t.node.turn == nil && t.node.joining == nil
	return isFree && !t.target.Visit.Admitted && !t.node.Sending && t.mayShare() && t.owesReboot()
}

// isCountedHere reports whether the node counts against the limit of the group of a target that joins others there.
func (t *targetState) isCountedHere() bool {
	return t.joins() && t.group.usage.useCount[t.target.Node] > 0
}

// isOfBatchHere reports whether another target on the node belongs to the open batch of the group of a target that joins it.
func (t *targetState) isOfBatchHere() bool {
	return t.joins() && t.node.findTarget(func(o *targetState) bool {
		return o.isAdmittedHere() && o.group == t.group && t.group.isMember(o)
	}) != nil
}

// findCompanion returns a target with which a reboot could be shared; nil if there is none.
func (t *targetState) findCompanion() *targetState {
	return t.node.findTarget(func(o *targetState) bool {
		isOpen := o != t && o.mayShare() && o.invalid == nil && o.owesReboot() && o.canWork() && !o.target.Visit.Skipped
		if !isOpen || o.target.Visit.Admitted {
			return isOpen
		}
		isStopped := o.rollout.barrier != nil || isStoppedByRollback(o)
		return !isStopped && o.findEarlierThan(t) == nil
	})
}

// findEarlierThan returns the first target of an earlier rollout of the sequence, other than one, that must finish on the node first.
func (t *targetState) findEarlierThan(other *targetState) *targetState {
	for e := t.node.firstTarget; e != t; e = e.nextOnNode {
		isOfSequence := e.rollout.Sequence == t.rollout.Sequence && !e.rollout.isBypassed()
		if e != other && isOfSequence && e.exists && e.isUnfinished() && !e.mayShare() {
			return e
		}
	}
	return nil
}

// checkTurn returns why a target waits for another one with which it shares the node.
func (s starter) checkTurn() (why rollout.Why, waits bool) {
	t, n := s.target, s.target.node
	if !n.sharesReboots {
		return rollout.Why{}, false
	}
	other := n.turn
	if other == nil {
		other = n.findTarget(func(o *targetState) bool { return o.reboot.stage == stageAwaiting && o.canWork() })
	}
	isOwnTurn := other == t || t.reboot.stage == stageAwaiting && n.turn == nil || t.isAdmittedNow
	if isOwnTurn || other == nil {
		other = n.findTarget(func(o *targetState) bool { return o != t && o.isAdmittedHere() && o.objects > 0 })
	}
	switch {
	case other == nil:
		return rollout.Why{}, false
	case t.reboot.stage == stageAwaiting && other.reboot.stage == stageBefore && !isOwnTurn:
		return t.sharedReason("it waits until " + other.rollout.title + " is ready for the same reboot"), true
	}
	return other.rollout.reasonToWait(rollout.ReasonOccupied), true
}

// yield deletes the objects of a paused target that failed, where another one waits until nothing of it runs. What runs there ends.
func (s starter) yield() {
	t := s.target
	isWaitedFor := t.node.sharesReboots && t.node.turn != t && t.reboot.stage == stageBefore
	other := t.node.findTarget(func(o *targetState) bool { return o != t && o.isAdmittedHere() && o.canWork() })
	if isWaitedFor && t.rollout.Paused && other != nil {
		s.sweepFailing(other.rollout.reasonToWait(rollout.ReasonOccupied))
	}
}

func (t *targetState) sharedReason(text string) rollout.Why {
	return rollout.Why{Reason: rollout.ReasonSharedReboot, Text: rollout.Shorten("everything before the reboot is done; " + text)}
}

// shareReboot has an interrupt that could start now wait for others that share the reboot, and reports whether it does. It is recorded
// that the target awaits the reboot before others begin.
func (s interruptStarter) shareReboot(k *boardTask, covered []*boardTask) bool {
	t := s.target
	isShared := t.mayShare() && k.Reboot && !k.hasBegun() && !t.target.Reboot.IsOver(t.node.BootID)
	switch {
	case t.reboot.stage == stageAwaiting && !k.hasBegun():
		t.reboot.postponed = s.postponeStart(k, covered)
		s.reportVerdict(weightWaiting, rollout.PhaseInFlight, t.sharedReason("others that owe one may share it"))
		return true
	case !isShared || k.failures > 0 || t.findCompanion() == nil:
		return false
	}
	a := s.plan.addAction(t, rollout.VerbJoin, t.sharedReason("others that owe one may share it"))
	a.Task, a.Covers = k.ID, append(taskIDs(covered), k.ID)
	slices.Sort(a.Covers)
	s.reportVerdict(weightWaiting, rollout.PhaseInFlight, a.Why)
	return true
}

// postponedReboot is an interrupt that starts in this plan unless others join the reboot.
type postponedReboot struct {
	board   taskBoard
	task    int
	covered []int
}

func (s interruptStarter) postponeStart(k *boardTask, covered []*boardTask) *postponedReboot {
	out := &postponedReboot{board: *s.taskBoard, task: k.index}
	out.board.tasks = slices.Clone(s.tasks) // the board is used again
	for _, c := range covered {
		out.covered = append(out.covered, c.index)
	}
	return out
}

// startReboots reboots the nodes on which every target that shares the reboot awaits it, and which no other one joins.
func (s rebootSharer) startReboots() {
	for i := range s.nodes {
		n := &s.nodes[i]
		if n.sharesReboots && n.turn == nil && n.joining == nil {
			s.startReboot(n)
		}
	}
}

func (s rebootSharer) startReboot(n *nodeState) {
	awaits := func(t *targetState) bool { return t.reboot.stage == stageAwaiting && t.canWork() && t.passesGates }
	first := n.findTarget(func(t *targetState) bool { return awaits(t) && t.reboot.postponed != nil })
	if first == nil {
		return
	}
	isHeldUp := func(t *targetState) bool { return awaits(t) && t.reboot.postponed == nil }
	other := cmp.Or(n.findTarget(isHeldUp), n.findTarget((*targetState).joinsSoon))
	for t := n.firstTarget; t != nil; t = t.nextOnNode {
		isWaiting := t.reboot.postponed != nil && (other != nil || t != first)
		switch {
		case isWaiting && other != nil:
			t.verdict.Why = t.sharedReason("it waits until " + other.rollout.title + " is ready for the same reboot")
		case isWaiting:
			t.verdict.Why = t.sharedReason(first.rollout.title + " reboots the node")
		}
	}
	if other == nil {
		s.startPostponed(first)
	}
}

// joinsSoon reports whether a target joins the others as soon as something is stored, or its pods are listed.
func (t *targetState) joinsSoon() bool {
	if !t.passesGates || !t.joins() || t.verdict.Phase != rollout.PhaseWaiting {
		return false
	}
	return t.verdict.Why.Reason == rollout.ReasonLedger || t.verdict.Why.Reason == rollout.ReasonUpNext
}

// startPostponed starts the interrupt of a target, and says why others do not share it.
func (s rebootSharer) startPostponed(t *targetState) {
	b := &t.reboot.postponed.board
	var covered []*boardTask
	for _, i := range t.reboot.postponed.covered {
		covered = append(covered, &b.tasks[i])
	}
	b.weight = 0
	a := interruptStarter{starter{b}}.startAlone(&b.tasks[t.reboot.postponed.task], covered)
	alone := t.node.findTarget(func(o *targetState) bool {
		isLeftBehind := o.isAdmittedHere() && o.reboot.stage == stageBefore && o.owesReboot()
		return isLeftBehind || o.exists && o.passesGates && o.joins()
	})
	if alone != nil {
		a.Why.Text = rollout.Shorten(a.Why.Text + "; " + alone.rollout.title + " does not share the reboot: " + alone.verdict.Why.Text)
		a.Why.About = alone.rollout.title
	}
	t.verdict = b.verdict
}
