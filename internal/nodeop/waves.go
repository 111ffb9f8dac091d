// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	skyhookv1 "github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/policy"
)

// Revision identifies what a NodeOp does: a person approves this and nothing else. How many nodes at a time, and whether it is
// suspended, are no part of it.
func Revision(op *v1alpha1.NodeOp) string {
	spec := op.Spec
	spec.Suspend, spec.Concurrency, spec.CountUnavailable = nil, nil, nil
	spec.TTLSecondsAfterFinished = nil
	sum := sha256.Sum256([]byte(string(op.UID) + node.EncodeJSON(spec)))
	return hex.EncodeToString(sum[:8])
}

// PolicyNodes returns what the compartments of nodes depend on.
func PolicyNodes(op *v1alpha1.NodeOp, nodes []*node.Node) []policy.Node {
	out, key := make([]policy.Node, len(nodes)), node.OpRecordKey(string(op.UID))
	for i, n := range nodes {
		out[i] = policy.Node{
			Name: n.Name, Labels: n.Labels, Created: n.Created, IsControlPlane: n.IsControlPlane(), IsExcluded: n.Labels[skyhookv1.LabelIgnore] == "true",
		}
		if rec := n.NodeOpState(key).Record; rec.Node == n.UID {
			out[i].Group = rec.Group
		}
	}
	return out
}
