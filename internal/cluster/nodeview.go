// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"slices"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

// view is a node as NodeOps see it, and what it was made from.
type view struct {
	from *skyhook.Node
	node *nodeop.Node
}

// addNodeOpViews makes the nodes as NodeOps see them, each once for every version of it.
func (v *observer) addNodeOpViews(o *Objects) {
	views := make(map[string]view, len(o.Nodes))
	o.opNodes, o.opNode = make([]*nodeop.Node, 0, len(o.Nodes)), make(map[string]*nodeop.Node, len(o.Nodes))
	for _, n := range o.Nodes {
		known := v.views[n.Name]
		if known.from != n {
			known = view{n, convertNode(n, known.node)}
		}
		views[n.Name] = known
		o.opNodes = append(o.opNodes, known.node)
		o.opNode[n.Name] = known.node
	}
	v.views = views
}

// convertNode is a node as NodeOps see it. What prev has parsed is not parsed again.
func convertNode(n *skyhook.Node, prev *nodeop.Node) *nodeop.Node {
	out := &nodeop.Node{
		Name: n.Name, UID: n.UID, Created: n.Created, Labels: n.Labels, Annotations: n.Annotations,
		Unschedulable: n.Unschedulable, Ready: n.Ready, BootID: n.BootID,
	}
	return out.Parse(prev)
}

// asNodeOpNode is a node in the middle of a plan as NodeOps see it.
func (o *Objects) asNodeOpNode(n *skyhook.Node) *nodeop.Node { return convertNode(n, o.opNode[n.Name]) }

// fromOp is an edit of a NodeOp as one of the node.
func fromOp(e nodeop.Edit) skyhook.Edit {
	return skyhook.Edit{Annotations: e.Annotations, Labels: e.Labels, Unschedulable: e.Unschedulable}
}

// nodeOpHolds are the holds of NodeOps on a node. When no NodeOp has the UID of a hold, its owner is named with that UID.
func (o *Objects) nodeOpHolds(n *nodeop.Node) []rollout.Hold {
	if n == nil {
		return nil
	}
	var out []rollout.Hold
	for _, h := range nodeop.Holds(n) {
		known := slices.ContainsFunc(o.NodeOps, func(op *opv1.NodeOp) bool { return string(op.UID) == h.UID })
		if !known {
			h.Owner.Name += "@" + h.UID
		}
		out = append(out, h.Hold)
	}
	return out
}

// allHolds are everybody's holds on a node in the middle of a plan.
func (o *Objects) allHolds(n *skyhook.Node) []rollout.Hold {
	return append(skyhook.Holds(n), o.nodeOpHolds(o.asNodeOpNode(n))...)
}
