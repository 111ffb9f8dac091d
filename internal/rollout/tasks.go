// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"slices"
	"strconv"
)

// startTasks runs what may run now on a target that passed the gates, and says what the rest waits for.
func (p *planner) startTasks(b *taskBoard) {
	b.setVerdict(weightUpNext, PhaseInFlight, Why{Reason: ReasonUpNext, Text: "nothing is in the way"})
	p.reportTaskStates(b)
	if b.isInterrupted() {
		return // nothing starts beside an interrupt
	}
	if o := b.target.node.interrupted; o != nil && o != b.target {
		b.setVerdict(weightWaiting, PhaseInFlight, o.rollout.reasonToWait(ReasonOccupied))
		return
	}
	if !b.target.node.Ready {
		b.setVerdict(weightWaiting, PhaseInFlight, notReadyReason(b.target.node.Node))
		return
	}
	if i := b.findBegunInterrupt(); i >= 0 {
		p.startInterrupt(b, i, b.findCovered(i))
		return
	}
	ready, hopeful := b.findReadyInterrupts()
	p.startPlainTasks(b, hopeful)
	if len(ready) == 0 || b.isNodeReturned {
		return
	}
	if i := b.findDelayingTask(); i >= 0 {
		b.setVerdict(weightBehind, PhaseInFlight, Why{Reason: ReasonInterruptGroup,
			Text: taskLabel(&b.tasks[ready[0]]) + " waits for " + taskLabel(&b.tasks[i])})
		return
	}
	i := b.findStrongest(ready)
	others := slices.DeleteFunc(ready, func(j int) bool { return j == i })
	if b.hasBegun(i) {
		others = b.findCovered(i)
	}
	p.startInterrupt(b, i, others)
}

// reportTaskStates says what works, what is stuck and what failed.
func (p *planner) reportTaskStates(b *taskBoard) {
	for i := range b.state {
		task := &b.tasks[i]
		switch {
		case b.state[i] == StateDone:
		case b.state[i] == StateFailing || b.attempts[i] > 0: // until it ends well, also while it runs again
			weight, phase := weightFailing, PhaseFailing
			if task.isFinal(b.attempts[i]) {
				weight, phase = weightFailed, PhaseFailed
			}
			b.setVerdict(weight, phase, p.describeFailure(b, i))
		case b.state[i] == StateRunning && task.Why != nil:
			b.setVerdict(weightStuck, PhaseInFlight, withDefaultReason(task.Why, ReasonWorking))
		case b.state[i] == StateRunning:
			b.setVerdict(weightWorking, PhaseInFlight, Why{Reason: ReasonWorking, Text: taskLabel(task) + " runs", About: task.Object, Since: task.Started})
		case task.Leaving && b.areDependenciesDone(i):
			b.setVerdict(weightWaiting, PhaseInFlight, withDefaultReason(task.Why, ReasonPodLost))
		}
	}
}

// describeFailure says how often a task failed, how the last attempt did, and whether there will be another.
func (p *planner) describeFailure(b *taskBoard, i int) Why {
	task := &b.tasks[i]
	why := Why{Reason: ReasonStageFailed, Text: taskLabel(task) + " failed"}
	if task.Why != nil {
		why = withDefaultReason(task.Why, ReasonStageFailed)
	}
	if task.isExpired(p.Now) {
		why = task.expiredReason(b.target.node.Node)
	}
	if why.Since.IsZero() {
		why.Since = b.failedAt[i]
	}
	again := "it is tried again"
	switch {
	case b.state[i] == StateRunning:
		again = "it runs again"
	case task.Bounded && task.isFinal(b.attempts[i]):
		again = "it is not tried again before its definition changes"
	}
	if b.attempts[i] > 1 {
		again = strconv.Itoa(b.attempts[i]) + " attempts failed, " + again
	}
	why.Text = truncate(why.Text + "; " + again)
	return why
}

