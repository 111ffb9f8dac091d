// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop

import (
	"time"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	skyhookv1 "github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Marks returns the marks that a NodeOp and its policy put on nodes; the policy may be nil.
func Marks(op *v1alpha1.NodeOp, p *skyhookv1.DeploymentPolicy) skyhookv1.NodeMarks {
	if p == nil {
		return op.Spec.NodeMarks.Union(nil)
	}
	return op.Spec.NodeMarks.Union(p.Spec.NodeMarks)
}

// Marks returns the marks that the NodeOp and its policy put on nodes.
func (c *Compiled) Marks() skyhookv1.NodeMarks { return c.op.marks }

// Holder names the NodeOp in the marks of nodes.
func (c *Compiled) Holder() string { return node.HolderOf(c.op.ref(), string(c.op.nodeOp.UID)) }

// placeMarks puts the marks of a new hold on its node.
func (r *recorder) placeMarks(a rollout.Action) node.Edit {
	d := node.Description{By: r.ref().Title(), Why: a.Why.Text, Since: node.WholeSeconds(r.now)}
	if r.usualVisit > 0 {
		end := d.Since.Add(r.usualVisit)
		d.ExpectedEnd = &end
	}
	return r.node.PlaceMarks(node.HolderOf(r.ref(), string(r.nodeOp.UID)), node.NewMarks(r.marks, d))
}

// findUsualVisit returns the median of how long the nodes were admitted on which the operation completed; 0 if there are none.
func (c *Compiled) findUsualVisit() time.Duration {
	if !c.op.marks.Description {
		return 0
	}
	var visits []time.Duration
	for _, t := range c.order {
		isDone := !t.rec.Admitted && t.rec.At != nil && t.rec.Result != nil && t.rec.Result.Phase == v1alpha1.PhaseCompleted && !t.rec.Result.Skipped
		if isDone {
			visits = append(visits, t.rec.Result.At.Sub(*t.rec.At))
		}
	}
	return node.Median(visits)
}
