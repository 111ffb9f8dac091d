// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// idleRole is what a target on an idle node counts as.
type idleRole int

const (
	roleFinished idleRole = iota
	roleWaiting
	roleBlocked
	roleExcluded
)

// updateIdle finds out which of the nodes that were evaluated are idle after this plan.
func (pr *Pruner) updateIdle(p *planner, plan rollout.Plan) {
	for i := range plan.Actions {
		if n := p.nodeNamed(plan.Actions[i].Node); n != nil {
			n.hasActions = true
		}
	}
	for i := range p.nodes {
		pr.updateNode(&p.nodes[i])
	}
}

func (pr *Pruner) updateNode(n *nodeState) {
	at := pr.kept[n.index]
	pr.setIdle(at, false)
	if !n.isIdle() {
		return
	}
	role := pr.nodes[at].targets
	for t := n.firstTarget; t != nil; t = t.nextOnNode {
		role[0].role = findIdleRole(t)
		role = role[1:]
	}
	pr.setIdle(at, true)
}

// setIdle counts the targets of a node as omitted, or no longer.
func (pr *Pruner) setIdle(node int, isIdle bool) {
	n := &pr.nodes[node]
	if n.isIdle == isIdle {
		return
	}
	n.isIdle = isIdle
	for _, t := range n.targets {
		pr.queues[t.queue].setIdle(t, isIdle)
	}
}

func (q *candidateQueue) setIdle(t prunedTarget, isIdle bool) {
	change := -1
	if isIdle {
		change = 1
	}
	countRole(&q.omitted, t.role, change)
	isReady := isIdle && t.role == roleWaiting
	q.candidates[t.position].isReady = isReady
	if isReady {
		q.head = min(q.head, t.position)
	}
}

func countRole(o *rollout.Omitted, role idleRole, n int) {
	switch role {
	case roleFinished:
		o.Finished += n
	case roleWaiting:
		o.Waiting += n
	case roleBlocked:
		o.Blocked += n
	case roleExcluded:
		o.Excluded += n
	}
}

// isIdle reports whether only an admission can change anything on a node.
func (n *nodeState) isIdle() bool {
	isChanging := n.hasActions || n.Sending || n.isReserved
	isUsed := n.occupant != nil || n.objects > 0 || len(n.Holds) > 0
	if isChanging || isUsed || !n.Ready {
		return false
	}
	return n.findTarget(func(t *targetState) bool { return !t.isIdle() }) == nil
}

// isIdle reports whether a target counts for nothing but what Omitted counts. One on a node that counts against the
// limit also counts for its topology, and one of the open batch for the batch.
func (t *targetState) isIdle() bool {
	isValid := t.exists && t.invalid == nil
	isInFlight := t.target.Visit.Admitted || t.target.Leaving
	isChecked := t.rollout.CheckLimit > 0 && t.target.Check != nil
	isUnsettled := isChecked || t.target.Pull != nil || t.waitsFirst() || t.soak.isOpen || t.target.Visit.Skipped || t.target.Rollback.Cause != nil
	if isInFlight || isUnsettled || !isValid {
		return false
	}
	g := t.group
	isOfOpenBatch := g.usesBatches() && t.target.Visit.Batch >= max(1, g.Memory.From)
	return !isOfOpenBatch && g.usage.useCount[t.target.Node] == 0
}

// findIdleRole returns what a target on an idle node counts as.
func findIdleRole(t *targetState) idleRole {
	if !t.hasWork {
		return roleFinished
	}
	if t.isExcluded() {
		return roleExcluded
	}
	isStopped := slices.ContainsFunc(gates, func(g gate) bool { return !g.ofRollout && g.stops(t) })
	if isStopped {
		return roleBlocked
	}
	return roleWaiting
}

// isRefusedForAllBehind reports whether a candidate was refused for a reason that holds for all candidates of its
// rollout and group behind it. Its node is idle, so only a gate of the whole rollout can have stopped it.
func isRefusedForAllBehind(t *targetState) bool {
	if !t.passesGates {
		return true
	}
	if t.verdict.Phase != rollout.PhaseWaiting {
		return false
	}
	return t.verdict.Why.Reason.IsOfGroup() || t.group.Frozen != nil
}
