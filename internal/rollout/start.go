// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"slices"
	"strconv"
)

// start runs what may run now on a target that passed the gates, and says what the rest waits for.
func (f *fleet) start(b *bench) {
	b.say(sayNext, PhaseInFlight, Why{Reason: ReasonUpNext, Text: "nothing is in the way"})
	f.sayHowTasksAre(b)
	if b.interrupted() {
		return // nothing starts beside an interrupt
	}
	if o := b.p.n.interrupted; o != nil && o != b.p {
		b.say(sayWaiting, PhaseInFlight, o.q.says(ReasonOccupied))
		return
	}
	if !b.p.n.Ready {
		b.say(sayWaiting, PhaseInFlight, notReady(b.p.n.Node))
		return
	}
	if i := b.begunInterrupt(); i >= 0 {
		f.startInterrupt(b, i, b.coveredBy(i))
		return
	}
	ready, hopeful := b.readyInterrupts()
	f.startTasks(b, hopeful)
	if len(ready) == 0 || b.over {
		return
	}
	if i := b.holdsInterruptsBack(); i >= 0 {
		b.say(sayBehind, PhaseInFlight, Why{Reason: ReasonInterruptGroup,
			Text: label(&b.p.t.Tasks[ready[0]]) + " waits for " + label(&b.p.t.Tasks[i])})
		return
	}
	i := b.strongest(ready)
	others := slices.DeleteFunc(ready, func(j int) bool { return j == i })
	if b.begun(i) {
		others = b.coveredBy(i)
	}
	f.startInterrupt(b, i, others)
}

// sayHowTasksAre says what works, what is stuck and what failed.
func (f *fleet) sayHowTasksAre(b *bench) {
	for i := range b.state {
		t := &b.p.t.Tasks[i]
		switch {
		case b.state[i] == StateDone:
		case b.state[i] == StateFailing || b.tries[i] > 0: // until it ends well, also while it runs again
			weight, phase := sayFailing, PhaseFailing
			if t.final(b.tries[i]) {
				weight, phase = sayFailed, PhaseFailed
			}
			b.say(weight, phase, f.failure(b, i))
		case b.state[i] == StateRunning && t.Why != nil:
			b.say(sayStuck, PhaseInFlight, because(t.Why, ReasonWorking))
		case b.state[i] == StateRunning:
			b.say(sayWorking, PhaseInFlight, Why{Reason: ReasonWorking, Text: label(t) + " runs", About: t.Object, Since: t.Started})
		case t.Leaving && b.afterDone(i):
			b.say(sayWaiting, PhaseInFlight, because(t.Why, ReasonPodLost))
		}
	}
}

// failure says how often a task failed, how the last attempt did, and whether there will be another.
func (f *fleet) failure(b *bench, i int) Why {
	t := &b.p.t.Tasks[i]
	why := Why{Reason: ReasonStageFailed, Text: label(t) + " failed"}
	if t.Why != nil {
		why = because(t.Why, ReasonStageFailed)
	}
	if t.expired(f.Now) {
		why = t.expiry(b.p.n.Node)
	}
	if why.Since.IsZero() {
		why.Since = b.since[i]
	}
	again := "it is tried again"
	switch {
	case b.state[i] == StateRunning:
		again = "it runs again"
	case t.Bounded && t.final(b.tries[i]):
		again = "it is not tried again before its definition changes"
	}
	if b.tries[i] > 1 {
		again = strconv.Itoa(b.tries[i]) + " attempts failed, " + again
	}
	why.Text = bounded(why.Text + "; " + again)
	return why
}

// interrupted says that an interrupt is under way.
func (b *bench) interrupted() bool {
	for i := range b.busy {
		if b.busy[i] && b.p.t.Tasks[i].Need == NeedAlone {
			return true
		}
	}
	return false
}

// begunInterrupt is an interrupt that was started and has not ended, though no object works for it now; -1 when there is
// none. It may have happened, so it goes on before anything else, and does no more than what it was started for. One
// that failed for good no longer keeps the others waiting.
func (b *bench) begunInterrupt() int {
	for i := range b.state {
		if b.p.t.Tasks[i].Need == NeedAlone && b.state[i] != StateDone && !b.dead[i] && b.afterDone(i) && b.begun(i) {
			return i
		}
	}
	return -1
}

func (b *bench) begun(i int) bool {
	recorded := b.p.t.Tasks[i].Recorded
	return recorded == StateRunning || recorded == StateFailing
}

func (b *bench) coveredBy(by int) []int {
	var out []int
	for i := range b.state {
		if b.p.t.Tasks[i].CoveredBy == b.p.t.Tasks[by].ID && b.state[i] != StateDone {
			out = append(out, i)
		}
	}
	return out
}

// strongest of several interrupts; the first of those that are equally strong.
func (b *bench) strongest(of []int) int {
	best := of[0]
	for _, i := range of {
		if b.p.t.Tasks[i].Strength > b.p.t.Tasks[best].Strength {
			best = i
		}
	}
	return best
}

// afterDone says that everything a task waits for is recorded.
func (b *bench) afterDone(i int) bool {
	for _, j := range b.p.graph.after[i] {
		if b.state[j] != StateDone {
			return false
		}
	}
	return true
}

