// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// MergeGroups merges the groups of two rollouts that share a budget. The limit is the larger one: a percentage of one
// part of the nodes never allows more than the percentage of all. A rollout without For, such as that of a NodeOp, does
// not change what is rolled out.
func MergeGroups(a, b rollout.Group) rollout.Group {
	isLarger := a.Limit != rollout.Unlimited && b.Limit > a.Limit
	if isLarger || b.Limit == rollout.Unlimited {
		a.Limit = b.Limit
	}
	a.For, a.Approval.Of = a.For.Merge(b.For), a.Approval.Of.Merge(b.Approval.Of)
	a.Reset = a.Reset && b.Reset
	a.Taken = append(slices.Clip(a.Taken), b.Taken...)
	return a
}

// AddUnavailable adds to each group that counts them the nodes that are not ready or cordoned though no rollout of the group
// made them so. They count against the budget.
func AddUnavailable(s *rollout.Snapshot) {
	shared := map[rollout.GroupRef]*sharedGroup{}
	for i := range s.Groups {
		g := &s.Groups[i]
		if g.CountUnavailable {
			shared[g.Ref] = &sharedGroup{Group: g, rollouts: map[rollout.Ref]bool{}}
		}
	}
	if len(shared) == 0 {
		return
	}
	byNode := map[string][]*sharedGroup{}
	for i := range s.Rollouts {
		addMembers(&s.Rollouts[i], shared, byNode)
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		for _, g := range byNode[n.Name] {
			if g.isUnavailable(n) {
				g.Taken = append(g.Taken, n.Name)
			}
		}
	}
}

// sharedGroup is a group of a policy, and the rollouts that have targets in it.
type sharedGroup struct {
	*rollout.Group
	rollouts map[rollout.Ref]bool
}

// addMembers adds a rollout to the shared groups of its targets, and these groups to the nodes of the targets.
func addMembers(r *rollout.Rollout, shared map[rollout.GroupRef]*sharedGroup, byNode map[string][]*sharedGroup) {
	for _, t := range r.Targets {
		g := shared[t.Group]
		if g == nil {
			continue
		}
		g.rollouts[r.Ref] = true
		isKnown := slices.Contains(byNode[t.Node], g)
		if !t.Leaving && !isKnown {
			byNode[t.Node] = append(byNode[t.Node], g)
		}
	}
}

// isUnavailable reports whether a node is not ready or cordoned for other reasons than a rollout of the group.
func (g *sharedGroup) isUnavailable(n *rollout.Node) bool {
	isHeld := slices.ContainsFunc(n.Holds, func(h rollout.Hold) bool { return g.rollouts[h.Owner] })
	wasCordoned := slices.ContainsFunc(n.Holds, func(h rollout.Hold) bool { return h.WasCordoned })
	if isHeld {
		return n.Cordoned && wasCordoned
	}
	return n.Cordoned || !n.Ready
}
