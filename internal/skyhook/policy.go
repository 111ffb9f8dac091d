// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// room is one compartment made ready: who is in it and how fast it goes.
type room struct {
	name     string
	selector labels.Selector // nil for the rest
	budget   v1alpha1.Budget
	strategy *v1alpha1.Strategy
	window   bool // a sliding one, from an interruptionBudget, which may be 0 or absent
	ceiling  int  // by the nodes its selector matches, for the choice between overlapping rooms
	memory   rollout.Memory
}

// grouped sorts nodes into rooms.
type grouped struct {
	prefix, owner string // of the groups' names, and of the ledger
	rooms         []room // careful ones first; the rest last
	admission     *v1alpha1.Admission
	own           string // Rollout.Name
	reset         bool   // batches begin again once everything is finished
}

// grouping prepares the compartments for the nodes of a Skyhook. Without a policy there is one, made from its
// interruptionBudget: a sliding window.
func grouping(in *Input, selected []bool) *grouped {
	s := in.Skyhook
	g := &grouped{own: rolloutName(s.Name), owner: rolloutName(s.Name), admission: s.Status.Admission, reset: true}
	memories := s.Status.CompartmentStatuses
	nodes := make([]*Node, 0, len(in.Nodes))
	for i, n := range in.Nodes {
		if selected[i] {
			nodes = append(nodes, n)
		}
	}
	switch p := in.Policy; {
	case p == nil:
		b := s.Spec.InterruptionBudget
		g.rooms = []room{{name: v1alpha1.DefaultCompartment, budget: v1alpha1.Budget(b), window: true}}
	default:
		if p.Spec.Scope == v1alpha1.ScopePolicy {
			g.owner, g.admission, memories, nodes = PolicyKind+"/"+p.Name, p.Status.Admission, p.Status.CompartmentStatuses, in.Nodes
		}
		if p.Spec.ResetBatchStateOnCompletion != nil {
			g.reset = *p.Spec.ResetBatchStateOnCompletion
		}
		g.rooms = rooms(p, nodes)
	}
	if o := s.Spec.DeploymentPolicyOptions; o != nil && o.ResetBatchStateOnCompletion != nil {
		g.reset = *o.ResetBatchStateOnCompletion
	}
	g.prefix = g.owner + "/"
	for i := range g.rooms {
		g.rooms[i].memory = remembered(memories[g.rooms[i].name].BatchState)
	}
	return g
}

// PolicyKind begins the names of groups and ledgers that belong to a policy of scope Policy.
const PolicyKind = "DeploymentPolicy"

// Compartments sorts nodes into the compartments of a policy, by node name. Of several that select a node the most
// careful one gets it: by strategy, then by the smaller ceiling, then by name.
func Compartments(p *v1alpha1.DeploymentPolicy, nodes []*Node) map[string]string {
	g := &grouped{rooms: rooms(p, nodes)}
	out := make(map[string]string, len(nodes))
	for _, n := range nodes {
		out[n.Name] = g.of(n)
	}
	return out
}

func rooms(p *v1alpha1.DeploymentPolicy, nodes []*Node) []room {
	var out []room
	for _, c := range p.Spec.Compartments {
		selector, err := metav1.LabelSelectorAsSelector(c.Selector.Kubernetes())
		if err != nil { // a problem of the Skyhook, see check
			selector = labels.Nothing()
		}
		r := room{name: c.Name, selector: selector, budget: c.Budget, strategy: c.Strategy}
		matched := 0
		for _, n := range nodes {
			if selector.Matches(labels.Set(n.Labels)) {
				matched++
			}
		}
		r.ceiling = max(1, r.limit(matched))
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b room) int {
		return cmp.Or(cmp.Compare(safety(a.strategy), safety(b.strategy)), cmp.Compare(a.ceiling, b.ceiling), cmp.Compare(a.name, b.name))
	})
	return append(out, room{name: v1alpha1.DefaultCompartment, budget: p.Spec.Default.Budget, strategy: &p.Spec.Default.Strategy})
}

// safety orders strategies, careful ones first.
func safety(s *v1alpha1.Strategy) int {
	switch {
	case s == nil:
		return 3
	case s.Fixed != nil:
		return 0
	case s.Linear != nil:
		return 1
	}
	return 2
}

// of is the name of a node's group.
func (g *grouped) of(n *Node) string {
	for _, r := range g.rooms {
		if r.selector == nil || r.selector.Matches(labels.Set(n.Labels)) {
			return g.prefix + r.name
		}
	}
	return g.prefix + v1alpha1.DefaultCompartment
}

