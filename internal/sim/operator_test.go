// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/rollout/timing"
	"github.com/skyhook-k8s/skyhook/internal/sim"
)

// operator reads the cluster, decides, and writes one object after the other. A write to a node may take long; then the
// operator decides again meanwhile.
type operator struct {
	observation
	name     string
	s        *faultTest
	pending  []func()
	inFlight map[string]*nodeWrites // by node

	skew      time.Duration // of its clock
	durations *timing.Durations
	asked     map[string]bool // pods whose eviction it requested
	process   int
}

// observation is a plan, the view for which it was made, and how far it is applied.
type observation struct {
	view     sim.View
	plan     rollout.Plan
	decision int
	since    time.Time
	stopped  map[string]bool      // nodes on which an action failed
	refused  map[rollout.Ref]bool // ledgers that another operator wrote
}

// nodeWrites has the actions of a plan that are not yet applied to a node.
type nodeWrites struct {
	observation
	actions []rollout.Action
}

func (o *operator) decide() {
	s := o.s
	s.addUnavailable()
	o.correctTimes()
	o.view, o.since, o.decision = s.cluster.View(), s.cluster.State.Now, s.decisions
	o.markSending()
	o.readClock()
	for i := range o.view.Rollouts { // the pods of some nodes are not listed yet
		for j := range o.view.Rollouts[i].Targets {
			if t := o.view.Rollouts[i].Targets[j]; t.Drain.PodsSeen && s.chance(10) {
				t.Drain.Pods, t.Drain.PodsSeen = nil, false
			}
		}
	}
	o.durations.Measure(&o.view.Snapshot)
	ignoreFutureChecks(&o.view.Snapshot)
	o.plan = s.decide(o.view.Snapshot)
	s.cluster.LookAt(o.plan.Look)
	o.durations.RecordDrains(o.view.Snapshot, o.plan)
	o.stopped, o.refused = map[string]bool{}, map[rollout.Ref]bool{}
	o.pending = nil
	for _, l := range o.plan.Ledgers {
		o.pending = append(o.pending, func() { o.writeLedger(l) })
	}
	o.pending = append(o.pending, o.shuffleWrites()...)
	at := s.random.Intn(len(o.pending) + 1)
	if at < len(o.plan.Ledgers) {
		at = len(o.pending)
	}
	o.pending = slices.Insert(o.pending, at, o.saveStatus)
}

// markSending marks the nodes with writes in flight in the view.
func (o *operator) markSending() {
	for i := range o.view.Nodes {
		o.view.Nodes[i].Sending = o.inFlight[o.view.Nodes[i].Name] != nil
	}
	for i := range o.view.Rollouts {
		q := &o.view.Rollouts[i]
		for _, f := range o.inFlight {
			for _, a := range f.actions {
				if a.Verb == rollout.VerbAdmit && a.Rollout == q.Ref {
					q.Numbering.OnTheirWay = max(q.Numbering.OnTheirWay, a.Order+1)
				}
			}
		}
	}
}

// shuffleWrites returns the writes to nodes: in order for each node, in random order between nodes.
func (o *operator) shuffleWrites() []func() {
	byNode, names := map[string][]rollout.Action{}, []string{}
	for _, a := range o.plan.Actions {
		if byNode[a.Node] == nil {
			names = append(names, a.Node)
		}
		byNode[a.Node] = append(byNode[a.Node], a)
	}
	var out []func()
	for len(names) > 0 {
		i := o.s.random.Intn(len(names))
		a := byNode[names[i]][0]
		out = append(out, func() { o.beginWrite(a) })
		if byNode[names[i]] = byNode[names[i]][1:]; len(byNode[names[i]]) == 0 {
			names = slices.Delete(names, i, i+1)
		}
	}
	return out
}

// beginWrite applies an action, or leaves it and all that follow on its node in flight.
func (o *operator) beginWrite(a rollout.Action) {
	f := o.inFlight[a.Node]
	if f == nil && o.s.chance(o.s.rates.slow) {
		f = &nodeWrites{observation: o.observation}
		if o.inFlight == nil {
			o.inFlight = map[string]*nodeWrites{}
		}
		o.inFlight[a.Node] = f
	}
	if f == nil {
		o.applyAction(o.observation, a)
		return
	}
	f.actions = append(f.actions, a)
}

// finishWrites applies some of the actions in flight. Those that take too long are dropped.
func (o *operator) finishWrites() {
	for _, name := range slices.Sorted(maps.Keys(o.inFlight)) {
		f := o.inFlight[name]
		if o.s.cluster.State.Now.Sub(f.since) > rollout.ReservationTerm/2 {
			o.s.logf("%s drops its writes to %s", o.name, name)
			delete(o.inFlight, name)
			continue
		}
		for len(f.actions) > 0 && o.s.chance(60) {
			o.applyAction(f.observation, f.actions[0])
			f.actions = f.actions[1:]
		}
		if len(f.actions) == 0 {
			delete(o.inFlight, name)
		}
	}
}

