// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// compartment is one compartment of a policy: its nodes, budget, strategy and memory.
type compartment struct {
	name     string
	selector labels.Selector // nil for all remaining nodes
	budget   v1alpha1.Budget
	strategy *v1alpha1.Strategy
	wave     v1alpha1.Wave
	soak     *metav1.Duration // nil for that of the policy
	canary   *v1alpha1.Canary // nil for all nodes that are selected
	size     int              // how many nodes the canary has
	nodes    map[string]bool  // of the canary, by name
	isWindow bool             // a sliding window, without a policy

	stopsFirst bool // a failure in the first batch stops it, unless its strategy says when failures do
	ceiling    int  // for the nodes that the selector matches; of overlapping compartments the smaller one comes first
	memory     rollout.Memory
}

// matchCompartments returns the compartments of a policy in the order in which they select nodes: canaries, the fewest first, then by
// strategy, careful ones first, then by the smaller ceiling, then by name.
func matchCompartments(p *v1alpha1.DeploymentPolicy, nodes []map[string]string) []compartment {
	var out []compartment
	for _, spec := range p.Spec.Compartments {
		out = append(out, newCompartment(spec, nodes))
	}
	slices.SortFunc(out, func(a, b compartment) int {
		return cmp.Or(
			compareBool(a.canary == nil, b.canary == nil),
			cmp.Compare(a.size, b.size),
			cmp.Compare(strategyRank(a.strategy), strategyRank(b.strategy)),
			cmp.Compare(a.ceiling, b.ceiling),
			cmp.Compare(a.name, b.name),
		)
	})
	for i := range out {
		out[i].stopsFirst = p.Spec.Profile == v1alpha1.ProfileRecommended
	}
	return append(out, compartment{
		stopsFirst: p.Spec.Profile == v1alpha1.ProfileRecommended,

		name:     v1alpha1.DefaultCompartment,
		budget:   p.Spec.Default.Budget,
		strategy: &p.Spec.Default.Strategy,
		wave:     p.Spec.Default.Wave,
	})
}

// newCompartment returns a compartment. If its selector is invalid, which FindProblems reports, it has no nodes.
func newCompartment(spec v1alpha1.Compartment, nodes []map[string]string) compartment {
	selector, err := metav1.LabelSelectorAsSelector(spec.Selector.Kubernetes())
	if err != nil {
		selector = labels.Nothing()
	}
	c := compartment{
		name: spec.Name, selector: selector, budget: spec.Budget, strategy: spec.Strategy,
		wave: spec.Wave, soak: spec.Soak, canary: spec.Canary,
	}
	matched := 0
	for _, n := range nodes {
		if c.selects(n) {
			matched++
		}
	}
	if c.canary != nil {
		c.size = canarySize(c.canary, matched)
		matched = min(matched, c.size)
	}
	c.ceiling = max(1, c.budgetLimit(matched))
	return c
}

// selects reports whether the compartment selects a node with these labels.
func (c *compartment) selects(node map[string]string) bool {
	return c.selector == nil || c.selector.Matches(labels.Set(node))
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

// GroupOf returns the group of a node.
func (g *Grouping) GroupOf(n *Node) rollout.GroupRef {
	if ref, isCanary := g.findCanaryGroup(n); isCanary {
		return ref
	}
	for i := range g.compartments {
		if c := &g.compartments[i]; c.canary == nil && c.selects(n.Labels) {
			return g.groupRef(c.name)
		}
	}
	return g.groupRef(v1alpha1.DefaultCompartment)
}

// countMembers counts the targets of each group. Most targets are in the group of the one before.
func countMembers(targets []*rollout.Target) map[rollout.GroupRef]int {
	out, last, count := map[rollout.GroupRef]int{}, rollout.GroupRef{}, 0
	for _, t := range targets {
		if t.Leaving || t.Gone {
			continue
		}
		if t.Group != last {
			out[last] += count
			last, count = t.Group, 0
		}
		count++
	}
	out[last] += count
	return out
}

// Groups returns the groups, with limits for these targets.
func (g *Grouping) Groups(targets []*rollout.Target) []rollout.Group {
	matched := countMembers(targets)
	out := make([]rollout.Group, 0, len(g.compartments))
	for _, c := range g.compartments {
		group := g.template
		group.Ref = g.groupRef(c.name)
		group.Limit = c.budgetLimit(matched[group.Ref])
		group.CountUnavailable = ptr.Deref(c.budget.CountUnavailable, false) || group.Ref.Owner.Kind == Kind
		group.Pace, group.Memory = c.rolloutPace(), c.memory
		if c.soak != nil {
			group.Soak = c.soak.Duration
		}
		for _, name := range c.wave.After {
			group.After = append(group.After, g.groupRef(name))
		}
		group.Approval = g.approval(&c)
		out = append(out, group)
	}
	slices.SortFunc(out, func(a, b rollout.Group) int {
		return cmp.Compare(a.Ref.Compartment, b.Ref.Compartment)
	})
	return out
}

// budgetLimit returns how many of this many nodes may be in flight. Percentages are rounded down, but to at least one
// node unless the percentage is 0.
func (c *compartment) budgetLimit(nodes int) int {
	percent, count := c.budget.Percent, c.budget.Count
	if isZero(percent) || isZero(count) {
		return 0
	}
	if percent == nil {
		return valueOr(count, rollout.Unlimited)
	}
	hasNodes := nodes > 0 || c.isWindow
	if !hasNodes {
		return 0
	}
	return max(1, nodes*int(*percent)/100)
}

func isZero[T int32 | int64](value *T) bool { return value != nil && *value == 0 }

// rolloutPace returns the strategy, with its defaults.
func (c *compartment) rolloutPace() rollout.Pace {
	switch {
	case c.isWindow:
		return rollout.Pace{Kind: rollout.PaceWindow}
	case c.strategy == nil:
		return rollout.Pace{Kind: rollout.PaceWhole, PassPercent: 100, StopFirst: c.stopsFirst}
	}
	pace, batch := rollout.Pace{Kind: rollout.PaceFixed}, v1alpha1.BatchStrategy{}
	switch s := c.strategy; {
	case s.Linear != nil:
		pace = rollout.Pace{Kind: rollout.PaceLinear, Delta: valueOr(s.Linear.Delta, 1)}
		batch = s.Linear.BatchStrategy
	case s.Exponential != nil:
		pace = rollout.Pace{Kind: rollout.PaceExponential, Factor: valueOr(s.Exponential.GrowthFactor, 2)}
		batch = s.Exponential.BatchStrategy
	case s.Fixed != nil:
		batch = s.Fixed.BatchStrategy
	}
	pace.Initial = valueOr(batch.InitialBatch, 1)
	pace.PassPercent = valueOr(batch.BatchThreshold, 100)
	pace.StopAfter, pace.StopFirst = valueOr(batch.FailureThreshold, 0), c.stopsFirst && batch.FailureThreshold == nil
	pace.SafetyLimit = valueOr(batch.SafetyLimit, 50)
	return pace
}

func valueOr[T int32 | int64](value *T, otherwise int) int {
	if value == nil {
		return otherwise
	}
	return int(*value)
}
