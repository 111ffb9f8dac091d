// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package sim simulates a cluster in memory, on a virtual clock. The plans of the engine are applied to it.
//
// A Cluster has its state in the form of a Snapshot: the records on nodes and the progress of objects are in its
// Targets and Tasks. Operators get copies of it (View), decide, and write (WriteLedger, ApplyAction). A write is
// refused if the node has changed since it was read, as by an API server. Run runs a Snapshot to its end.
package sim

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Cluster is a simulated cluster.
type Cluster struct {
	State          rollout.Snapshot
	Workloads      map[string][]rollout.Pod // pods that must leave a node before it counts as drained, by node
	RefuseEviction func(node string, p rollout.Pod) (why string, retry time.Duration)
	SlowDeletion   bool // objects that are deleted before they finished stay until RemoveObject

	looked    map[string]bool     // nodes whose pods the last plan asked for
	revisions map[string]int      // of each node: increases with each change
	objects   int                 // created so far
	joint     map[string][]string // tasks that an object has not begun with, by object
	targets   map[targetKey]targetIndex
	nodeIndex map[string]int // where each node was found last
}

type targetKey struct {
	rollout rollout.Ref
	node    string
}

type targetIndex struct{ rollout, target int }

// View is what an operator has read. It does not change when the cluster does.
type View struct {
	rollout.Snapshot
	revisions map[string]int
}

// ErrConflict is returned when an object was changed since it was read.
var ErrConflict = errors.New("it was changed since it was read")

// New returns a cluster in the state of a snapshot, which is copied. Pods of its targets become workloads.
func New(s rollout.Snapshot) *Cluster {
	c := &Cluster{
		State:     Clone(s),
		Workloads: map[string][]rollout.Pod{},
		revisions: map[string]int{},
	}
	c.eachTarget(func(_ *rollout.Rollout, t *rollout.Target) {
		for _, p := range t.Drain.Pods {
			c.addWorkload(t.Node, p)
		}
		t.Drain.Pods, t.Drain.PodsSeen = nil, false
	})
	c.Reindex()
	return c
}

func (c *Cluster) addWorkload(node string, p rollout.Pod) {
	isKnown := slices.ContainsFunc(c.Workloads[node], func(o rollout.Pod) bool { return o.UID == p.UID })
	if !isKnown {
		c.Workloads[node] = append(c.Workloads[node], p)
	}
}

// Clone copies a snapshot so that the copy shares nothing that a Cluster changes.
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
		s.Rollouts[i].CopyTargets()
		cloneLists(s.Rollouts[i].Targets)
	}
	return s
}

func cloneLists(targets []*rollout.Target) {
	for _, t := range targets {
		t.Tasks, t.Drain.Pods = slices.Clone(t.Tasks), slices.Clone(t.Drain.Pods)
		t.Objects.Orphans, t.Objects.Going, t.Objects.Ended, t.Objects.Queues = slices.Clone(t.Objects.Orphans), slices.Clone(t.Objects.Going), slices.Clone(t.Objects.Ended), slices.Clone(t.Objects.Queues)
	}
}

// Reindex must be called after rollouts or targets were added to State or removed from it.
func (c *Cluster) Reindex() {
	c.targets = map[targetKey]targetIndex{}
	for i := range c.State.Rollouts {
		r := &c.State.Rollouts[i]
		for j := range r.Targets {
			c.targets[targetKey{r.Ref, r.Targets[j].Node}] = targetIndex{i, j}
		}
	}
}

func (c *Cluster) eachTarget(do func(*rollout.Rollout, *rollout.Target)) {
	eachTarget(&c.State, do)
}

func eachTarget(s *rollout.Snapshot, do func(*rollout.Rollout, *rollout.Target)) {
	for i := range s.Rollouts {
		r := &s.Rollouts[i]
		for j := range r.Targets {
			do(r, r.Targets[j])
		}
	}
}

// View returns the current state. Workloads are listed on nodes with a hold, and on those that the last plan asked for.
func (c *Cluster) View() View {
	v := View{Snapshot: Clone(c.State), revisions: maps.Clone(c.revisions)}
	c.addPods(&v.Snapshot)
	return v
}

// addPods lists the workloads on nodes that a rollout holds, or whose pods it asked for.
func (c *Cluster) addPods(s *rollout.Snapshot) {
	held, listed := map[targetKey]bool{}, maps.Clone(c.looked)
	if listed == nil {
		listed = map[string]bool{}
	}
	for i := range s.Nodes {
		for _, h := range s.Nodes[i].Holds {
			held[targetKey{h.Owner, s.Nodes[i].Name}] = true
			listed[s.Nodes[i].Name] = true
		}
	}
	if len(listed) == 0 {
		return
	}
	eachTarget(s, func(r *rollout.Rollout, t *rollout.Target) {
		isLooked := r.Drain.WaitFirst && listed[t.Node]
		if isLooked || held[targetKey{r.Ref, t.Node}] {
			t.Drain.Pods, t.Drain.PodsSeen = slices.Clone(c.Workloads[t.Node]), true
		}
	})
}

