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
	round
	name    string
	s       *storm
	pending []func()
	flights map[string]*flight // by node
}

// round is what a plan is carried out with.
type round struct {
	view    sim.View
	plan    rollout.Plan
	looked  int
	since   time.Time
	stopped map[string]bool      // nodes on which something went wrong
	refused map[rollout.Ref]bool // ledgers somebody else wrote
}

// flight is what is still to be written to a node of a plan.
type flight struct {
	round
	actions []rollout.Action
}

func (o *operator) look() {
	s := o.s
	s.derive()
	o.view, o.since, o.looked = s.w.View(), s.w.Truth.Now, s.looks
	o.mark()
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
		o.pending = append(o.pending, func() { o.ledger(l) })
	}
	o.pending = append(o.pending, o.shuffled()...)
	at := s.r.Intn(len(o.pending) + 1)
	if at < len(o.plan.Ledgers) {
		at = len(o.pending)
	}
	o.pending = slices.Insert(o.pending, at, o.save)
}

// mark tells what is under way.
func (o *operator) mark() {
	for i := range o.view.Nodes {
		o.view.Nodes[i].Sending = o.flights[o.view.Nodes[i].Name] != nil
	}
	for i := range o.view.Rollouts {
		q := &o.view.Rollouts[i]
		for _, f := range o.flights {
			for _, a := range f.actions {
				if a.Verb == rollout.VerbAdmit && a.Rollout == q.Ref {
					q.OnTheirWay = max(q.OnTheirWay, a.Order+1)
				}
			}
		}
	}
}

// shuffled are the writes to nodes: in order on each node, in any order between nodes.
func (o *operator) shuffled() []func() {
	byNode, names := map[string][]rollout.Action{}, []string{}
	for _, a := range o.plan.Actions {
		if byNode[a.Node] == nil {
			names = append(names, a.Node)
		}
		byNode[a.Node] = append(byNode[a.Node], a)
	}
	var out []func()
	for len(names) > 0 {
		i := o.s.r.Intn(len(names))
		a := byNode[names[i]][0]
		out = append(out, func() { o.attempt(a) })
		if byNode[names[i]] = byNode[names[i]][1:]; len(byNode[names[i]]) == 0 {
			names = slices.Delete(names, i, i+1)
		}
	}
	return out
}

// attempt does something, or begins with it: then it and all that follows on its node is under way.
func (o *operator) attempt(a rollout.Action) {
	f := o.flights[a.Node]
	if f == nil && o.s.chance(o.s.luck.slow) {
		f = &flight{round: o.round}
		if o.flights == nil {
			o.flights = map[string]*flight{}
		}
		o.flights[a.Node] = f
	}
	if f == nil {
		o.do(o.round, a)
		return
	}
	f.actions = append(f.actions, a)
}

// land has some of what is under way arrive, in part or as a whole. What takes too long is given up.
func (o *operator) land() {
	for _, name := range slices.Sorted(maps.Keys(o.flights)) {
		f := o.flights[name]
		if o.s.w.Truth.Now.Sub(f.since) > rollout.ReservationTerm/2 {
			o.s.say("%s gives up what it sends to %s", o.name, name)
			delete(o.flights, name)
			continue
		}
		for len(f.actions) > 0 && o.s.chance(60) {
			o.do(f.round, f.actions[0])
			f.actions = f.actions[1:]
		}
		if len(f.actions) == 0 {
			delete(o.flights, name)
		}
	}
}

// write does the next thing, unless the operator dies first or has taken too long to still be allowed to.
func (o *operator) write() {
	if len(o.pending) == 0 {
		return
	}
	if o.s.chance(o.s.luck.crash) || o.s.w.Truth.Now.Sub(o.since) > rollout.ReservationTerm/2 {
		o.s.say("%s dies", o.name)
		o.pending, o.flights = nil, nil
		return
	}
	next := o.pending[0]
	o.pending = o.pending[1:]
	next()
}

