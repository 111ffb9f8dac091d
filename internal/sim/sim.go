// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package sim is a cluster that exists only in memory. The engine's plans are applied to it, and time passes when
// somebody says so.
//
// A World holds the truth in the form of a Snapshot: what nodes record and what objects do is in its Targets and Tasks.
// Operators see copies of it (View), decide, and write (Write, Do). A write is refused when the node has changed since
// it was looked at, as an API server would refuse it. Play runs a Snapshot to its end on a virtual clock.
package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// World is a cluster and everything that is true of it.
type World struct {
	Truth     rollout.Snapshot
	Workloads map[string][]rollout.Pod // pods on each node that are in the way when it is to become quiet
	Refuse    func(node string, p rollout.Pod) (why string, retry time.Duration)
	Linger    bool           // objects that are deleted before they ended stay until Vanish
	Writes    map[string]int // requests to an API server so far, by node; the ledgers' by their name

	rev     map[string]int // of each node: grows with each change of it
	objects int            // ever created
	places  map[key]place
	nodes   map[string]int // where each was found last
}

type key struct {
	rollout rollout.Ref
	node    string
}

type place struct{ rollout, target int }

// View is what an operator sees at one moment. It may be kept while the world goes on.
type View struct {
	rollout.Snapshot
	rev map[string]int
}

// ErrConflict says that something was changed since it was looked at.
var ErrConflict = errors.New("it was changed meanwhile")

// New makes a world of a snapshot. The snapshot is copied. Pods that its targets have in the way become workloads.
func New(s rollout.Snapshot) *World {
	w := &World{Truth: Clone(s), Workloads: map[string][]rollout.Pod{}, Writes: map[string]int{}, rev: map[string]int{}}
	for i := range w.Truth.Rollouts {
		for j := range w.Truth.Rollouts[i].Targets {
			t := &w.Truth.Rollouts[i].Targets[j]
			for _, p := range t.Pods {
				if !slices.ContainsFunc(w.Workloads[t.Node], func(o rollout.Pod) bool { return o.UID == p.UID }) {
					w.Workloads[t.Node] = append(w.Workloads[t.Node], p)
				}
			}
			t.Pods, t.PodsSeen = nil, false
		}
	}
	w.Arrange()
	return w
}

// Clone copies a snapshot so that the copy shares nothing that a World changes.
func Clone(s rollout.Snapshot) rollout.Snapshot {
	s.Nodes = slices.Clone(s.Nodes)
	for i := range s.Nodes {
		s.Nodes[i].Holds = slices.Clone(s.Nodes[i].Holds)
	}
	s.Groups = slices.Clone(s.Groups)
	for i := range s.Groups {
		s.Groups[i].Taken = slices.Clone(s.Groups[i].Taken)
	}
	s.Ledgers = slices.Clone(s.Ledgers)
	for i := range s.Ledgers {
		s.Ledgers[i].Admitting = slices.Clone(s.Ledgers[i].Admitting)
	}
	s.Rollouts = slices.Clone(s.Rollouts)
	for i := range s.Rollouts {
		r := &s.Rollouts[i]
		r.Targets = slices.Clone(r.Targets)
		for j := range r.Targets {
			t := &r.Targets[j]
			t.Tasks, t.Pods = slices.Clone(t.Tasks), slices.Clone(t.Pods)
			t.Strays, t.Going = slices.Clone(t.Strays), slices.Clone(t.Going)
		}
	}
	return s
}

// Arrange has to be called when rollouts or targets were added to or taken from the truth.
func (w *World) Arrange() {
	w.places = map[key]place{}
	for i := range w.Truth.Rollouts {
		r := &w.Truth.Rollouts[i]
		for j := range r.Targets {
			w.places[key{r.Ref, r.Targets[j].Node}] = place{i, j}
		}
	}
}

// View looks at the world as it is now. Workloads are seen on the nodes that a rollout holds.
func (w *World) View() View {
	v := View{Snapshot: Clone(w.Truth), rev: make(map[string]int, len(w.rev))}
	for name, rev := range w.rev {
		v.rev[name] = rev
	}
	w.addPods(&v.Snapshot)
	return v
}

