// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"strconv"
	"time"
)

// taskBoard is where one target is advanced: its tasks as they will be when this plan is applied so far.
type taskBoard struct {
	tasks          []Task // of the target
	target         *targetState
	state          []State
	attempts       []int       // failed attempts
	failedAt       []time.Time // end of the last failed one
	busy           []bool      // an object of the task may be at work
	hopeless       []bool      // its outcome is a final failure, or it waits for one that is
	weight         int         // of the verdict so far
	verdict        Verdict
	quietChecked   bool // whether the node is quiet
	isQuiet        bool // it is: held by the rollout, and nobody is in the way
	isNodeReturned bool // the node was given back
}

// How much a verdict matters: the weightiest is said.
const (
	weightUpNext = iota + 1
	weightBehind
	weightWorking
	weightWaiting
	weightStuck
	weightFailing
	weightFailed
)

func (b *taskBoard) setVerdict(weight int, phase Phase, why Why) {
	if weight > b.weight {
		b.weight, b.verdict = weight, Verdict{Phase: phase, Why: why}
	}
}

// addAction adds an action for a target to the plan.
func (p *planner) addAction(t *targetState, v Verb, why Why) *Action {
	p.plan.Actions = append(p.plan.Actions, Action{Verb: v, Rollout: t.rollout.Ref, Node: t.target.Node, Why: why})
	return &p.plan.Actions[len(p.plan.Actions)-1]
}

// advance takes a target as far as it can go now:
//
//	hold → wait → evict → (gone) → run → record → … → release → retire
//
// What ended is recorded in any case; something starts only on a target that passed the gates.
func (p *planner) advance(t *targetState) {
	switch {
	case !t.exists || t.invalid != nil || t.rollout.Broken != nil || t.isUnreadable():
		return // nothing is known well enough to touch it
	case !t.target.Admitted:
		p.cleanUp(t)
		return
	}
	b := p.newBoard(t)
	p.recordOutcomes(b)
	switch {
	case b.isDone():
		p.retireDone(b, Why{Reason: ReasonFinished, Text: "nothing is owed any more"})
	case t.target.Leaving:
		p.retireLeaving(b)
	case !t.passesGates:
		return
	case t.rollout.Deleting && b.isHopeless():
		p.giveUp(b)
	case t.rollout.Once && t.hasFailed && !b.isWorking():
		p.retireFailed(b)
	default:
		p.startTasks(b)
		t.verdict = b.verdict
	}
}

// cleanUp takes away what is left on a node that is not in flight.
func (p *planner) cleanUp(t *targetState) {
	if t.rollout.Paused && t.hasWork && !t.target.Leaving {
		return
	}
	p.sweepStrays(t)
	if t.isHeld && !(t.target.Skipped && t.rollout.KeepHeld && !t.rollout.Deleting) {
		t.isHeld = false // should the target be admitted by this very plan, it has to hold its node anew
		p.addAction(t, VerbRelease, Why{Reason: ReasonLeft, Text: "nothing is under way on the node"})
	}
	if t.rollout.Deleting && !t.hasWork {
		p.untaintRetiring(t)
		p.addAction(t, VerbRetire, Why{Reason: ReasonFinished, Text: "nothing is owed any more"}).Wipe = true
	}
}

func (p *planner) sweepStrays(t *targetState) {
	for _, object := range t.target.Strays {
		p.addAction(t, VerbSweep, Why{Reason: ReasonReplaced, Text: object + " belongs to nothing that is owed", About: object}).Object = object
	}
}

// newBoard puts the tasks of a target on the bench.
func (p *planner) newBoard(t *targetState) *taskBoard {
	b, n := &p.board, len(t.target.Tasks)
	*b = taskBoard{target: t, tasks: t.target.Tasks, state: b.state[:0], attempts: b.attempts[:0], failedAt: b.failedAt[:0], busy: b.busy[:0], hopeless: b.hopeless[:0]}
	for i := range t.target.Tasks {
		task := &t.target.Tasks[i]
		state := task.State
		if state == StateRunning && task.Object == "" {
			state = StatePending // lost: it has to run again
		}
		b.state = append(b.state, state)
		b.attempts = append(b.attempts, task.Attempts)
		b.failedAt = append(b.failedAt, task.FailedAt)
		b.busy = append(b.busy, task.Object != "" && (state == StateRunning || state == StateFailing))
	}
	b.hopeless = append(b.hopeless, make([]bool, n)...)
	return b
}

func (b *taskBoard) isDone() bool {
	for i := range b.state {
		if b.state[i] != StateDone {
			return false
		}
	}
	return true
}