// readyInterrupts are the interrupts whose packages are through, those that another covers included. Interrupts that
// failed for good do their work apart from the others: they are ready when no other is, and keep nobody waiting.
func (b *bench) readyInterrupts() (ready []int, hopeful bool) {
	var failed []int
	for i := range b.state {
		t := &b.p.t.Tasks[i]
		switch {
		case t.Need != NeedAlone || b.state[i] == StateDone || !b.afterDone(i):
		case !b.dead[i]:
			ready = append(ready, i)
		case !t.Bounded:
			failed = append(failed, i)
		}
	}
	if len(ready) == 0 {
		return failed, false
	}
	return ready, true
}

// holdsInterruptsBack is a task that can still go on without any interrupt; -1 when there is none. What failed for good
// holds nobody back, nor does what itself waits for an interrupt.
func (b *bench) holdsInterruptsBack() int {
	behind := make([]bool, len(b.state)) // an interrupt
	first := -1
	for _, i := range b.p.graph.order {
		behind[i] = b.p.t.Tasks[i].Need == NeedAlone && b.state[i] != StateDone
		for _, j := range b.p.graph.after[i] {
			behind[i] = behind[i] || behind[j]
		}
		if b.state[i] != StateDone && !behind[i] && !b.dead[i] && (first < 0 || i < first) {
			first = i
		}
	}
	return first
}

// due says that a task may be tried now.
func (f *fleet) due(b *bench, i int) bool {
	t := &b.p.t.Tasks[i]
	switch {
	case b.busy[i] || t.Object != "" && b.state[i] != StateDone || t.Leaving:
		return false // its object has to go first
	case b.tries[i] == 0:
		return true
	case t.Bounded && t.final(b.tries[i]):
		return false
	}
	at := b.since[i].Add(Backoff(b.tries[i]))
	f.wake(at)
	return !f.Now.Before(at)
}

// startTasks runs the tasks that need no interrupt's peace. When an interrupt is ready, tasks whose failure is final
// are not tried again before it.
func (f *fleet) startTasks(b *bench, interruptReady bool) {
	turn := -1
	if b.p.q.Serial {
		if turn = b.serialTurn(interruptReady); turn < 0 {
			return
		}
	}
	for i := range b.state {
		t := &b.p.t.Tasks[i]
		switch {
		case t.Need == NeedAlone || b.state[i] == StateDone || b.busy[i]:
			continue
		case !b.afterDone(i):
			b.say(sayBehind, PhaseInFlight, Why{Reason: ReasonDependency, Text: label(t) + " waits for what it depends on"})
			continue
		case interruptReady && b.dead[i]:
			continue
		case turn >= 0 && i != turn:
			b.say(sayBehind, PhaseInFlight, Why{Reason: ReasonSerial, Text: label(t) + " waits for " + label(&b.p.t.Tasks[turn])})
			continue
		case !f.due(b, i):
			continue
		case t.Need == NeedDrained && !f.isQuiet(b, i):
			if b.over {
				return
			}
			continue
		}
		f.run(b, i)
	}
}

// serialTurn is the task whose turn it is when one runs at a time: the one that works or is to be tried again, else the
// first that can. A final failure does not keep its turn. -1 while one works.
func (b *bench) serialTurn(interruptReady bool) int {
	turn := -1
	for i := range b.state {
		if b.state[i] == StateDone || b.p.t.Tasks[i].Need == NeedAlone {
			continue
		}
		if b.busy[i] {
			return -1
		}
		if !b.afterDone(i) || interruptReady && b.dead[i] || b.p.t.Tasks[i].Bounded && b.dead[i] {
			continue
		}
		if turn < 0 || b.rank(i) < b.rank(turn) {
			turn = i
		}
	}
	return turn
}

// rank orders what competes for one turn: what failed and may still end well, then the rest, then final failures.
func (b *bench) rank(i int) int {
	switch {
	case b.dead[i]:
		return 2
	case b.state[i] == StateFailing:
		return 0
	}
	return 1
}

func (f *fleet) run(b *bench, i int) *Action {
	t := &b.p.t.Tasks[i]
	why := Why{Reason: ReasonOwed, Text: label(t)}
	switch {
	case b.tries[i] > 0:
		why = Why{Reason: ReasonRetry, Text: label(t) + ", attempt " + strconv.Itoa(b.tries[i]+1)}
	case t.Lost:
		why = Why{Reason: ReasonPodLost, Text: label(t) + " again: nothing works on it any more"}
	}
	b.state[i], b.busy[i] = StateRunning, true
	b.p.n.objects++
	b.say(sayWorking, PhaseInFlight, Why{Reason: ReasonWorking, Text: label(t) + " starts"})
	a := f.act(b.p, VerbRun, why)
	a.Task = t.ID
	return a
}

// startInterrupt runs an interrupt that does the work of others as well. Nothing else of ours may be at work on the
// node, whichever rollout it belongs to.
func (f *fleet) startInterrupt(b *bench, i int, covered []int) {
	t := &b.p.t.Tasks[i]
	why := Why{Reason: ReasonInterruptGroup, Text: label(t) + " waits until the node is left alone"}
	f.sweepFailing(b, why)
	if b.p.n.objects > 0 {
		b.say(sayWaiting, PhaseInFlight, why)
		return
	}
	if !f.due(b, i) || !f.isQuiet(b, i) {
		return
	}
	var covers []string
	for _, j := range covered {
		c := &b.p.t.Tasks[j]
		covers = append(covers, c.ID)
		if c.CoveredBy != t.ID {
			a := f.act(b.p, VerbCover, Why{Reason: ReasonCovered, Text: label(t) + " does this as well"})
			a.Task, a.By = c.ID, t.ID
		}
	}
	f.run(b, i).Covers = covers
}
