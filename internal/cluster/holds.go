// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"slices"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// holds lists the holds on a node. When no NodeOp has the UID of a hold, its owner is named with that UID.
func (o *Objects) holds(n *node.Node) []rollout.Hold {
	return n.Holds(func(uid string) bool {
		return slices.ContainsFunc(o.NodeOps, func(op *opv1.NodeOp) bool { return string(op.UID) == uid })
	})
}
