// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop

import (
	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	skyhookv1 "github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
)

// Proofs returns the proofs that a NodeOp and its policy ask for.
func Proofs(op *v1alpha1.NodeOp, p *skyhookv1.DeploymentPolicy) node.Proofs {
	if p == nil {
		return node.NewProofs(op.Spec.Proof)
	}
	return node.NewProofs(op.Spec.Proof, p.Spec.Proof)
}

// IsProving reports whether all work of a NodeOp is done on a node and its proof is waited for.
func IsProving(op *v1alpha1.NodeOp, n *node.Node) bool {
	rec, ok := (&operation{nodeOp: op}).recordOn(n)
	return ok && rec.Admitted && rec.Proving != nil
}

// recordProving records that all work is done and the proof is waited for.
func (r *recorder) recordProving() node.Edit {
	return r.editRecord(func(rec *node.OpRecord) {
		if rec.Proving == nil {
			rec.Proving = new(node.WholeSeconds(r.now))
		}
	})
}