// made are the groups with their limits, by the nodes that are in them.
func (g *grouped) made(targets []rollout.Target) []rollout.Group {
	matched := map[string]int{}
	for _, t := range targets {
		if !t.Leaving && !t.Gone {
			matched[t.Group]++
		}
	}
	out := make([]rollout.Group, 0, len(g.rooms))
	for _, r := range g.rooms {
		name := g.prefix + r.name
		out = append(out, rollout.Group{Name: name, Ledger: g.owner, Limit: r.limit(matched[name]), Pace: r.pace(), Memory: r.memory, Reset: g.reset})
	}
	slices.SortFunc(out, func(a, b rollout.Group) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// MergeGroups is one group for two Skyhooks that share it. A percentage is taken of the larger part only, which never
// allows more than of both together.
func MergeGroups(a, b rollout.Group) rollout.Group {
	if b.Limit == rollout.Unlimited || a.Limit != rollout.Unlimited && b.Limit > a.Limit {
		a.Limit = b.Limit
	}
	a.Taken = slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(a.Taken), b.Taken...))))
	return a
}

// limit is how many of so many nodes may be busy at once: a percentage is rounded down, but to no less than one node
// unless it is 0.
func (r room) limit(nodes int) int {
	switch {
	case r.budget.Percent != nil && *r.budget.Percent == 0 || r.budget.Count != nil && *r.budget.Count == 0:
		return 0
	case r.budget.Percent != nil:
		if nodes == 0 && !r.window {
			return 0
		}
		return max(1, nodes**r.budget.Percent/100)
	case r.budget.Count != nil:
		return *r.budget.Count
	}
	return rollout.Unlimited
}

// pace is the strategy with its defaults.
func (r room) pace() rollout.Pace {
	if r.window {
		return rollout.Pace{Kind: rollout.Window}
	}
	if r.strategy == nil {
		return rollout.Pace{Kind: rollout.Whole, PassPercent: 100}
	}
	var p rollout.Pace
	var b v1alpha1.BatchStrategy
	switch s := r.strategy; {
	case s.Linear != nil:
		p, b = rollout.Pace{Kind: rollout.Linear, Delta: or(s.Linear.Delta, 1)}, s.Linear.BatchStrategy
	case s.Exponential != nil:
		p, b = rollout.Pace{Kind: rollout.Exponential, Factor: or(s.Exponential.GrowthFactor, 2)}, s.Exponential.BatchStrategy
	default:
		p = rollout.Pace{Kind: rollout.Fixed}
		if s.Fixed != nil {
			b = s.Fixed.BatchStrategy
		}
	}
	p.Initial, p.PassPercent = or(b.InitialBatch, 1), or(b.BatchThreshold, 100)
	p.StopAfter, p.SafetyLimit = or(b.FailureThreshold, 0), or(b.SafetyLimit, 50)
	return p
}

func or(value *int, otherwise int) int {
	if value == nil {
		return otherwise
	}
	return *value
}

// ledger is what the owner's status says is being admitted.
func (g *grouped) ledger() rollout.Ledger {
	l := rollout.Ledger{Name: g.owner}
	if g.admission == nil {
		return l
	}
	l.Epoch = g.admission.Epoch
	for _, s := range g.admission.Seats {
		l.Admitting = append(l.Admitting, g.seat(s))
	}
	return l
}

// seat reads a line of a ledger.
func (g *grouped) seat(s v1alpha1.Seat) rollout.Seat {
	out := rollout.Seat{Rollout: s.Rollout, Node: s.Node, Group: g.prefix + cmp.Or(s.Compartment, v1alpha1.DefaultCompartment), Batch: s.Batch, Since: s.Since.Time}
	if out.Rollout == "" {
		out.Rollout = g.own
	}
	return out
}

// Admission is a ledger as the status of its owner holds it.
func Admission(l rollout.Ledger) *v1alpha1.Admission {
	out := &v1alpha1.Admission{Epoch: l.Epoch}
	for _, s := range l.Admitting {
		seat := v1alpha1.Seat{Node: s.Node, Batch: s.Batch, Since: metav1.NewTime(whole(s.Since))}
		if s.Rollout != l.Name {
			seat.Rollout = s.Rollout
		}
		if c := strings.TrimPrefix(s.Group, l.Name+"/"); c != v1alpha1.DefaultCompartment {
			seat.Compartment = c
		}
		out.Seats = append(out.Seats, seat)
	}
	return out
}

// remembered is what the status keeps of earlier batches, as the engine knows it; Batches is the way back.
func remembered(b *v1alpha1.BatchState) rollout.Memory {
	if b == nil {
		return rollout.Memory{}
	}
	return rollout.Memory{
		Batch: b.CurrentBatch, ConsecutiveFailures: b.ConsecutiveFailures, Completed: b.CompletedNodes, Failed: b.FailedNodes,
		LastSize: b.LastBatchSize, LastFailed: b.LastBatchFailed, Stopped: b.ShouldStop, Open: b.Open, From: b.From,
	}
}

// Batches is a group's memory as the status keeps it; nil when there is none.
func Batches(m rollout.Memory) *v1alpha1.BatchState {
	if m == (rollout.Memory{}) {
		return nil
	}
	return &v1alpha1.BatchState{
		CurrentBatch: m.Batch, ConsecutiveFailures: m.ConsecutiveFailures, CompletedNodes: m.Completed, FailedNodes: m.Failed,
		LastBatchSize: m.LastSize, LastBatchFailed: m.LastFailed, ShouldStop: m.Stopped, Open: m.Open, From: m.From,
	}
}
