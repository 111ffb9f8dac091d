// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop

import (
	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	skyhookv1 "github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
)

// Marks returns the marks that a NodeOp and its policy put on nodes; the policy may be nil.
func Marks(op *v1alpha1.NodeOp, p *skyhookv1.DeploymentPolicy) skyhookv1.NodeMarks {
	if p == nil {
		return op.Spec.NodeMarks.Union(nil)
	}
	return op.Spec.NodeMarks.Union(p.Spec.NodeMarks)
}

// Proofs returns the proofs that a NodeOp and its policy ask for.
func Proofs(op *v1alpha1.NodeOp, p *skyhookv1.DeploymentPolicy) node.Proofs {
	if p == nil {
		return node.NewProofs(op.Spec.Proof)
	}
	return node.NewProofs(op.Spec.Proof, p.Spec.Proof)
}

// IsProving reports whether all work of the NodeOp is done on a node and its proof is waited for.
func (op *Operation) IsProving(n *node.Node) bool {
	rec, isRecorded := op.RecordOn(n)
	return isRecorded && rec.Admitted && rec.Proving != nil
}

// Holder names the NodeOp in the marks of nodes.
func (op *Operation) Holder() string { return node.HolderOf(op.Owner, string(op.NodeOp.UID)) }
