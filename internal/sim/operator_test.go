// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/sim"
)

// operator looks, decides, and writes one thing after the other. What it writes to a node may take long; then it looks and
// decides again meanwhile.
type operator struct {
	observation
	name     string
	s        *faultTest
	pending  []func()
	inFlight map[string]*nodeWrites // by node
}

// observation is what a plan is carried out with.
type observation struct {
	view    sim.View
	plan    rollout.Plan
	looked  int
	since   time.Time
	stopped map[string]bool      // nodes on which something went wrong
	refused map[rollout.Ref]bool // ledgers somebody else wrote
}

// nodeWrites is what is still to be written to a node of a plan.
type nodeWrites struct {
	observation
	actions []rollout.Action
}

func (o *operator) decide() {
	s := o.s
	s.addUnavailable()
	o.view, o.since, o.looked = s.cluster.View(), s.cluster.State.Now, s.decisions
	o.markSending()
	for i := range o.view.Rollouts { // what runs on some nodes could not be listed yet
		for j := range o.view.Rollouts[i].Targets {
			if t := &o.view.Rollouts[i].Targets[j]; t.PodsSeen && s.chance(10) {
				t.Pods, t.PodsSeen = nil, false
			}
		}
	}
	o.plan = s.decide(o.view.Snapshot)
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

// markSending tells what is under way.
func (o *operator) markSending() {
	for i := range o.view.Nodes {
		o.view.Nodes[i].Sending = o.inFlight[o.view.Nodes[i].Name] != nil
	}
	for i := range o.view.Rollouts {
		q := &o.view.Rollouts[i]
		for _, f := range o.inFlight {
			for _, a := range f.actions {
				if a.Verb == rollout.VerbAdmit && a.Rollout == q.Ref {
					q.OnTheirWay = max(q.OnTheirWay, a.Order+1)
				}
			}
		}
	}
}

// shuffleWrites are the writes to nodes: in order on each node, in any order between nodes.
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

// beginWrite does something, or begins with it: then it and all that follows on its node is under way.
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

// finishWrites has some of what is under way arrive, in part or as a whole. What takes too long is given up.
func (o *operator) finishWrites() {
	for _, name := range slices.Sorted(maps.Keys(o.inFlight)) {
		f := o.inFlight[name]
		if o.s.cluster.State.Now.Sub(f.since) > rollout.ReservationTerm/2 {
			o.s.logf("%s gives up what it sends to %s", o.name, name)
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

// writeNext does the next thing, unless the operator dies first or has taken too long to still be allowed to.
func (o *operator) writeNext() {
	if len(o.pending) == 0 {
		return
	}
	if o.s.chance(o.s.rates.crash) || o.s.cluster.State.Now.Sub(o.since) > rollout.ReservationTerm/2 {
		o.s.logf("%s dies", o.name)
		o.pending, o.inFlight = nil, nil
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
		err = errors.New("lost") // it may have been written all the same
	}
	o.refused[l.Owner] = err != nil
	o.s.logf("%s ledger %s epoch %d: %v", o.name, l.Owner, l.Epoch, err)
}

// hasStoredMemory says that what the groups of a ledger learned is as the operator saw it: it is stored in the same
// object, so that a write of the one refuses an older write of the other.
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
	for i := range o.plan.Groups { // statuses are written with the resource version of the snapshot, or our own since
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
			continue // its ledger is in the same object, and somebody else wrote it
		}
		if to != nil && to.UID == before.UID && to.NextOrder == before.NextOrder {
			to.NextOrder = r.NextOrder
			if r.NextOrder == 0 && before.NextOrder > 0 {
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

// lastEpoch is the newest epoch of a ledger this operator knows of.
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
	if s.chance(s.rates.lose) {
		r.stopped[a.Node] = true
		s.logf("%s %s %s %s %s: lost", o.name, a.Rollout, a.Node, a.Verb, a.Task)
		return
	}
	broken := s.checkAction(r.view, a)
	err := s.cluster.ApplyAction(r.view, a)
	s.logf("%s %s %s %s %s%s: %v (%s)", o.name, a.Rollout, a.Node, a.Verb, a.Task, a.Pod.Name, err, a.Why.Reason)
	if err != nil {
		r.stopped[a.Node] = true
		return
	}
	if broken != "" {
		s.failf("%s did %s of %s for %s on %s: %s", o.name, a.Verb, a.Task, a.Rollout, a.Node, broken)
	}
	if t := s.cluster.FindTarget(a.Rollout, a.Node); t != nil && a.Verb == rollout.VerbRecord && a.State == rollout.StateDone {
		s.done[t.UID+a.Task] = t.Admission
	}
	s.checkState(a)
	if a.Verb == rollout.VerbAdmit {
		s.checkNumber(r, a)
	}
	if a.Verb == rollout.VerbRetire && a.Wipe {
		s.forgetRecords(a)
	}
}
