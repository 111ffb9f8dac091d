// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"strconv"
	"time"
)

// bench is where one target is advanced: its tasks as they will be when this plan is applied so far.
type bench struct {
	p       *post
	state   []State
	tries   []int       // failed attempts
	since   []time.Time // end of the last failed one
	busy    []bool      // an object of the task may be at work
	dead    []bool      // its outcome is a final failure, or it waits for one that is
	weight  int         // of the verdict so far
	verdict Verdict
	asked   bool // whether the node is quiet
	quiet   bool // it is: held by the rollout, and nobody is in the way
	over    bool // the node was given back
}

// How much a verdict matters: the weightiest is said.
const (
	sayNext = iota + 1
	sayBehind
	sayWorking
	sayWaiting
	sayStuck
	sayFailing
	sayFailed
)

func (b *bench) say(weight int, phase Phase, why Why) {
	if weight > b.weight {
		b.weight, b.verdict = weight, Verdict{Phase: phase, Why: why}
	}
}

// act adds an action for a target to the plan.
func (f *fleet) act(p *post, v Verb, why Why) *Action {
	f.plan.Actions = append(f.plan.Actions, Action{Verb: v, Rollout: p.q.Ref, Node: p.t.Node, Why: why})
	return &f.plan.Actions[len(f.plan.Actions)-1]
}

// advance takes a target as far as it can go now:
//
//	hold → wait → evict → (gone) → run → record → … → release → retire
//
// What ended is recorded in any case; something starts only on a target that passed the gates.
func (f *fleet) advance(p *post) {
	switch {
	case !p.exists || p.odd != nil || p.q.Broken != nil || p.unreadable():
		return // nothing is known well enough to touch it
	case !p.t.Admitted:
		f.cleanUp(p)
		return
	}
	b := f.layOut(p)
	f.settle(b)
	switch {
	case b.allDone():
		f.end(b, Why{Reason: ReasonFinished, Text: "nothing is owed any more"})
	case p.t.Leaving:
		f.leave(b)
	case !p.passes:
		return
	case p.q.Deleting && b.hopeless():
		f.giveUp(b)
	case p.q.Once && p.failed && !b.working():
		f.endFailed(b)
	default:
		f.start(b)
		p.verdict = b.verdict
	}
}

// cleanUp takes away what is left on a node that is not in flight.
func (f *fleet) cleanUp(p *post) {
	if p.q.Paused && p.owes && !p.t.Leaving {
		return
	}
	f.sweepStrays(p)
	if p.held && !(p.t.Skipped && p.q.KeepHeld && !p.q.Deleting) {
		p.held = false // should the target be admitted by this very plan, it has to hold its node anew
		f.act(p, VerbRelease, Why{Reason: ReasonLeft, Text: "nothing is under way on the node"})
	}
	if p.q.Deleting && !p.owes {
		f.untaintBefore(p)
		f.act(p, VerbRetire, Why{Reason: ReasonFinished, Text: "nothing is owed any more"}).Wipe = true
	}
}

func (f *fleet) sweepStrays(p *post) {
	for _, object := range p.t.Strays {
		f.act(p, VerbSweep, Why{Reason: ReasonReplaced, Text: object + " belongs to nothing that is owed", About: object}).Object = object
	}
}

// layOut puts the tasks of a target on the bench.
func (f *fleet) layOut(p *post) *bench {
	b, n := &f.bench, len(p.t.Tasks)
	*b = bench{p: p, state: b.state[:0], tries: b.tries[:0], since: b.since[:0], busy: b.busy[:0], dead: b.dead[:0]}
	for i := range p.t.Tasks {
		t := &p.t.Tasks[i]
		state := t.State
		if state == StateRunning && t.Object == "" {
			state = StatePending // lost: it has to run again
		}
		b.state = append(b.state, state)
		b.tries = append(b.tries, t.Attempts)
		b.since = append(b.since, t.FailedAt)
		b.busy = append(b.busy, t.Object != "" && (state == StateRunning || state == StateFailing))
	}
	b.dead = append(b.dead, make([]bool, n)...)
	return b
}

func (b *bench) allDone() bool {
	for i := range b.state {
		if b.state[i] != StateDone {
			return false
		}
	}
	return true
}

