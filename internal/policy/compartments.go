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

// compartment is one compartment made ready: who is in it and how fast it goes.
type compartment struct {
	name     string
	selector labels.Selector // nil for the rest
	budget   v1alpha1.Budget
	strategy *v1alpha1.Strategy
	isWindow bool // a sliding one, without a policy
	ceiling  int  // by the nodes its selector matches, for the choice between overlapping rooms
	memory   rollout.Memory
}

// matchCompartments are the compartments of a policy. Of several that select a node the most careful one gets it: by strategy, then
// by the smaller ceiling, then by name.
func matchCompartments(p *v1alpha1.DeploymentPolicy, nodes []map[string]string) []compartment {
	var out []compartment
	for _, c := range p.Spec.Compartments {
		selector, err := metav1.LabelSelectorAsSelector(c.Selector.Kubernetes())
		if err != nil { // a problem, see Check
			selector = labels.Nothing()
		}
		r := compartment{name: c.Name, selector: selector, budget: c.Budget, strategy: c.Strategy}
		matched := 0
		for _, n := range nodes {
			if selector.Matches(labels.Set(n)) {
				matched++
			}
		}
		r.ceiling = max(1, r.budgetLimit(matched))
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b compartment) int {
		return cmp.Or(cmp.Compare(strategyRank(a.strategy), strategyRank(b.strategy)), cmp.Compare(a.ceiling, b.ceiling), cmp.Compare(a.name, b.name))
	})
	return append(out, compartment{name: v1alpha1.DefaultCompartment, budget: p.Spec.Default.Budget, strategy: &p.Spec.Default.Strategy})
}

// strategyRank orders strategies, careful ones first.
func strategyRank(s *v1alpha1.Strategy) int {
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

// GroupOf is a node's group, by its labels.
func (g *Grouping) GroupOf(node map[string]string) rollout.GroupRef {
	for _, r := range g.compartments {
		if r.selector == nil || r.selector.Matches(labels.Set(node)) {
			return g.groupRef(r.name)
		}
	}
	return g.groupRef(v1alpha1.DefaultCompartment)
}

// Groups are the groups with their limits, by the targets that are in them.
func (g *Grouping) Groups(targets []rollout.Target) []rollout.Group {
	matched := map[rollout.GroupRef]int{}
	for i := range targets {
		if t := &targets[i]; !t.Leaving && !t.Gone {
			matched[t.Group]++
		}
	}
	out := make([]rollout.Group, 0, len(g.compartments))
	for _, r := range g.compartments {
		group := g.template
		group.Ref = g.groupRef(r.name)
		group.Limit, group.Pace, group.Memory = r.budgetLimit(matched[group.Ref]), r.rolloutPace(), r.memory
		out = append(out, group)
	}
	slices.SortFunc(out, func(a, b rollout.Group) int { return cmp.Compare(a.Ref.Compartment, b.Ref.Compartment) })
	return out
}

// budgetLimit is how many of so many nodes may be busy at once: a percentage is rounded down, but to no less than one node
// unless it is 0.
func (r compartment) budgetLimit(nodes int) int {
	switch {
	case r.budget.Percent != nil && *r.budget.Percent == 0 || r.budget.Count != nil && *r.budget.Count == 0:
		return 0
	case r.budget.Percent != nil:
		if nodes == 0 && !r.isWindow {
			return 0
		}
		return max(1, nodes**r.budget.Percent/100)
	case r.budget.Count != nil:
		return *r.budget.Count
	}
	return rollout.Unlimited
}

// rolloutPace is the strategy with its defaults.
func (r compartment) rolloutPace() rollout.Pace {
	if r.isWindow {
		return rollout.Pace{Kind: rollout.PaceWindow}
	}
	if r.strategy == nil {
		return rollout.Pace{Kind: rollout.PaceWhole, PassPercent: 100}
	}
	var p rollout.Pace
	var b v1alpha1.BatchStrategy
	switch s := r.strategy; {
	case s.Linear != nil:
		p, b = rollout.Pace{Kind: rollout.PaceLinear, Delta: valueOr(s.Linear.Delta, 1)}, s.Linear.BatchStrategy
	case s.Exponential != nil:
		p, b = rollout.Pace{Kind: rollout.PaceExponential, Factor: valueOr(s.Exponential.GrowthFactor, 2)}, s.Exponential.BatchStrategy
	default:
		p = rollout.Pace{Kind: rollout.PaceFixed}
		if s.Fixed != nil {
			b = s.Fixed.BatchStrategy
		}
	}
	p.Initial, p.PassPercent = valueOr(b.InitialBatch, 1), valueOr(b.BatchThreshold, 100)
	p.StopAfter, p.SafetyLimit = valueOr(b.FailureThreshold, 0), valueOr(b.SafetyLimit, 50)
	return p
}

func valueOr(value *int, otherwise int) int {
	if value == nil {
		return otherwise
	}
	return *value
}