func (o *operator) ledger(l rollout.Ledger) {
	err := sim.ErrConflict
	if o.remembersAlike(l.Owner) {
		err = o.s.w.Write(l)
	}
	if o.s.chance(o.s.luck.lose) {
		err = errors.New("lost") // it may have been written all the same
	}
	o.refused[l.Owner] = err != nil
	o.s.say("%s ledger %s epoch %d: %v", o.name, l.Owner, l.Epoch, err)
}

// remembersAlike says that what the groups of a ledger learned is as the operator saw it: it is stored in the same
// object, so that a write of the one refuses an older write of the other.
func (o *operator) remembersAlike(ledger rollout.Ref) bool {
	for _, g := range o.view.Groups {
		if stored := o.s.group(g.Ref); g.Ledger == ledger && stored != nil && stored.Memory != g.Memory {
			return false
		}
	}
	return true
}

func (o *operator) save() {
	if o.s.chance(o.s.luck.lose) {
		return
	}
	for i := range o.plan.Groups { // statuses are written with the resource version of the snapshot, or our own since
		g, stored := &o.plan.Groups[i], o.s.group(o.plan.Groups[i].Group)
		before := o.groupSeen(g.Group)
		if stored == nil || before == nil || o.s.epoch(stored.Ledger) > o.epochWritten(stored.Ledger) || stored.Memory != before.Memory {
			continue
		}
		if stored.Memory != g.Memory {
			o.s.say("%s memory of %s: %+v", o.name, g.Group, g.Memory)
		}
		stored.Memory = g.Memory
	}
	for _, r := range o.plan.Reports {
		to, before := o.s.w.Rollout(r.Rollout), o.s.rolloutSeen(o.view, r.Rollout)
		if o.s.epoch(r.Rollout) > o.epochWritten(r.Rollout) {
			continue // its ledger is in the same object, and somebody else wrote it
		}
		if to != nil && to.UID == before.UID && to.NextOrder == before.NextOrder {
			to.NextOrder = r.NextOrder
			if r.NextOrder == 0 && before.NextOrder > 0 {
				o.s.numbersEnd(o, to)
			}
		}
	}
}

func (o *operator) groupSeen(name rollout.GroupRef) *rollout.Group {
	for i := range o.view.Groups {
		if o.view.Groups[i].Ref == name {
			return &o.view.Groups[i]
		}
	}
	return nil
}

// epochWritten is the newest epoch of a ledger this operator knows of.
func (o *operator) epochWritten(name rollout.Ref) int64 {
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

func (o *operator) do(r round, a rollout.Action) {
	s := o.s
	if !a.Ledger.IsZero() && r.refused[a.Ledger] {
		r.stopped[a.Node] = true
	}
	if r.stopped[a.Node] {
		return
	}
	if s.chance(s.luck.lose) {
		r.stopped[a.Node] = true
		s.say("%s %s %s %s %s: lost", o.name, a.Rollout, a.Node, a.Verb, a.Task)
		return
	}
	broken := s.checkBefore(r.view, a)
	err := s.w.Do(r.view, a)
	s.say("%s %s %s %s %s%s: %v (%s)", o.name, a.Rollout, a.Node, a.Verb, a.Task, a.Pod.Name, err, a.Why.Reason)
	if err != nil {
		r.stopped[a.Node] = true
		return
	}
	if broken != "" {
		s.broken("%s did %s of %s for %s on %s: %s", o.name, a.Verb, a.Task, a.Rollout, a.Node, broken)
	}
	if t := s.w.Target(a.Rollout, a.Node); t != nil && a.Verb == rollout.VerbRecord && a.State == rollout.StateDone {
		s.done[t.UID+a.Task] = t.Admission
	}
	s.checkAfter(a)
	if a.Verb == rollout.VerbAdmit {
		s.checkNumber(r, a)
	}
	if a.Verb == rollout.VerbRetire && a.Wipe {
		s.wiped(a)
	}
}