// working says that some object may be at work.
func (b *bench) working() bool {
	for i := range b.busy {
		if b.busy[i] && b.state[i] == StateRunning {
			return true
		}
	}
	return false
}

// hopeless says that nothing that is left can ever end well, and nothing works.
func (b *bench) hopeless() bool {
	for i := range b.state {
		if b.state[i] != StateDone && !b.dead[i] {
			return false
		}
	}
	return !b.working()
}

// settle records what ended, then sweeps it. Until a task is Done here nothing that waits for it starts.
func (f *fleet) settle(b *bench) {
	tasks := b.p.t.Tasks
	for i := range tasks {
		switch t := &tasks[i]; {
		case b.state[i] == StateSucceeded:
			f.conclude(b, i)
		case b.state[i] == StateDone && t.Need == NeedAlone:
			f.concludeCovered(b, i)
		case b.state[i] == StateRunning && t.expired(f.Now):
			f.expire(b, i)
		case b.state[i] == StateFailing && (t.Recorded != StateFailing || t.Noted > 0 && t.Attempts > t.Noted):
			f.record(b, i, because(t.Why, ReasonStageFailed))
		}
	}
	for i := range tasks {
		f.sweep(b, i)
	}
	if !b.p.q.Paused {
		f.sweepStrays(b.p)
	}
	b.findDead()
}

// conclude records a task that ended well, and first those whose work it did: were its own record written alone, they
// would look as if they still had to run.
func (f *fleet) conclude(b *bench, i int) {
	f.concludeCovered(b, i)
	b.state[i], b.busy[i] = StateDone, false
	f.record(b, i, Why{Reason: ReasonEnded, Text: label(&b.p.t.Tasks[i]) + " ended well"})
}

func (f *fleet) concludeCovered(b *bench, by int) {
	tasks := b.p.t.Tasks
	for i := range tasks {
		if tasks[i].CoveredBy == tasks[by].ID && i != by && b.state[i] != StateDone && !b.busy[i] {
			b.state[i] = StateDone
			f.record(b, i, Why{Reason: ReasonCovered, Text: label(&tasks[by]) + " did this as well"})
		}
	}
}

// expire records an attempt that took too long as failed. An attempt that is recorded already is only swept.
func (f *fleet) expire(b *bench, i int) {
	t := &b.p.t.Tasks[i]
	b.state[i] = StateFailing
	if t.Leaving || t.Recorded == StateFailing && !t.FailedAt.Before(t.Started.Add(t.Limit)) {
		return
	}
	b.tries[i]++
	b.since[i] = f.Now
	f.record(b, i, t.expiry(b.p.n.Node))
}

func (f *fleet) record(b *bench, i int, why Why) {
	a := f.act(b.p, VerbRecord, why)
	a.Task, a.State, a.Attempts = b.p.t.Tasks[i].ID, b.state[i], b.tries[i]
}

// sweep deletes the object of a task whose outcome is recorded, or that will not get anywhere.
func (f *fleet) sweep(b *bench, i int) {
	t := &b.p.t.Tasks[i]
	if t.Object == "" {
		return
	}
	var why Why
	switch {
	case b.state[i] == StateDone:
		why = Why{Reason: ReasonEnded, Text: label(t) + " is recorded"}
	case t.expired(f.Now):
		why = t.expiry(b.p.n.Node)
	case t.Dead:
		why = because(t.Why, ReasonPodLost)
	case t.Stale && (b.state[i] == StateFailing || t.Why != nil) && !b.p.q.Paused:
		why = Why{Reason: ReasonReplaced, Text: "the definition of " + label(t) + " changed"}
	case b.state[i] == StateFailing && t.Bounded && t.final(b.tries[i]):
		why = because(t.Why, ReasonStageFailed)
	default:
		if t.Limit > 0 && !t.Started.IsZero() {
			f.wake(t.Started.Add(t.Limit))
		}
		return
	}
	if !t.Leaving {
		f.drop(b, i, why)
	}
}

func (f *fleet) drop(b *bench, i int, why Why) {
	t := &b.p.t.Tasks[i]
	a := f.act(b.p, VerbSweep, why)
	a.Task, a.Object = t.ID, t.Object
}

