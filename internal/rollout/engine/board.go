// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// taskBoard has the tasks of one target as they will be when the plan so far is applied.
type taskBoard struct {
	plan           *draftPlan
	target         *targetState
	tasks          []boardTask
	weight         int // of the verdict so far
	verdict        rollout.Verdict
	isDrainedKnown bool
	isDrained      bool // the rollout holds the node, and no pod is in the way
	isNodeReturned bool // the node was given back
	continues      bool // tasks may begin
}

// boardTask is a task as it will be when the plan so far is applied.
type boardTask struct {
	*rollout.Task // as it is in the snapshot
	index         int
	planned       rollout.State // what State will be
	failures      int           // what Attempts will be
	lastFailure   time.Time     // what FailedAt will be
	isBusy        bool          // an object of the task may be running
	isHopeless    bool          // its outcome is a final failure, or it waits for a task whose outcome is
}

// Weights of verdicts: of several the one with the largest weight is reported.
const (
	weightUpNext = iota + 1
	weightBehind
	weightWorking
	weightWaiting
	weightStuck
	weightFailing
	weightFailed
	weightSkipped
)

// newBoard reads the tasks of a target. The board is valid until the next call.
func (p *planner) newBoard(t *targetState) *taskBoard {
	b := &p.board
	*b = taskBoard{plan: &p.plan, target: t, tasks: b.tasks[:0]}
	for i := range t.target.Tasks {
		b.tasks = append(b.tasks, newBoardTask(&t.target.Tasks[i], i))
	}
	for i := range b.tasks {
		if k := &b.tasks[i]; b.isRebooted(k) {
			k.planned = rollout.StateSucceeded
		}
	}
	return b
}

func newBoardTask(task *rollout.Task, index int) boardTask {
	planned := task.State
	isObjectLost := task.State == rollout.StateRunning && task.Object.Name == ""
	if isObjectLost {
		planned = rollout.StatePending
	}
	mayRun := planned == rollout.StateRunning || planned == rollout.StateFailing
	return boardTask{
		Task:        task,
		index:       index,
		planned:     planned,
		failures:    task.Attempts.Failed,
		lastFailure: task.Attempts.FailedAt,
		isBusy:      mayRun && task.Object.Name != "",
	}
}

// reportVerdict keeps a verdict if it has a larger weight than the verdict so far.
func (b *taskBoard) reportVerdict(weight int, phase rollout.Phase, why rollout.Why) {
	if weight > b.weight {
		b.weight, b.verdict = weight, rollout.Verdict{Phase: phase, Why: why}
	}
}

// isDone reports whether all outcomes are recorded.
func (b *taskBoard) isDone() bool {
	return b.find((*boardTask).isPending) == nil
}

// isWorking reports whether some object may be running.
func (b *taskBoard) isWorking() bool {
	return b.isGoingOn() || b.find((*boardTask).isRunning) != nil
}

// isInterrupted reports whether an interrupt is running.
func (b *taskBoard) isInterrupted() bool {
	return b.find(func(k *boardTask) bool { return k.isBusy && k.isInterrupt() }) != nil
}

// isHopeless reports whether nothing that is left can end well, and nothing is running.
func (b *taskBoard) isHopeless() bool {
	hopeful := b.find(func(k *boardTask) bool { return k.isPending() && !k.isHopeless })
	return hopeful == nil && !b.isWorking()
}

// find returns the first task that matches; nil if there is none.
func (b *taskBoard) find(matches func(*boardTask) bool) *boardTask {
	return find(b.tasks, matches)
}

// findAll returns all tasks that match.
func (b *taskBoard) findAll(matches func(*boardTask) bool) []*boardTask {
	var out []*boardTask
	for i := range b.tasks {
		if matches(&b.tasks[i]) {
			out = append(out, &b.tasks[i])
		}
	}
	return out
}

// findFinalFailure returns the first task whose outcome is a final failure; nil if there is none.
func (b *taskBoard) findFinalFailure() *boardTask {
	return b.find((*boardTask).hasFinallyFailed)
}

// dependenciesOf returns the indices of the tasks that a task waits for.
func (b *taskBoard) dependenciesOf(k *boardTask) []int {
	return b.target.graph.After[k.index]
}

// isReady reports whether all tasks for which a task waits are recorded as done.
func (b *taskBoard) isReady(k *boardTask) bool {
	isPending := func(i int) bool { return b.tasks[i].isPending() }
	return !slices.ContainsFunc(b.dependenciesOf(k), isPending)
}

// markHopeless marks final failures and all tasks that wait for them.
func (b *taskBoard) markHopeless() {
	if b.target.graph == nil { // there is no work
		return
	}
	isHopeless := func(i int) bool { return b.tasks[i].isHopeless }
	for _, i := range b.target.graph.Order {
		k := &b.tasks[i]
		k.isHopeless = k.hasFinallyFailed() || slices.ContainsFunc(b.dependenciesOf(k), isHopeless)
	}
}

// sweepFailing deletes the objects of tasks that failed and would be retried.
func (b *taskBoard) sweepFailing(why rollout.Why) {
	for i := range b.tasks {
		k := &b.tasks[i]
		isFailing := k.isBusy && k.planned == rollout.StateFailing
		if !isFailing || k.Object.Leaving || b.plan.hasSweep(b.target, k.Object.Name) {
			continue
		}
		b.addSweep(k, why)
	}
}

func (b *taskBoard) addSweep(k *boardTask, why rollout.Why) {
	a := b.plan.addAction(b.target, rollout.VerbSweep, why)
	a.Task, a.Object = k.ID, k.Object.Name
}

// isPending reports whether the task is not recorded as done.
func (k *boardTask) isPending() bool { return k.planned != rollout.StateDone }

// isRunning reports whether an object may be running for the current attempt.
func (k *boardTask) isRunning() bool { return k.isBusy && k.planned == rollout.StateRunning }

func (k *boardTask) isInterrupt() bool { return k.Need == rollout.NeedAlone }

func (k *boardTask) isOpenInterrupt() bool { return k.isInterrupt() && k.isPending() }

// isPlain reports whether the task is not an interrupt and not recorded as done.
func (k *boardTask) isPlain() bool { return !k.isInterrupt() && k.isPending() }

// isFinal reports whether the failures so far are a final failure.
func (k *boardTask) isFinal() bool { return k.Task.IsFinal(k.failures) }

func (k *boardTask) hasFinallyFailed() bool { return k.isPending() && k.isFinal() }

// mayRetry reports whether a failed task is tried again.
func (k *boardTask) mayRetry() bool { return !k.Bounded || !k.isFinal() }

// hasBegun reports whether the record says that the task was started and has not ended.
func (k *boardTask) hasBegun() bool {
	return k.Recorded == rollout.StateRunning || k.Recorded == rollout.StateFailing
}
