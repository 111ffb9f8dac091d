// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sim

import "github.com/skyhook-k8s/skyhook/internal/rollout"

// The order of nodes that are compared by their pods, within a class. Nodes whose pods are not known come after those whose pods are, and
// the node of the operator last.
const (
	maxOrder      = 1_000_000
	hinderedOrder = 100_000
	unknownOrder  = 2 * hinderedOrder
	selfOrder     = unknownOrder + 1
)

// orderByPods gives a rollout whose nodes are compared by their pods a fixed order, by the pods that the snapshot knows: how pods move is
// not simulated.
func orderByPods(r, known *rollout.Rollout, nodes []rollout.Node) {
	if !r.Drain.FewestPods {
		return
	}
	r.Drain.FewestPods = false
	self := ""
	for i := range nodes {
		if nodes[i].Self {
			self = nodes[i].Name
		}
	}
	for i := range r.Targets {
		r.Targets[i].Class = r.Targets[i].Class*maxOrder + orderOf(r, known.Targets[i], self)
	}
}

func orderOf(r *rollout.Rollout, t *rollout.Target, self string) int {
	isHindered, pods := r.Drain.Disturbs(t.Pods)
	switch {
	case t.Node == self:
		return selfOrder
	case !t.NeedsDrain():
		return 0
	case !t.PodsSeen:
		return unknownOrder
	case isHindered:
		return hinderedOrder + min(pods, hinderedOrder-1)
	}
	return min(pods, hinderedOrder-1)
}