// writeNext makes the next write, unless the operator dies first or its plan is too old.
func (o *operator) writeNext() {
	if len(o.pending) == 0 {
		return
	}
	if o.s.chance(o.s.rates.crash) || o.s.cluster.State.Now.Sub(o.since) > rollout.ReservationTerm/2 {
		o.s.logf("%s dies", o.name)
		o.restart()
		return
	}
	next := o.pending[0]
	o.pending = o.pending[1:]
	next()
}

func (o *operator) writeLedger(l rollout.Ledger) {
	err := sim.ErrConflict
	if o.hasStoredMemory(l.Owner) {
		err = o.s.cluster.WriteLedger(l)
	}
	if o.s.chance(o.s.rates.lose) {
		err = errors.New("lost") // the response is lost, the ledger may be written
	}
	o.refused[l.Owner] = err != nil
	o.s.logf("%s ledger %s epoch %d: %v", o.name, l.Owner, l.Epoch, err)
}

// hasStoredMemory reports whether the memory of the groups of a ledger is as the operator has read it. Both are stored in
// one object, so that a change of one refuses a write of the other.
func (o *operator) hasStoredMemory(ledger rollout.Ref) bool {
	for _, g := range o.view.Groups {
		if stored := o.s.findGroup(g.Ref); g.Ledger == ledger && stored != nil && stored.Memory != g.Memory {
			return false
		}
	}
	return true
}

func (o *operator) saveStatus() {
	if o.s.chance(o.s.rates.lose) {
		return
	}
	for i := range o.plan.Groups { // statuses are written with the resource version of the snapshot or of an own later write
		g, stored := &o.plan.Groups[i], o.s.findGroup(o.plan.Groups[i].Group)
		before := o.findObservedGroup(g.Group)
		if stored == nil || before == nil || o.s.findEpoch(stored.Ledger) > o.lastEpoch(stored.Ledger) || stored.Memory != before.Memory {
			continue
		}
		if stored.Memory != g.Memory {
			o.s.logf("%s memory of %s: %+v", o.name, g.Group, g.Memory)
		}
		stored.Memory = g.Memory
	}
	for _, r := range o.plan.Reports {
		to, before := o.s.cluster.FindRollout(r.Rollout), o.s.findObservedRollout(o.view, r.Rollout)
		if o.s.findEpoch(r.Rollout) > o.lastEpoch(r.Rollout) {
			continue // another operator wrote its ledger, which is in the same object
		}
		if to != nil && to.UID == before.UID && to.Numbering.Next == before.Numbering.Next {
			to.Numbering.Next = r.NextOrder
			if r.NextOrder == 0 && before.Numbering.Next > 0 {
				o.s.endNumbers(o, to)
			}
		}
	}
}

func (o *operator) findObservedGroup(name rollout.GroupRef) *rollout.Group {
	for i := range o.view.Groups {
		if o.view.Groups[i].Ref == name {
			return &o.view.Groups[i]
		}
	}
	return nil
}

// lastEpoch returns the latest epoch of a ledger that this operator has read or written.
func (o *operator) lastEpoch(name rollout.Ref) int64 {
	var epoch int64
	for _, l := range o.view.Ledgers {
		if l.Owner == name {
			epoch = l.Epoch
		}
	}
	for _, l := range o.plan.Ledgers {
		if l.Owner == name && !o.refused[name] {
			epoch = l.Epoch
		}
	}
	return epoch
}

func (o *operator) applyAction(r observation, a rollout.Action) {
	s := o.s
	if !a.Ledger.IsZero() && r.refused[a.Ledger] {
		r.stopped[a.Node] = true
	}
	if r.stopped[a.Node] {
		return
	}
	isSweep := a.Verb == rollout.VerbSweep // it is requested after the node was written to, and stops nothing
	if s.chance(s.rates.lose) {
		r.stopped[a.Node] = !isSweep
		s.logf("%s %s %s %s %s: lost", o.name, a.Rollout, a.Node, a.Verb, a.Task)
		return
	}
	broken := cmp.Or(s.checkAction(r.view, a), s.checkTimes(o, a))
	what := a.Task
	if a.Verb == rollout.VerbEvict {
		o.asked[a.Pod.UID] = true
		what = a.Pod.Name
	}
	err := s.cluster.ApplyAction(r.view, a)
	s.logf("%s %s %s %s %s: %v (%s)", o.name, a.Rollout, a.Node, a.Verb, what, err, a.Why.Reason)
	if err != nil {
		r.stopped[a.Node] = !isSweep
		return
	}
	if broken != "" {
		s.failf("%s did %s of %s for %s on %s: %s", o.name, a.Verb, a.Task, a.Rollout, a.Node, broken)
	}
	if t := s.cluster.FindTarget(a.Rollout, a.Node); t != nil && a.Verb == rollout.VerbRecord && a.State == rollout.StateDone {
		s.done[t.UID+a.Task] = t.Visit.Admission
	}
	if a.Verb == rollout.VerbNote {
		s.noteDrift(a)
	}
	s.checkState(a)
	if a.Verb == rollout.VerbAdmit {
		s.checkNumber(r, a)
	}
	if a.Verb == rollout.VerbRetire && a.Wipe {
		s.forgetRecords(a)
	}
}
