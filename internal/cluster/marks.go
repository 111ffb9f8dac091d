// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"time"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// announcements are what a plan tells other programs about nodes, by node.
type announcements struct {
	of  map[string][]node.Announced
	now time.Time
}

// newAnnouncements collects them from a plan.
func (p *pass) newAnnouncements(plan rollout.Plan) announcements {
	out := announcements{of: map[string][]node.Announced{}, now: p.now}
	for _, m := range plan.Maintenance {
		if marks, holder := p.marksOf(m.Rollout); holder != "" {
			out.of[m.Node] = append(out.of[m.Node], node.Announced{
				Holder: holder, Title: m.Rollout.Title(), State: m.State, Taints: marks.Has(v1alpha1.MarkPreferNoSchedule), Conditions: marks.Has(v1alpha1.MarkConditions),
			})
		}
	}
	return out
}

// marksOf returns the marks of a rollout, and its name in the marks of nodes; empty for one that does not exist.
func (p *pass) marksOf(ref rollout.Ref) (marks v1alpha1.NodeMarks, holder string) {
	if s := p.compiled.Skyhooks[ref]; s != nil {
		return s.Marks(), node.HolderOf(ref, "")
	}
	if op := p.compiled.NodeOps[ref]; op != nil {
		return op.Operation.Marks, op.Operation.Holder()
	}
	return v1alpha1.NodeMarks{}, ""
}

// editOf returns what changes about the marks of a node, as it is after everything else that changes on it: those of holds that are
// gone go with them.
func (a announcements) editOf(n *node.Node) node.Edit {
	announced := a.of[n.Name]
	if len(announced) == 0 && !n.HasMarks() {
		return node.Edit{}
	}
	e := n.RemoveUnheldMarks()
	return e.Plus(n.With(e).Announce(announced, a.now))
}

// addMarks adds the nodes whose marks change, or whose handovers ended, though nothing else does.
func (c *workCollector) addMarks() {
	if c.activeOnly {
		return // only nodes with actions
	}
	for _, n := range c.objects.Nodes {
		if n.HasEndedHandovers() {
			c.statusWork(n.Name)
		}
		isMarked := n.HasMarks() || len(c.announced.of) > 0 && len(c.announced.of[n.Name]) > 0
		if isMarked && c.byNode[n.Name] == nil && !c.isLeftOut(n.Name) && !c.announced.editOf(n).Empty() {
			c.statusWork(n.Name)
		}
	}
}
