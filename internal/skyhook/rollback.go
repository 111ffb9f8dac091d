// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"fmt"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
)

// compileRollback says whether a node may go back, and whether it did.
func (c *nodeCompiler) compileRollback(rec *node.SkyhookRecord, state v1alpha1.NodeState, out *rollout.Target) {
	out.Rollback.First = rec.First
	if c.facts.HasRolledBack(rec) {
		out.Rollback.Cause, out.Rollback.WithOthers = c.rolledBackReason(rec, state), rec.Rollback.Others
		return
	}
	if out.Visit.Admitted && !out.Leaving && !c.facts.Deleting && c.facts.HasWayBack(rec) {
		out.Rollback.IfFailed = c.facts.RollsBackFor(v1alpha1.RollbackStageFailed)
		isReleased := out.Proof != nil && out.Proof.Release
		out.Rollback.IfUnproven = !isReleased && c.facts.RollsBackFor(v1alpha1.RollbackProofFailed)
		out.Rollback.IfOthers = c.facts.GoesBackTogether()
		out.Rollback.Refused = c.rollbackRefusal(rec, state, c.pods.Work)
	}
}

// rolledBackReason says what failed, and what the node goes or went back to.
func (c *nodeCompiler) rolledBackReason(rec *node.SkyhookRecord, state v1alpha1.NodeState) *rollout.Why {
	return &rollout.Why{
		Reason: rollout.ReasonRolledBack, Since: rec.Rollback.At,
		Text: fmt.Sprintf("%s failed, and %s: %s", c.facts.DescribeRevision(rec.Rollback.Of), c.describeWay(rec, state), rec.Rollback.Text),
	}
}

// describeWay says what a node goes or went back to.
func (c *nodeCompiler) describeWay(rec *node.SkyhookRecord, state v1alpha1.NodeState) string {
	isOnItsWay := rec.Admitted || rec.Rollback.Others && plan.RevisionKey(plan.FinishedHashes(state, rec.Packages)) == c.facts.Key
	switch to := c.facts.DescribeRevision(plan.RevisionKey(rec.Complete)); {
	case rec.First && isOnItsWay:
		return "its packages are uninstalled"
	case rec.First:
		return "its packages were uninstalled"
	case isOnItsWay:
		return "the node goes back to " + to
	default:
		return "the node went back to " + to
	}
}

// rollbackRefusal returns why a node does not go back: a package that would be changed refuses. It is empty if none does.
func (c *nodeCompiler) rollbackRefusal(rec *node.SkyhookRecord, state v1alpha1.NodeState, pods []*podstate.Pod) string {
	var stays map[string]bool
	if rec.First {
		stays = c.facts.PackagesThatStay(rec.Packages)
	}
	for _, key := range plan.SortedNames(state) {
		p := rec.Packages[key]
		e := plan.NewEntry(key, state[key], p)
		isAsBefore := p != nil && p.Goal == "" && p.Hash == rec.Complete[e.Name] && e.State == v1alpha1.StateComplete
		if isAsBefore || stays[e.Name] {
			continue
		}
		refuses := p != nil && p.Refuses
		if pod := plan.FindPod(pods, e); pod != nil && pod.Refuses != nil {
			refuses = *pod.Refuses
		}
		if refuses {
			return fmt.Sprintf("the node does not go back, because package %s %s refuses that in its config.json", e.Name, e.Version)
		}
	}
	return ""
}