// isInterrupted says that an interrupt is under way.
func (b *taskBoard) isInterrupted() bool {
	for i := range b.busy {
		if b.busy[i] && b.tasks[i].Need == NeedAlone {
			return true
		}
	}
	return false
}

// findBegunInterrupt is an interrupt that was started and has not ended, though no object works for it now; -1 when there is
// none. It may have happened, so it goes on before anything else, and does no more than what it was started for. One
// that failed for good no longer keeps the others waiting.
func (b *taskBoard) findBegunInterrupt() int {
	for i := range b.state {
		if b.tasks[i].Need == NeedAlone && b.state[i] != StateDone && !b.hopeless[i] && b.areDependenciesDone(i) && b.hasBegun(i) {
			return i
		}
	}
	return -1
}

func (b *taskBoard) hasBegun(i int) bool {
	recorded := b.tasks[i].Recorded
	return recorded == StateRunning || recorded == StateFailing
}

func (b *taskBoard) findCovered(by int) []int {
	var out []int
	for i := range b.state {
		if b.tasks[i].CoveredBy == b.tasks[by].ID && b.state[i] != StateDone {
			out = append(out, i)
		}
	}
	return out
}

// findStrongest of several interrupts; the first of those that are equally strong.
func (b *taskBoard) findStrongest(of []int) int {
	best := of[0]
	for _, i := range of {
		if b.tasks[i].Strength > b.tasks[best].Strength {
			best = i
		}
	}
	return best
}

// areDependenciesDone says that everything a task waits for is recorded.
func (b *taskBoard) areDependenciesDone(i int) bool {
	for _, j := range b.target.graph.after[i] {
		if b.state[j] != StateDone {
			return false
		}
	}
	return true
}

// findReadyInterrupts are the interrupts whose packages are through, those that another covers included. Interrupts that
// failed for good do their work apart from the others: they are ready when no other is, and keep nobody waiting.
func (b *taskBoard) findReadyInterrupts() (ready []int, hopeful bool) {
	var failed []int
	for i := range b.state {
		task := &b.tasks[i]
		switch {
		case task.Need != NeedAlone || b.state[i] == StateDone || !b.areDependenciesDone(i):
		case !b.hopeless[i]:
			ready = append(ready, i)
		case !task.Bounded:
			failed = append(failed, i)
		}
	}
	if len(ready) == 0 {
		return failed, false
	}
	return ready, true
}

// findDelayingTask is a task that can still go on without any interrupt; -1 when there is none. What failed for good
// holds nobody back, nor does what itself waits for an interrupt.
func (b *taskBoard) findDelayingTask() int {
	behind := make([]bool, len(b.state)) // an interrupt
	first := -1
	for _, i := range b.target.graph.order {
		behind[i] = b.tasks[i].Need == NeedAlone && b.state[i] != StateDone
		for _, j := range b.target.graph.after[i] {
			behind[i] = behind[i] || behind[j]
		}
		if b.state[i] != StateDone && !behind[i] && !b.hopeless[i] && (first < 0 || i < first) {
			first = i
		}
	}
	return first
}

// isDue says that a task may be tried now.
func (p *planner) isDue(b *taskBoard, i int) bool {
	task := &b.tasks[i]
	switch {
	case b.busy[i] || task.Object != "" && b.state[i] != StateDone || task.Leaving:
		return false // its object has to go first
	case b.attempts[i] == 0:
		return true
	case task.Bounded && task.isFinal(b.attempts[i]):
		return false
	}
	at := b.failedAt[i].Add(Backoff(b.attempts[i]))
	p.requestNext(at)
	return !p.Now.Before(at)
}

