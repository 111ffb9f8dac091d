// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"slices"
	"time"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Node is a node of a rollout, as far as its compartment depends on it.
type Node struct {
	Name           string
	Labels         map[string]string
	Created        time.Time
	IsControlPlane bool
	IsExcluded     bool             // a label or a taint excludes it, so that it is no canary
	Group          rollout.GroupRef // for which the rollout admitted it last
}

// canaryChooser chooses the nodes of the canary compartments.
type canaryChooser struct {
	*Grouping
	nodes []Node // of the rollout: workers before the control plane, then by age
	taken map[string]bool
}

// chooseCanaries chooses the nodes of canary compartments: the smaller ones choose first. A node that was a canary of the compartment
// before remains one, so that nodes that appear later change nothing.
func (g *Grouping) chooseCanaries(nodes []Node) {
	if !g.HasCanaries() {
		return
	}
	chooser := canaryChooser{Grouping: g, nodes: slices.Clone(nodes), taken: map[string]bool{}}
	slices.SortStableFunc(chooser.nodes, func(a, b Node) int {
		return cmp.Or(compareBool(a.IsControlPlane, b.IsControlPlane), a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
	})
	g.isOfRollout = make(map[string]bool, len(nodes))
	for _, n := range nodes {
		g.isOfRollout[n.Name] = true
	}
	for i := range g.compartments {
		if c := &g.compartments[i]; c.canary != nil {
			chooser.choose(c)
		}
	}
}

// HasCanaries reports whether the compartment of a node depends on more than its labels.
func (g *Grouping) HasCanaries() bool {
	return slices.ContainsFunc(g.compartments, func(c compartment) bool { return c.canary != nil })
}

// compareBool orders false before true.
func compareBool(a, b bool) int { return countIf(a) - countIf(b) }

// choose chooses the nodes of one compartment: those that it had before, then the others by the values of the label.
func (h *canaryChooser) choose(c *compartment) {
	c.nodes, c.size = map[string]bool{}, canarySize(c.canary, h.countSelected(c))
	ref, chosen := h.groupRef(c.name), map[string]int{}
	values, queues := []string{}, map[string][]Node{}
	add := func(n Node) {
		c.nodes[n.Name], h.taken[n.Name] = true, true
		chosen[n.Labels[c.canary.SpreadBy]]++
	}
	for _, n := range h.nodes {
		if n.IsExcluded || h.taken[n.Name] || !c.selects(n.Labels) {
			continue
		}
		if n.Group == ref {
			if len(c.nodes) < c.size {
				add(n)
			}
			continue
		}
		value := n.Labels[c.canary.SpreadBy]
		if queues[value] == nil {
			values = append(values, value)
		}
		queues[value] = append(queues[value], n)
	}
	for len(c.nodes) < c.size {
		next := ""
		for _, value := range values {
			isFirst := len(queues[next]) == 0
			if len(queues[value]) > 0 && (isFirst || chosen[value] < chosen[next]) {
				next = value
			}
		}
		if len(queues[next]) == 0 {
			return
		}
		add(queues[next][0])
		queues[next] = queues[next][1:]
	}
}

func (h *canaryChooser) countSelected(c *compartment) int {
	selected := 0
	for i := range h.nodes {
		selected += countIf(c.selects(h.nodes[i].Labels))
	}
	return selected
}

// canarySize returns how many of this many nodes are canaries. Percentages are rounded down, but to at least one node.
func canarySize(canary *v1alpha1.Canary, nodes int) int {
	if canary.Percent == nil {
		return valueOr(canary.Count, 1)
	}
	return max(1, nodes*int(*canary.Percent)/100)
}

// findCanaryGroup returns the group of a node in a canary compartment. A node that is no longer selected, or that a label or a taint
// excludes, stays in the compartment for which it was admitted.
func (g *Grouping) findCanaryGroup(n *Node) (ref rollout.GroupRef, isCanary bool) {
	for i := range g.compartments {
		c := &g.compartments[i]
		if c.canary == nil {
			continue
		}
		ref := g.groupRef(c.name)
		remains := n.Group == ref && (n.IsExcluded || !g.isOfRollout[n.Name])
		if c.nodes[n.Name] || remains {
			return ref, true
		}
	}
	return rollout.GroupRef{}, false
}