// FindTarget returns a target; nil if there is none.
func (c *Cluster) FindTarget(of rollout.Ref, node string) *rollout.Target {
	at, ok := c.targets[targetKey{of, node}]
	if !ok {
		return nil
	}
	return c.State.Rollouts[at.rollout].Targets[at.target]
}

// FindRollout returns a rollout; nil if there is none.
func (c *Cluster) FindRollout(ref rollout.Ref) *rollout.Rollout {
	return find(c.State.Rollouts, func(r *rollout.Rollout) bool { return r.Ref == ref })
}

// FindNode returns a node; nil if there is none.
func (c *Cluster) FindNode(name string) *rollout.Node {
	nodes := c.State.Nodes
	at, isKnown := c.nodeIndex[name]
	if isKnown && at < len(nodes) && nodes[at].Name == name {
		return &nodes[at]
	}
	at = slices.IndexFunc(nodes, func(n rollout.Node) bool { return n.Name == name })
	if at < 0 {
		return nil
	}
	if c.nodeIndex == nil {
		c.nodeIndex = map[string]int{}
	}
	c.nodeIndex[name] = at
	return &nodes[at]
}

// FindTask returns a task of a target; nil if there is none.
func FindTask(t *rollout.Target, id string) *rollout.Task {
	return find(t.Tasks, func(k *rollout.Task) bool { return k.ID == id })
}

func find[T any](items []T, matches func(*T) bool) *T {
	for i := range items {
		if matches(&items[i]) {
			return &items[i]
		}
	}
	return nil
}

// TouchNode changes the revision of a node: writes based on earlier views are refused.
func (c *Cluster) TouchNode(node string) { c.revisions[node]++ }

// hasNodeChanged reports whether a node has changed since a view.
func (c *Cluster) hasNodeChanged(v View, node string) bool {
	return c.revisions[node] != v.revisions[node]
}

// Apply applies a plan and stores the status.
func (c *Cluster) Apply(v View, p rollout.Plan) error {
	err := c.ApplyActions(v, p)
	c.SaveStatus(p)
	return err
}

// LookAt has the next views list the workloads on these nodes, beyond those with a hold.
func (c *Cluster) LookAt(nodes []string) {
	c.looked = make(map[string]bool, len(nodes))
	for _, node := range nodes {
		c.looked[node] = true
	}
}

// ApplyActions applies a plan without storing the status. An error or conflict stops its node only.
func (c *Cluster) ApplyActions(v View, p rollout.Plan) error {
	c.LookAt(p.Look)
	var errs []error
	refused := map[rollout.Ref]bool{}
	for _, l := range p.Ledgers {
		if err := c.WriteLedger(l); err != nil {
			refused[l.Owner] = true
			errs = append(errs, fmt.Errorf("writing ledger %s: %w", l.Owner, err))
		}
	}
	stopped := map[string]bool{}
	for _, a := range p.Actions {
		stopped[a.Node] = stopped[a.Node] || refused[a.Ledger]
		if stopped[a.Node] {
			continue
		}
		if err := c.ApplyAction(v, a); err != nil {
			stopped[a.Node] = true
			errs = append(errs, fmt.Errorf("%s of %s on %s: %w", a.Verb, a.Rollout, a.Node, err))
		}
	}
	return errors.Join(errs...)
}

// WriteLedger writes a ledger by compare-and-swap of its epoch.
func (c *Cluster) WriteLedger(l rollout.Ledger) error {
	l.Admitting = slices.Clone(l.Admitting)
	stored := find(c.State.Ledgers, func(s *rollout.Ledger) bool { return s.Owner == l.Owner })
	epoch := int64(0)
	if stored != nil {
		epoch = stored.Epoch
	}
	if l.Epoch != epoch+1 {
		return ErrConflict
	}
	if stored == nil {
		c.State.Ledgers = append(c.State.Ledgers, l)
	} else {
		*stored = l
	}
	return nil
}

// SaveStatus stores the memory of groups and the next order of rollouts.
func (c *Cluster) SaveStatus(p rollout.Plan) {
	for _, report := range p.Groups {
		for i := range c.State.Groups {
			if g := &c.State.Groups[i]; g.Ref == report.Group {
				g.Memory = report.Memory
			}
		}
	}
	for _, report := range p.Reports {
		if r := c.FindRollout(report.Rollout); r != nil {
			r.Numbering.Next = report.NextOrder
		}
	}
}
