// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster/gates"
	"github.com/skyhook-k8s/skyhook/internal/cluster/handover"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// noteHandover notes whom an object asks, by its policy, which may be nil.
func (o *Objects) noteHandover(ref rollout.Ref, uid string, p *v1alpha1.DeploymentPolicy) {
	if p != nil && len(p.Spec.Handover) > 0 {
		o.Handovers[ref] = handover.Asker{Rollout: ref, Holder: node.HolderOf(ref, uid), Steps: p.Spec.Handover}
	}
}

// askKey is a node that a rollout asks for.
type askKey struct {
	rollout rollout.Ref
	node    string
}

// findAsked returns the questions of the steps that are asked.
func (o *Objects) findAsked() (questions []gates.Question) {
	for _, ref := range slices.SortedFunc(maps.Keys(o.Handovers), rollout.Ref.Compare) {
		for _, n := range o.Nodes {
			if q, isAsked := o.Handovers[ref].Question(n); isAsked {
				questions = append(questions, q)
			}
		}
	}
	return questions
}

// addHandovers adds whom the rollouts ask for nodes, and what those said who are asked.
func (c *compiler) addHandovers() {
	o := c.objects
	for i := range c.snapshot.Rollouts {
		r := &c.snapshot.Rollouts[i]
		by, asks := o.Handovers[r.Ref]
		if !asks {
			continue
		}
		r.Handover = policy.HandoverSteps(by.Steps)
		for j, t := range r.Targets {
			n := o.Node(t.Node)
			if n == nil {
				continue
			}
			key := askKey{r.Ref, t.Node}
			var answer *gates.Answer
			if given, isAnswered := o.answers[key]; isAnswered {
				answer = &given
			}
			if state := by.Compile(n, answer, o.refused.asks[key].Text); state != nil {
				r.CopyTarget(j).Handover = state
			}
		}
	}
}

// withdraw deletes the objects of handovers to those that do not hold a node any more, and returns for whom none is left: only then it is
// forgotten. What fails is tried again, and nothing else waits for it.
func withdraw(ctx context.Context, p *pass, n *node.Node) (holders []string) {
	ended := n.EndedHandovers()
	for _, holder := range slices.Sorted(maps.Keys(ended)) {
		key := failureKey{n.Name, rollout.Ref{Kind: "Handover", Name: holder}}
		if p.inFlight.awaitRetry(key.node, key.rollout, p.now) {
			continue
		}
		if err := handover.Withdraw(ctx, p.options.Client, n, ended[holder]); err != nil {
			p.inFlight.recordRolloutError(key, fmt.Errorf("the handover to %s has ended, and %w", holder, err), p.options.Clock())
			continue
		}
		p.inFlight.forgetErrorOf(key)
		holders = append(holders, holder)
	}
	return holders
}

func (o *Objects) hasEndedHandovers(name string) bool {
	n := o.Node(name)
	return n != nil && n.HasEndedHandovers()
}
