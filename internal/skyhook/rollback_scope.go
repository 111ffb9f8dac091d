// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// takeBack marks a node that is complete with the packages of the spec, and is to go back because they failed on another one. The mark is
// recorded when the node is admitted. Nodes that were complete before the rollout began keep what they have.
func (c *nodeCompiler) takeBack(rec *node.SkyhookRecord, state v1alpha1.NodeState) {
	if !c.facts.GoesBackTogether() || c.facts.WentBack == nil || c.facts.Deleting || rec.Admitted || c.facts.HasRolledBack(rec) {
		return
	}
	isOfRollout := rec.FinishedAt != nil && !c.facts.WentBack.Since.IsZero() && !rec.FinishedAt.Before(c.facts.WentBack.Since)
	isComplete := isOfRollout && plan.RevisionKey(plan.FinishedHashes(state, rec.Packages)) == c.facts.Key
	if isComplete && c.facts.HasWayBack(rec) && c.rollbackRefusal(rec, state, nil) == "" {
		rec.Rollback = &node.Rollback{Of: c.facts.Key, At: c.facts.WentBack.At, Text: c.facts.WentBack.Text(), Others: true}
	}
}