// findDead marks what can no longer end well by itself: final failures, and all that waits for them.
func (b *bench) findDead() {
	if b.p.graph == nil { // nothing is owed
		return
	}
	for _, i := range b.p.graph.order {
		b.dead[i] = b.state[i] != StateDone && b.p.t.Tasks[i].final(b.tries[i])
		for _, j := range b.p.graph.after[i] {
			b.dead[i] = b.dead[i] || b.dead[j]
		}
	}
}

// end gives the node back, and the seat as soon as it may.
func (f *fleet) end(b *bench, why Why) {
	p := b.p
	if p.held {
		f.act(p, VerbRelease, why)
	}
	if p.numbering() {
		return
	}
	p.ended = true
	f.untaintBefore(p)
	f.act(p, VerbRetire, why).Wipe = p.q.Deleting
	p.verdict = Verdict{Phase: PhaseFinished, Why: why}
}

// numbering says that nobody but the node knows its number yet: were it given back now, the next node could get the
// same. It is not long until the status says which number comes next.
func (p *post) numbering() bool {
	if !p.q.Numbered || p.q.NextOrder > p.t.Order {
		return false
	}
	p.verdict = Verdict{Phase: PhaseInFlight, Why: Why{Reason: ReasonLedger,
		Text: "everything is done; the node is given back when its number, " + strconv.Itoa(p.t.Order) + ", is stored"}}
	return true
}

// sweepFailing deletes the objects of tasks that failed and would be tried again.
func (f *fleet) sweepFailing(b *bench, why Why) {
	for i := range b.busy {
		if t := &b.p.t.Tasks[i]; b.busy[i] && b.state[i] == StateFailing && !t.Leaving && !f.swept(b, t.Object) {
			f.drop(b, i, why)
		}
	}
}

// swept says that this plan deletes the object already.
func (f *fleet) swept(b *bench, object string) bool {
	for i := len(f.plan.Actions) - 1; i >= 0; i-- {
		a := &f.plan.Actions[i]
		if a.Rollout != b.p.q.Ref || a.Node != b.p.t.Node {
			return false
		}
		if a.Verb == VerbSweep && a.Object == object {
			return true
		}
	}
	return false
}

// leave lets the running task end on a node that is no longer selected, then gives the node back as it is.
func (f *fleet) leave(b *bench) {
	why := Why{Reason: ReasonLeft, Text: "the node is no longer selected"}
	if b.working() {
		why.Text += "; what runs there may end"
		b.p.verdict = Verdict{Phase: PhaseInFlight, Why: why}
		return
	}
	f.sweepFailing(b, why)
	if b.p.held {
		f.act(b.p, VerbRelease, why)
	}
	if b.p.numbering() {
		return
	}
	f.act(b.p, VerbRetire, why)
	b.p.verdict = Verdict{Phase: PhaseFinished, Why: why}
}

// giveUp lets a deletion go on without this node: what is left there can never end well.
func (f *fleet) giveUp(b *bench) {
	why := Why{Reason: ReasonGiveUp, Text: "the deletion goes on without this node"}
	for i := range b.state {
		if t := &b.p.t.Tasks[i]; b.state[i] != StateDone && t.final(b.tries[i]) {
			what := label(t) + " failed"
			if t.Why != nil {
				what = t.Why.Text
			}
			why.Text = bounded(why.Text + ": " + what)
			break
		}
	}
	f.sweepFailing(b, why)
	f.end(b, why)
	if b.p.ended {
		b.p.verdict = Verdict{Phase: PhaseFailed, Why: why}
	}
}

// endFailed retires a target that failed for good and is not to be tried again.
func (f *fleet) endFailed(b *bench) {
	why := Why{Reason: ReasonStageFailed, Text: "it failed and is not tried again"}
	for i := range b.state {
		if t := &b.p.t.Tasks[i]; b.state[i] != StateDone && t.final(b.tries[i]) {
			why = because(t.Why, ReasonStageFailed)
			break
		}
	}
	f.sweepFailing(b, why)
	if b.p.held && !b.p.q.KeepHeld {
		f.act(b.p, VerbRelease, why)
	}
	if b.p.numbering() {
		return
	}
	f.act(b.p, VerbRetire, why).Skip = true
	b.p.verdict = Verdict{Phase: PhaseFailed, Why: why}
}
