// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// placeMarks puts the marks of a new hold on its node.
func (r Recorder) placeMarks(a rollout.Action, n *node.Node) node.Edit {
	d := node.Description{By: plan.Ref(r.Facts.Skyhook.Name).Title(), Why: a.Why.Text, Since: node.WholeSeconds(r.Facts.Now)}
	if usual := r.Usual; usual > 0 {
		end := d.Since.Add(usual)
		d.ExpectedEnd = &end
	}
	return n.PlaceMarks(node.HolderOf(plan.Ref(r.Facts.Skyhook.Name), ""), node.NewMarks(plan.Marks(r.Facts.Skyhook, r.Facts.Policy), d))
}
