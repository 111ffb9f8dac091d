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

// Cluster is a cluster and everything that is true of it.
type Cluster struct {
	State          rollout.Snapshot
	Workloads      map[string][]rollout.Pod // pods on each node that are in the way when it is to become quiet
	RefuseEviction func(node string, p rollout.Pod) (why string, retry time.Duration)
	SlowDeletion   bool           // objects that are deleted before they ended stay until Vanish
	WriteCount     map[string]int // requests to an API server so far, by node; the ledgers' by their name

	revisions map[string]int // of each node: grows with each change of it
	objects   int            // ever created
	targets   map[targetKey]targetIndex
	nodeIndex map[string]int // where each was found last
}

type targetKey struct {
	rollout rollout.Ref
	node    string
}

type targetIndex struct{ rollout, target int }

// View is what an operator sees at one moment. It may be kept while the world goes on.
type View struct {
	rollout.Snapshot
	revisions map[string]int
}

// ErrConflict says that something was changed since it was looked at.
var ErrConflict = errors.New("it was changed meanwhile")

// New makes a world of a snapshot. The snapshot is copied. Pods that its targets have in the way become workloads.
func New(s rollout.Snapshot) *Cluster {
	w := &Cluster{State: Clone(s), Workloads: map[string][]rollout.Pod{}, WriteCount: map[string]int{}, revisions: map[string]int{}}
	for i := range w.State.Rollouts {
		for j := range w.State.Rollouts[i].Targets {
			t := &w.State.Rollouts[i].Targets[j]
			for _, p := range t.Pods {
				if !slices.ContainsFunc(w.Workloads[t.Node], func(o rollout.Pod) bool { return o.UID == p.UID }) {
					w.Workloads[t.Node] = append(w.Workloads[t.Node], p)
				}
			}
			t.Pods, t.PodsSeen = nil, false
		}
	}
	w.Reindex()
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

// Reindex has to be called when rollouts or targets were added to or taken from the truth.
func (w *Cluster) Reindex() {
	w.targets = map[targetKey]targetIndex{}
	for i := range w.State.Rollouts {
		r := &w.State.Rollouts[i]
		for j := range r.Targets {
			w.targets[targetKey{r.Ref, r.Targets[j].Node}] = targetIndex{i, j}
		}
	}
}

// View looks at the world as it is now. Workloads are seen on the nodes that a rollout holds.
func (w *Cluster) View() View {
	v := View{Snapshot: Clone(w.State), revisions: make(map[string]int, len(w.revisions))}
	for name, rev := range w.revisions {
		v.revisions[name] = rev
	}
	w.addPods(&v.Snapshot)
	return v
}

// addPods shows the workloads on the nodes that a rollout holds.
func (w *Cluster) addPods(s *rollout.Snapshot) {
	held := map[targetKey]bool{}
	for i := range s.Nodes {
		for _, h := range s.Nodes[i].Holds {
			held[targetKey{h.Owner, s.Nodes[i].Name}] = true
		}
	}
	if len(held) == 0 {
		return
	}
	for i := range s.Rollouts {
		r := &s.Rollouts[i]
		for j := range r.Targets {
			if t := &r.Targets[j]; held[targetKey{r.Ref, t.Node}] {
				t.Pods, t.PodsSeen = slices.Clone(w.Workloads[t.Node]), true
			}
		}
	}
}

// FindTarget finds a target; nil when there is none.
func (w *Cluster) FindTarget(of rollout.Ref, node string) *rollout.Target {
	at, ok := w.targets[targetKey{of, node}]
	if !ok {
		return nil
	}
	return &w.State.Rollouts[at.rollout].Targets[at.target]
}

// FindRollout finds a rollout; nil when there is none.
func (w *Cluster) FindRollout(ref rollout.Ref) *rollout.Rollout {
	for i := range w.State.Rollouts {
		if w.State.Rollouts[i].Ref == ref {
			return &w.State.Rollouts[i]
		}
	}
	return nil
}

// FindNode finds a node; nil when there is none.
func (w *Cluster) FindNode(name string) *rollout.Node {
	if at, known := w.nodeIndex[name]; known && at < len(w.State.Nodes) && w.State.Nodes[at].Name == name {
		return &w.State.Nodes[at]
	}
	for i := range w.State.Nodes { // asked for the first time, or the truth was changed
		if w.State.Nodes[i].Name == name {
			if w.nodeIndex == nil {
				w.nodeIndex = map[string]int{}
			}
			w.nodeIndex[name] = i
			return &w.State.Nodes[i]
		}
	}
	return nil
}

// FindTask finds a task of a target; nil when there is none.
func FindTask(t *rollout.Target, id string) *rollout.Task {
	for i := range t.Tasks {
		if t.Tasks[i].ID == id {
			return &t.Tasks[i]
		}
	}
	return nil
}

// TouchNode says that a node was changed by somebody else: writes of those who looked before are refused.
func (w *Cluster) TouchNode(node string) { w.revisions[node]++ }

// HasNodeChanged says that a node has changed since somebody looked.
func (w *Cluster) HasNodeChanged(v View, node string) bool {
	return w.revisions[node] != v.revisions[node]
}

// Apply carries a plan out, as an operator does that nothing happens to.
func (w *Cluster) Apply(v View, p rollout.Plan) error {
	err := w.ApplyActions(v, p)
	w.SaveStatus(p)
	return err
}

// ApplyActions carries a plan out whose statuses are not written yet.
func (w *Cluster) ApplyActions(v View, p rollout.Plan) error {
	var errs []error
	refused := map[rollout.Ref]bool{}
	for _, l := range p.Ledgers {
		if err := w.WriteLedger(l); err != nil {
			refused[l.Owner] = true
			errs = append(errs, fmt.Errorf("writing ledger %s: %w", l.Owner, err))
		}
	}
	stopped := map[string]bool{}
	for _, a := range p.Actions {
		if stopped[a.Node] = stopped[a.Node] || refused[a.Ledger]; stopped[a.Node] {
			continue
		}
		if err := w.ApplyAction(v, a); err != nil {
			stopped[a.Node] = true
			errs = append(errs, fmt.Errorf("%s of %s on %s: %w", a.Verb, a.Rollout, a.Node, err))
		}
	}
	return errors.Join(errs...)
}

// WriteLedger is the compare-and-swap of a ledger.
func (w *Cluster) WriteLedger(l rollout.Ledger) error {
	w.WriteCount[l.Owner.String()]++
	l.Admitting = slices.Clone(l.Admitting)
	for i := range w.State.Ledgers {
		if w.State.Ledgers[i].Owner != l.Owner {
			continue
		}
		if w.State.Ledgers[i].Epoch != l.Epoch-1 {
			return ErrConflict
		}
		w.State.Ledgers[i] = l
		return nil
	}
	if l.Epoch != 1 {
		return ErrConflict
	}
	w.State.Ledgers = append(w.State.Ledgers, l)
	return nil
}

// SaveStatus stores what the groups learned and which order comes next.
func (w *Cluster) SaveStatus(p rollout.Plan) {
	for _, g := range p.Groups {
		for i := range w.State.Groups {
			if w.State.Groups[i].Ref == g.Group {
				w.State.Groups[i].Memory = g.Memory
			}
		}
	}
	for _, r := range p.Reports {
		if to := w.FindRollout(r.Rollout); to != nil {
			to.NextOrder = r.NextOrder
		}
	}
}