// startPlainTasks runs the tasks that need no interrupt's peace. When an interrupt is ready, tasks whose failure is final
// are not tried again before it.
func (p *planner) startPlainTasks(b *taskBoard, interruptReady bool) {
	turn := -1
	if b.target.rollout.Serial {
		if turn = b.nextSerialTask(interruptReady); turn < 0 {
			return
		}
	}
	for i := range b.state {
		task := &b.tasks[i]
		switch {
		case task.Need == NeedAlone || b.state[i] == StateDone || b.busy[i]:
			continue
		case !b.areDependenciesDone(i):
			b.setVerdict(weightBehind, PhaseInFlight, Why{Reason: ReasonDependency, Text: taskLabel(task) + " waits for what it depends on"})
			continue
		case interruptReady && b.hopeless[i]:
			continue
		case turn >= 0 && i != turn:
			b.setVerdict(weightBehind, PhaseInFlight, Why{Reason: ReasonSerial, Text: taskLabel(task) + " waits for " + taskLabel(&b.tasks[turn])})
			continue
		case !p.isDue(b, i):
			continue
		case task.Need == NeedDrained && !p.ensureQuiet(b, i):
			if b.isNodeReturned {
				return
			}
			continue
		}
		p.startTask(b, i)
	}
}

// nextSerialTask is the task whose turn it is when one runs at a time: the one that works or is to be tried again, else the
// first that can. A final failure does not keep its turn. -1 while one works.
func (b *taskBoard) nextSerialTask(interruptReady bool) int {
	turn := -1
	for i := range b.state {
		if b.state[i] == StateDone || b.tasks[i].Need == NeedAlone {
			continue
		}
		if b.busy[i] {
			return -1
		}
		if !b.areDependenciesDone(i) || interruptReady && b.hopeless[i] || b.tasks[i].Bounded && b.hopeless[i] {
			continue
		}
		if turn < 0 || b.serialRank(i) < b.serialRank(turn) {
			turn = i
		}
	}
	return turn
}

// serialRank orders what competes for one turn: what failed and may still end well, then the rest, then final failures.
func (b *taskBoard) serialRank(i int) int {
	switch {
	case b.hopeless[i]:
		return 2
	case b.state[i] == StateFailing:
		return 0
	}
	return 1
}

func (p *planner) startTask(b *taskBoard, i int) *Action {
	task := &b.tasks[i]
	why := Why{Reason: ReasonOwed, Text: taskLabel(task)}
	switch {
	case b.attempts[i] > 0:
		why = Why{Reason: ReasonRetry, Text: taskLabel(task) + ", attempt " + strconv.Itoa(b.attempts[i]+1)}
	case task.Lost:
		why = Why{Reason: ReasonPodLost, Text: taskLabel(task) + " again: nothing works on it any more"}
	}
	b.state[i], b.busy[i] = StateRunning, true
	b.target.node.objects++
	b.setVerdict(weightWorking, PhaseInFlight, Why{Reason: ReasonWorking, Text: taskLabel(task) + " starts"})
	a := p.addAction(b.target, VerbRun, why)
	a.Task = task.ID
	return a
}

// startInterrupt runs an interrupt that does the work of others as well. Nothing else of ours may be at work on the
// node, whichever rollout it belongs to.
func (p *planner) startInterrupt(b *taskBoard, i int, covered []int) {
	task := &b.tasks[i]
	why := Why{Reason: ReasonInterruptGroup, Text: taskLabel(task) + " waits until the node is left alone"}
	p.sweepFailing(b, why)
	if b.target.node.objects > 0 {
		b.setVerdict(weightWaiting, PhaseInFlight, why)
		return
	}
	if !p.isDue(b, i) || !p.ensureQuiet(b, i) {
		return
	}
	var covers []string
	for _, j := range covered {
		c := &b.tasks[j]
		covers = append(covers, c.ID)
		if c.CoveredBy != task.ID {
			a := p.addAction(b.target, VerbCover, Why{Reason: ReasonCovered, Text: taskLabel(task) + " does this as well"})
			a.Task, a.By = c.ID, task.ID
		}
	}
	p.startTask(b, i).Covers = covers
}
