// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine

import "github.com/skyhook-k8s/skyhook/internal/rollout"

// holdReleaser releases holds that no target would release.
type holdReleaser struct{ *planner }

// releaseLeft releases holds whose owner does not exist, or has no target on the node.
func (r holdReleaser) releaseLeft() {
	for i := range r.nodes {
		n := &r.nodes[i]
		if n.isDuplicate {
			continue
		}
		for _, h := range n.Holds {
			if why, isLeft := r.checkLeft(n, &h); isLeft {
				r.plan.Actions = append(r.plan.Actions, rollout.Action{Verb: rollout.VerbRelease, Rollout: h.Owner, Node: n.Name, Why: why})
			}
		}
	}
}

// checkLeft returns why no rollout releases a hold.
func (r holdReleaser) checkLeft(n *nodeState, h *rollout.Hold) (why rollout.Why, isLeft bool) {
	owner := h.Owner.Title()
	if h.Orphan {
		return rollout.Why{Reason: rollout.ReasonOrphan, Text: owner + " no longer exists", About: owner}, true
	}
	hasTarget := r.findTarget(h.Owner, n.Name) != nil
	if hasTarget || r.findRollout(h.Owner) == nil {
		return rollout.Why{}, false
	}
	return rollout.Why{Reason: rollout.ReasonLeft, Text: owner + " does not select the node", About: owner}, true
}
