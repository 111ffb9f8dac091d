// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"time"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Marks returns the marks that a Skyhook and its policy put on nodes; the policy may be nil.
func Marks(s *v1alpha1.Skyhook, p *v1alpha1.DeploymentPolicy) v1alpha1.NodeMarks {
	if p == nil {
		return s.Spec.NodeMarks.Union(nil)
	}
	return s.Spec.NodeMarks.Union(p.Spec.NodeMarks)
}

// announces reports whether other programs are told which nodes are still to come, or how far held ones are.
func announces(s *v1alpha1.Skyhook, p *v1alpha1.DeploymentPolicy) bool {
	m := Marks(s, p)
	return m.Conditions || m.PreferNoSchedule
}

// placeMarks puts the marks of a new hold on its node.
func (r recorder) placeMarks(a rollout.Action, n *node.Node) node.Edit {
	d := node.Description{By: Ref(r.facts.Skyhook.Name).Title(), Why: a.Why.Text, Since: node.WholeSeconds(r.facts.Now)}
	if usual := r.usual; usual > 0 {
		end := d.Since.Add(usual)
		d.ExpectedEnd = &end
	}
	return n.PlaceMarks(node.HolderOf(Ref(r.facts.Skyhook.Name), ""), node.NewMarks(Marks(r.facts.Skyhook, r.facts.Policy), d))
}

// usualVisit is the median of how long the nodes were admitted that are complete in this generation; 0 if there are none.
func (c *Compiled) usualVisit() time.Duration {
	if !c.Marks().Description {
		return 0
	}
	var visits []time.Duration
	for _, t := range c.targets {
		isDone := !t.rec.Admitted && t.rec.At != nil && t.rec.FinishedAt != nil && t.rec.Generation == c.facts.Skyhook.Generation
		if isDone {
			visits = append(visits, t.rec.FinishedAt.Sub(*t.rec.At))
		}
	}
	return node.Median(visits)
}