// addPods shows the workloads on the nodes that a rollout holds.
func (w *World) addPods(s *rollout.Snapshot) {
	held := map[key]bool{}
	for i := range s.Nodes {
		for _, h := range s.Nodes[i].Holds {
			held[key{h.Owner, s.Nodes[i].Name}] = true
		}
	}
	if len(held) == 0 {
		return
	}
	for i := range s.Rollouts {
		r := &s.Rollouts[i]
		for j := range r.Targets {
			if t := &r.Targets[j]; held[key{r.Ref, t.Node}] {
				t.Pods, t.PodsSeen = slices.Clone(w.Workloads[t.Node]), true
			}
		}
	}
}

// Target finds a target; nil when there is none.
func (w *World) Target(of rollout.Ref, node string) *rollout.Target {
	at, ok := w.places[key{of, node}]
	if !ok {
		return nil
	}
	return &w.Truth.Rollouts[at.rollout].Targets[at.target]
}

// Rollout finds a rollout; nil when there is none.
func (w *World) Rollout(ref rollout.Ref) *rollout.Rollout {
	for i := range w.Truth.Rollouts {
		if w.Truth.Rollouts[i].Ref == ref {
			return &w.Truth.Rollouts[i]
		}
	}
	return nil
}

// Node finds a node; nil when there is none.
func (w *World) Node(name string) *rollout.Node {
	if at, known := w.nodes[name]; known && at < len(w.Truth.Nodes) && w.Truth.Nodes[at].Name == name {
		return &w.Truth.Nodes[at]
	}
	for i := range w.Truth.Nodes { // asked for the first time, or the truth was changed
		if w.Truth.Nodes[i].Name == name {
			if w.nodes == nil {
				w.nodes = map[string]int{}
			}
			w.nodes[name] = i
			return &w.Truth.Nodes[i]
		}
	}
	return nil
}

// Task finds a task of a target; nil when there is none.
func Task(t *rollout.Target, id string) *rollout.Task {
	for i := range t.Tasks {
		if t.Tasks[i].ID == id {
			return &t.Tasks[i]
		}
	}
	return nil
}

// Touch says that a node was changed by somebody else: writes of those who looked before are refused.
func (w *World) Touch(node string) { w.rev[node]++ }

// Changed says that a node has changed since somebody looked.
func (w *World) Changed(v View, node string) bool { return w.rev[node] != v.rev[node] }

// Apply carries a plan out, as an operator does that nothing happens to.
func (w *World) Apply(v View, p rollout.Plan) error {
	err := w.Act(v, p)
	w.Save(p)
	return err
}

// Act carries a plan out whose statuses are not written yet.
func (w *World) Act(v View, p rollout.Plan) error {
	var errs []error
	refused := map[rollout.Ref]bool{}
	for _, l := range p.Ledgers {
		if err := w.Write(l); err != nil {
			refused[l.Owner] = true
			errs = append(errs, fmt.Errorf("writing ledger %s: %w", l.Owner, err))
		}
	}
	stopped := map[string]bool{}
	for _, a := range p.Actions {
		if stopped[a.Node] = stopped[a.Node] || refused[a.Ledger]; stopped[a.Node] {
			continue
		}
		if err := w.Do(v, a); err != nil {
			stopped[a.Node] = true
			errs = append(errs, fmt.Errorf("%s of %s on %s: %w", a.Verb, a.Rollout, a.Node, err))
		}
	}
	return errors.Join(errs...)
}

// Write is the compare-and-swap of a ledger.
func (w *World) Write(l rollout.Ledger) error {
	w.Writes[l.Owner.String()]++
	l.Admitting = slices.Clone(l.Admitting)
	for i := range w.Truth.Ledgers {
		if w.Truth.Ledgers[i].Owner != l.Owner {
			continue
		}
		if w.Truth.Ledgers[i].Epoch != l.Epoch-1 {
			return ErrConflict
		}
		w.Truth.Ledgers[i] = l
		return nil
	}
	if l.Epoch != 1 {
		return ErrConflict
	}
	w.Truth.Ledgers = append(w.Truth.Ledgers, l)
	return nil
}

// Save stores what the groups learned and which order comes next.
func (w *World) Save(p rollout.Plan) {
	for _, g := range p.Groups {
		for i := range w.Truth.Groups {
			if w.Truth.Groups[i].Ref == g.Group {
				w.Truth.Groups[i].Memory = g.Memory
			}
		}
	}
	for _, r := range p.Reports {
		if to := w.Rollout(r.Rollout); to != nil {
			to.NextOrder = r.NextOrder
		}
	}
}
