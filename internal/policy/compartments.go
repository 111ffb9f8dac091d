// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"slices"

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
	window   bool // a sliding one, without a policy
	ceiling  int  // by the nodes its selector matches, for the choice between overlapping rooms
	memory   rollout.Memory
}

// rooms are the compartments of a policy. Of several that select a node the most careful one gets it: by strategy, then
// by the smaller ceiling, then by name.
func rooms(p *v1alpha1.DeploymentPolicy, nodes []map[string]string) []room {
	var out []room
	for _, c := range p.Spec.Compartments {
		selector, err := metav1.LabelSelectorAsSelector(c.Selector.Kubernetes())
		if err != nil { // a problem, see Check
			selector = labels.Nothing()
		}
		r := room{name: c.Name, selector: selector, budget: c.Budget, strategy: c.Strategy}
		matched := 0
		for _, n := range nodes {
			if selector.Matches(labels.Set(n)) {
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

// Of is a node's group, by its labels.
func (g *Grouping) Of(node map[string]string) rollout.GroupRef {
	for _, r := range g.rooms {
		if r.selector == nil || r.selector.Matches(labels.Set(node)) {
			return g.group(r.name)
		}
	}
	return g.group(v1alpha1.DefaultCompartment)
}

// Groups are the groups with their limits, by the targets that are in them.
func (g *Grouping) Groups(targets []rollout.Target) []rollout.Group {
	matched := map[rollout.GroupRef]int{}
	for i := range targets {
		if t := &targets[i]; !t.Leaving && !t.Gone {
			matched[t.Group]++
		}
	}
	out := make([]rollout.Group, 0, len(g.rooms))
	for _, r := range g.rooms {
		group := g.shape
		group.Ref = g.group(r.name)
		group.Limit, group.Pace, group.Memory = r.limit(matched[group.Ref]), r.pace(), r.memory
		out = append(out, group)
	}
	slices.SortFunc(out, func(a, b rollout.Group) int { return cmp.Compare(a.Ref.Compartment, b.Ref.Compartment) })
	return out
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
		return rollout.Pace{Kind: rollout.PaceWindow}
	}
	if r.strategy == nil {
		return rollout.Pace{Kind: rollout.PaceWhole, PassPercent: 100}
	}
	var p rollout.Pace
	var b v1alpha1.BatchStrategy
	switch s := r.strategy; {
	case s.Linear != nil:
		p, b = rollout.Pace{Kind: rollout.PaceLinear, Delta: or(s.Linear.Delta, 1)}, s.Linear.BatchStrategy
	case s.Exponential != nil:
		p, b = rollout.Pace{Kind: rollout.PaceExponential, Factor: or(s.Exponential.GrowthFactor, 2)}, s.Exponential.BatchStrategy
	default:
		p = rollout.Pace{Kind: rollout.PaceFixed}
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
