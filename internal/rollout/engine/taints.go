// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// tainter adds and removes the runtime-required taint.
type tainter struct{ *planner }

// taintNewNodes keeps workloads away from nodes that are not prepared yet.
func (p tainter) taintNewNodes() {
	for i := range p.targets {
		t := &p.targets[i]
		if !t.needsTaint() || t.node.tainting {
			continue
		}
		t.node.tainting = true
		why := rollout.Why{Reason: rollout.ReasonNewNode, Text: "the node is new and not prepared yet"}
		if t.target.Rebooted {
			why = rollout.Why{Reason: rollout.ReasonNodeBooted, Text: "the node booted, and its packages are applied again"}
		}
		p.plan.addAction(t, rollout.VerbTaint, why)
	}
}

// needsTaint reports whether the rollout prepares new nodes and this node is one, or has lost its preparation with a boot.
func (t *targetState) needsTaint() bool {
	isActive := t.rollout.Taint.NewNodes && !t.rollout.isBypassed() && t.isRequired()
	return isActive && (!t.node.Known || t.target.Rebooted) && !t.node.Tainted && t.hasWork && t.invalid == nil
}

// untaintFinished removes the taint from nodes on which everything that is required is finished, and ours also where nothing is required any
// more, whoever selects the node. What a rollout that cannot be compiled requires, and where, is unknown.
func (p tainter) untaintFinished() {
	for i := range p.targets {
		if t := &p.targets[i]; t.isRequired() {
			p.plan.untaintNode(t.node, t.rollout.Ref)
		}
	}
	if slices.ContainsFunc(p.rollouts, func(r rolloutState) bool { return r.Taint.Required && r.Broken != nil }) {
		return
	}
	for i := range p.nodes {
		if n := &p.nodes[i]; n.OwnTaint && !n.isDuplicate {
			p.plan.untaintNode(n, rollout.Ref{})
		}
	}
}

// isRequired reports whether the node must be prepared by this rollout.
func (t *targetState) isRequired() bool {
	return t.rollout.Taint.Required && !t.rollout.Deleting && t.exists && !t.target.Leaving
}

// untaintRetired removes the taint with the target that this plan retires: after it there may be no target left to do so.
func (p *draftPlan) untaintRetired(t *targetState) {
	if t.rollout.Taint.Required {
		p.untaintNode(t.node, t.rollout.Ref)
	}
}

// isPrepared reports whether workloads may run: the target is complete, or went back to what was complete before.
func (t *targetState) isPrepared() bool {
	return t.isComplete() || t.isBack() && !t.target.Rollback.First
}

// untaintNode removes the taint of a node, for a rollout or for none, unless a target on it is not finished. A failed one is not, nor is one
// that went back to nothing: the node is not prepared.
func (p *draftPlan) untaintNode(n *nodeState, by rollout.Ref) {
	isUnprepared := func(o *targetState) bool { return !o.isPrepared() && o.isRequired() && !o.isRetired }
	if !n.Tainted || n.untainted || n.findTarget(isUnprepared) != nil {
		return
	}
	n.untainted = true
	why := rollout.Why{Reason: rollout.ReasonFinished, Text: "everything that is required on the node is finished"}
	keepsCordon := n.findTarget(func(o *targetState) bool { return o.isRequired() && o.rollout.Taint.CordonAfter }) != nil
	if keepsCordon {
		why.Text += "; it is cordoned until somebody makes it schedulable"
	}
	p.Actions = append(p.Actions, rollout.Action{Verb: rollout.VerbUntaint, Rollout: by, Node: n.Name, Why: why, Cordon: keepsCordon})
}
