// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package engine makes a Plan from a Snapshot of the cluster.
//
// Decide is pure. It reads only the Snapshot (which contains the clock), changes nothing, and returns the same Plan for
// the same Snapshot. The Plan is a value: the operator applies it, the CLI prints it, the simulator applies it to a
// simulated cluster.
package engine

import (
	"slices"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Decide returns the next actions for a snapshot. All decisions are made here.
func Decide(s rollout.Snapshot) rollout.Plan {
	b := spareBuffers.Get().(*buffers)
	defer b.release()
	return newPlanner(&s, b).decide()
}

func (p *planner) decide() rollout.Plan {
	holdReleaser{p}.releaseLeft()
	tainter{p}.taintNewNodes()
	for i := range p.targets {
		t := &p.targets[i]
		t.verdict = evaluateGates(t)
		if !p.countProtected(t) {
			p.countUnready(t)
		}
		advancer{p}.advance(t)
	}
	p.markComplete()
	for i := range p.groups {
		batchUpdater{&p.groups[i]}.update(&p.plan)
	}
	for i := range p.rollouts {
		admitter{p}.admitTargets(&p.rollouts[i])
	}
	imagePuller{planner: p, counts: map[*groupState]*pullCount{}}.pullImages()
	rebootSharer{p}.startReboots()
	tainter{p}.untaintFinished()
	driftChecker{p}.checkNodes()
	plan := reporter{p}.buildPlan()
	plan.Actions = slices.DeleteFunc(plan.Actions, p.isOnSendingNode)
	return plan
}

// isOnSendingNode reports whether an earlier plan is still being applied to the node of an action. The targets there
// are evaluated like all others and keep their reservations, but the next actions wait for the outcome of the earlier
// ones.
func (p *planner) isOnSendingNode(a rollout.Action) bool {
	n := p.nodeNamed(a.Node)
	return n != nil && n.Sending
}

// draftPlan is the plan as far as it is made.
type draftPlan struct {
	rollout.Plan
	now   time.Time
	times rollout.Times
}

// addAction adds an action for a target.
func (p *draftPlan) addAction(t *targetState, v rollout.Verb, why rollout.Why) *rollout.Action {
	if len(p.Actions) == cap(p.Actions) { // append would copy a long list more often
		p.Actions = slices.Grow(p.Actions, max(len(p.Actions), 16))
	}
	p.Actions = append(p.Actions, rollout.Action{Verb: v, Rollout: t.rollout.Ref, Node: t.target.Node, Why: why})
	return &p.Actions[len(p.Actions)-1]
}

// requestNext requests that the next pass runs at this time at the latest.
func (p *draftPlan) requestNext(at time.Time) {
	isSooner := p.Next.IsZero() || at.Before(p.Next)
	if at.After(p.now) && isSooner {
		p.Next = at
	}
}

// hasSweep reports whether the plan deletes this object of a target. Actions of one target are added one after the
// other.
func (p *draftPlan) hasSweep(t *targetState, object string) bool {
	for i := len(p.Actions) - 1; i >= 0; i-- {
		a := &p.Actions[i]
		isOfTarget := a.Rollout == t.rollout.Ref && a.Node == t.target.Node
		if !isOfTarget {
			return false
		}
		if a.Verb == rollout.VerbSweep && a.Object == object {
			return true
		}
	}
	return false
}
