// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/expression"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// care says which nodes are in the care of somebody else.
type care struct {
	*v1alpha1.Avoid
	selectors []labels.Selector
	cel       *expression.Expression // nil for none
}

// newCare compiles what is avoided. What cannot be compiled is a problem of its policy, whose users do nothing.
func newCare(a *v1alpha1.Avoid) care {
	c := care{Avoid: a}
	for _, text := range a.Labels {
		if s, err := labels.Parse(text); err == nil {
			c.selectors = append(c.selectors, s)
		}
	}
	if a.CEL != "" {
		c.cel, _ = expression.Compile(a.CEL, true)
	}
	return c
}

// careAnswers are the answers of expressions about nodes. They count for the same pointers, which are replaced when a node changes.
type careAnswers map[careQuestion]string

type careQuestion struct {
	node       *node.Node
	cel        string
	isCordoned bool
}

// addCare notes for which targets nothing begins because their nodes are in the care of somebody else. These nodes count against the
// budgets of their groups.
func (c *compiler) addCare() {
	c.answers = careAnswers{}
	for i := range c.snapshot.Rollouts {
		r := &c.snapshot.Rollouts[i]
		avoid := c.objects.Avoid[r.Ref]
		if avoid == nil {
			continue
		}
		by := newCare(avoid)
		for j, t := range r.Targets {
			known, exists := c.objects.places[t.Node]
			if !exists || t.Visit.Admitted {
				continue
			}
			text, since := c.findCare(by, c.objects.Nodes[known], c.snapshot.Nodes[known].IsCordonedByOthers())
			if text == "" {
				continue
			}
			since = c.objects.durations.Since(t.UID, "care of "+r.Ref.String(), since, c.snapshot.Now)
			target := r.CopyTarget(j)
			target.Avoided = &rollout.Why{Reason: rollout.ReasonInOthersCare, About: "Node " + t.Node, Text: "the node is in the care of somebody else: " + text, Since: since}
			if why := target.Blocked; why != nil && why.Reason == rollout.ReasonTaintNotTolerated {
				target.Blocked = nil // whoever set the taint may be the one who cares for the node
			}
			if g, hasGroup := c.groups[t.Group]; hasGroup && !t.Leaving {
				taken := &c.snapshot.Groups[g].Taken
				*taken = append(slices.Clip(*taken), t.Node)
			}
		}
	}
}

// findCare says what shows that a node is in the care of somebody else, and since when if the node says so; empty if nothing does. What
// names who it is comes first.
func (c *compiler) findCare(by care, n *node.Node, isCordoned bool) (text string, since time.Time) {
	for i := range n.Taints {
		if t := &n.Taints[i]; t.Key == corev1.TaintNodeUnschedulable && t.TimeAdded != nil {
			since = t.TimeAdded.Time
		}
	}
	for _, s := range by.selectors {
		if s.Matches(labels.Set(n.Labels)) {
			return "its labels match " + s.String(), since
		}
	}
	for i := range n.Taints {
		t := &n.Taints[i]
		if t.Key == corev1.TaintNodeUnschedulable || !slices.Contains(by.Taints, t.Key) {
			continue
		}
		if t.TimeAdded != nil {
			since = t.TimeAdded.Time
		}
		return "it has the taint " + t.ToString(), since
	}
	if by.cel != nil {
		question := careQuestion{n, by.CEL, isCordoned}
		answer, isKnown := c.kept.answers[question]
		if !isKnown {
			answer = by.ask(n, isCordoned)
		}
		if c.answers[question] = answer; answer != "" {
			return answer, since
		}
	}
	if isCordoned && slices.Contains(by.Taints, corev1.TaintNodeUnschedulable) {
		return "it was cordoned, and not for a Skyhook or NodeOp", since
	}
	return "", time.Time{}
}

// ask evaluates the expression about a node. One that cannot be evaluated may be true.
func (c care) ask(n *node.Node, isCordoned bool) string {
	switch isTrue, err := c.cel.IsTrue(context.Background(), nil, n.Variable(isCordoned)); {
	case err != nil:
		return "avoid.cel cannot be evaluated: " + node.Truncate(err.Error(), 200)
	case isTrue:
		return "avoid.cel is true of it: " + node.Truncate(c.CEL, 200)
	}
	return ""
}