// isWorking says that some object may be at work.
func (b *taskBoard) isWorking() bool {
	for i := range b.busy {
		if b.busy[i] && b.state[i] == StateRunning {
			return true
		}
	}
	return false
}

// isHopeless says that nothing that is left can ever end well, and nothing works.
func (b *taskBoard) isHopeless() bool {
	for i := range b.state {
		if b.state[i] != StateDone && !b.hopeless[i] {
			return false
		}
	}
	return !b.isWorking()
}

// recordOutcomes records what ended, then sweeps it. Until a task is Done here nothing that waits for it starts.
func (p *planner) recordOutcomes(b *taskBoard) {
	tasks := b.tasks
	for i := range tasks {
		switch task := &tasks[i]; {
		case b.state[i] == StateSucceeded:
			p.recordDone(b, i)
		case b.state[i] == StateDone && task.Need == NeedAlone:
			p.recordCovered(b, i)
		case b.state[i] == StateRunning && task.isExpired(p.Now):
			p.recordExpired(b, i)
		case b.state[i] == StateFailing && (task.Recorded != StateFailing || task.Noted > 0 && task.Attempts > task.Noted):
			p.addRecord(b, i, withDefaultReason(task.Why, ReasonStageFailed))
		}
	}
	for i := range tasks {
		p.sweepTask(b, i)
	}
	if !b.target.rollout.Paused {
		p.sweepStrays(b.target)
	}
	b.findHopeless()
}

// recordDone records a task that ended well, and first those whose work it did: were its own record written alone, they
// would look as if they still had to run.
func (p *planner) recordDone(b *taskBoard, i int) {
	p.recordCovered(b, i)
	b.state[i], b.busy[i] = StateDone, false
	p.addRecord(b, i, Why{Reason: ReasonEnded, Text: taskLabel(&b.tasks[i]) + " ended well"})
}

func (p *planner) recordCovered(b *taskBoard, by int) {
	tasks := b.tasks
	for i := range tasks {
		if tasks[i].CoveredBy == tasks[by].ID && i != by && b.state[i] != StateDone && !b.busy[i] {
			b.state[i] = StateDone
			p.addRecord(b, i, Why{Reason: ReasonCovered, Text: taskLabel(&tasks[by]) + " did this as well"})
		}
	}
}

// recordExpired records an attempt that took too long as failed. An attempt that is recorded already is only swept.
func (p *planner) recordExpired(b *taskBoard, i int) {
	task := &b.tasks[i]
	b.state[i] = StateFailing
	if task.Leaving || task.Recorded == StateFailing && !task.FailedAt.Before(task.Started.Add(task.Limit)) {
		return
	}
	b.attempts[i]++
	b.failedAt[i] = p.Now
	p.addRecord(b, i, task.expiredReason(b.target.node.Node))
}

func (p *planner) addRecord(b *taskBoard, i int, why Why) {
	a := p.addAction(b.target, VerbRecord, why)
	a.Task, a.State, a.Attempts = b.tasks[i].ID, b.state[i], b.attempts[i]
}

// sweepTask deletes the object of a task whose outcome is recorded, or that will not get anywhere.
func (p *planner) sweepTask(b *taskBoard, i int) {
	task := &b.tasks[i]
	if task.Object == "" {
		return
	}
	var why Why
	switch {
	case b.state[i] == StateDone:
		why = Why{Reason: ReasonEnded, Text: taskLabel(task) + " is recorded"}
	case task.isExpired(p.Now):
		why = task.expiredReason(b.target.node.Node)
	case task.Dead:
		why = withDefaultReason(task.Why, ReasonPodLost)
	case task.Stale && (b.state[i] == StateFailing || task.Why != nil) && !b.target.rollout.Paused:
		why = Why{Reason: ReasonReplaced, Text: "the definition of " + taskLabel(task) + " changed"}
	case b.state[i] == StateFailing && task.Bounded && task.isFinal(b.attempts[i]):
		why = withDefaultReason(task.Why, ReasonStageFailed)
	default:
		if task.Limit > 0 && !task.Started.IsZero() {
			p.requestNext(task.Started.Add(task.Limit))
		}
		return
	}
	if !task.Leaving {
		p.addSweep(b, i, why)
	}
}

func (p *planner) addSweep(b *taskBoard, i int, why Why) {
	task := &b.tasks[i]
	a := p.addAction(b.target, VerbSweep, why)
	a.Task, a.Object = task.ID, task.Object
}

