// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"slices"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// addGroups puts every target into the NodeOp's own group, or into the groups of its policy.
func (c *compiler) addGroups() {
	var frozen *rollout.Why
	if c.failed != "" && nodeop.IsTrue(c.op.Spec().StopOnFailure) {
		frozen = &rollout.Why{Reason: rollout.ReasonStopped, About: "Node " + c.failed, Text: "node " + c.failed + " failed, and stopOnFailure is set"}
	}
	own := rollout.GroupRef{Owner: c.op.Owner, Compartment: v1alpha1.DefaultCompartment}
	if c.in.Budget != nil {
		c.useBudget(frozen)
		return
	}

	c.out.Groups = []rollout.Group{c.ownGroup(own, frozen)}
	if nodeop.IsTrue(c.op.Spec().CountUnavailable) {
		c.countFailedNodes(func(*target) rollout.GroupRef { return own })
	}
	for _, t := range c.out.Rollout.Targets {
		t.Group = own
	}
}

// ownGroup is a sliding window as wide as the concurrency.
func (c *compiler) ownGroup(name rollout.GroupRef, frozen *rollout.Why) rollout.Group {
	limit := c.op.Concurrency()
	if limit == 0 {
		limit = rollout.Unlimited
	}
	pace := rollout.Pace{Kind: rollout.PaceWindow}
	if nodeop.IsTrue(c.op.Spec().StopOnFailure) {
		pace.StopAfter, pace.SafetyLimit = 1, 101
	}
	status := &c.op.NodeOp.Status
	return rollout.Group{
		Ref: name, Ledger: c.op.Owner, Limit: limit, CountUnavailable: nodeop.IsTrue(c.op.Spec().CountUnavailable),
		Pace: pace, Memory: policy.ReadMemory(status.CompartmentStatuses, status.Internal.Memory, v1alpha1.DefaultCompartment), Frozen: frozen,
	}
}

// useBudget uses the groups of a policy. Other rollouts may share them, so a failure blocks the targets and not the groups.
func (c *compiler) useBudget(frozen *rollout.Why) {
	budget := c.in.Budget
	c.out.Groups = append(c.out.Groups, budget.Groups...)
	c.countFailedNodes(func(t *target) rollout.GroupRef { return budget.Of[t.node.Name] })
	c.out.Rollout.Limit = c.op.Concurrency()
	for _, t := range c.out.Rollout.Targets {
		t.Group, t.Place = budget.Of[t.Node], budget.Place[t.Node]
		startsLater := !t.Visit.Admitted && !t.Visit.Skipped && len(t.Tasks) > 0
		if frozen != nil && startsLater {
			t.Blocked = frozen
		}
	}
}

// countFailedNodes counts nodes that are unavailable because this NodeOp failed there against the budget of their group.
// Otherwise one node after the other would become unavailable.
func (c *compiler) countFailedNodes(groupOf func(*target) rollout.GroupRef) {
	for _, t := range c.targets {
		if t.rec.Admitted || !t.rec.Result.IsFailed() || t.isAvailable() {
			continue
		}
		group := groupOf(t)
		at := slices.IndexFunc(c.out.Groups, func(g rollout.Group) bool { return g.Ref == group })
		if at >= 0 {
			c.out.Groups[at].Taken = append(slices.Clip(c.out.Groups[at].Taken), t.node.Name)
		}
	}
}

// isAvailable reports whether the node is ready and not cordoned by this NodeOp.
func (t *target) isAvailable() bool {
	isCordoned := t.rec.Held != nil && t.node.Unschedulable
	return t.node.Ready && !isCordoned
}