// findHopeless marks what can no longer end well by itself: final failures, and all that waits for them.
func (b *taskBoard) findHopeless() {
	if b.target.graph == nil { // nothing is owed
		return
	}
	for _, i := range b.target.graph.order {
		b.hopeless[i] = b.state[i] != StateDone && b.tasks[i].isFinal(b.attempts[i])
		for _, j := range b.target.graph.after[i] {
			b.hopeless[i] = b.hopeless[i] || b.hopeless[j]
		}
	}
}

// retireDone gives the node back, and the seat as soon as it may.
func (p *planner) retireDone(b *taskBoard, why Why) {
	t := b.target
	if t.isHeld {
		p.addAction(t, VerbRelease, why)
	}
	if t.awaitNodeNumber() {
		return
	}
	t.isRetired = true
	p.untaintRetiring(t)
	p.addAction(t, VerbRetire, why).Wipe = t.rollout.Deleting
	t.verdict = Verdict{Phase: PhaseFinished, Why: why}
}

// awaitNodeNumber says that nobody but the node knows its number yet: were it given back now, the next node could get the
// same. It is not long until the status says which number comes next.
func (t *targetState) awaitNodeNumber() bool {
	if !t.rollout.Numbered || t.rollout.NextOrder > t.target.Order {
		return false
	}
	t.verdict = Verdict{Phase: PhaseInFlight, Why: Why{Reason: ReasonLedger,
		Text: "everything is done; the node is given back when its number, " + strconv.Itoa(t.target.Order) + ", is stored"}}
	return true
}

// sweepFailing deletes the objects of tasks that failed and would be tried again.
func (p *planner) sweepFailing(b *taskBoard, why Why) {
	for i := range b.busy {
		if task := &b.tasks[i]; b.busy[i] && b.state[i] == StateFailing && !task.Leaving && !p.isSwept(b, task.Object) {
			p.addSweep(b, i, why)
		}
	}
}

// isSwept says that this plan deletes the object already.
func (p *planner) isSwept(b *taskBoard, object string) bool {
	for i := len(p.plan.Actions) - 1; i >= 0; i-- {
		a := &p.plan.Actions[i]
		if a.Rollout != b.target.rollout.Ref || a.Node != b.target.target.Node {
			return false
		}
		if a.Verb == VerbSweep && a.Object == object {
			return true
		}
	}
	return false
}

// retireLeaving lets the running task end on a node that is no longer selected, then gives the node back as it is.
func (p *planner) retireLeaving(b *taskBoard) {
	why := Why{Reason: ReasonLeft, Text: "the node is no longer selected"}
	if b.isWorking() {
		why.Text += "; what runs there may end"
		b.target.verdict = Verdict{Phase: PhaseInFlight, Why: why}
		return
	}
	p.sweepFailing(b, why)
	if b.target.isHeld {
		p.addAction(b.target, VerbRelease, why)
	}
	if b.target.awaitNodeNumber() {
		return
	}
	p.addAction(b.target, VerbRetire, why)
	b.target.verdict = Verdict{Phase: PhaseFinished, Why: why}
}

// giveUp lets a deletion go on without this node: what is left there can never end well.
func (p *planner) giveUp(b *taskBoard) {
	why := Why{Reason: ReasonGiveUp, Text: "the deletion goes on without this node"}
	for i := range b.state {
		if task := &b.tasks[i]; b.state[i] != StateDone && task.isFinal(b.attempts[i]) {
			what := taskLabel(task) + " failed"
			if task.Why != nil {
				what = task.Why.Text
			}
			why.Text = truncate(why.Text + ": " + what)
			break
		}
	}
	p.sweepFailing(b, why)
	p.retireDone(b, why)
	if b.target.isRetired {
		b.target.verdict = Verdict{Phase: PhaseFailed, Why: why}
	}
}

// retireFailed retires a target that failed for good and is not to be tried again.
func (p *planner) retireFailed(b *taskBoard) {
	why := Why{Reason: ReasonStageFailed, Text: "it failed and is not tried again"}
	for i := range b.state {
		if task := &b.tasks[i]; b.state[i] != StateDone && task.isFinal(b.attempts[i]) {
			why = withDefaultReason(task.Why, ReasonStageFailed)
			break
		}
	}
	p.sweepFailing(b, why)
	if b.target.isHeld && !b.target.rollout.KeepHeld {
		p.addAction(b.target, VerbRelease, why)
	}
	if b.target.awaitNodeNumber() {
		return
	}
	p.addAction(b.target, VerbRetire, why).Skip = true
	b.target.verdict = Verdict{Phase: PhaseFailed, Why: why}
}
