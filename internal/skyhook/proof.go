// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
)

// Proofs returns the proofs that a Skyhook and its policy ask for.
func Proofs(s *v1alpha1.Skyhook, p *v1alpha1.DeploymentPolicy) node.Proofs {
	if p == nil {
		return node.NewProofs(s.Spec.Proof)
	}
	return node.NewProofs(s.Spec.Proof, p.Spec.Proof)
}

// IsProving reports whether all work of a Skyhook is done on a node and its proof is waited for.
func IsProving(s *v1alpha1.Skyhook, n *node.Node) bool {
	rec := n.Skyhook(s.Name).Record
	return rec.Admitted && rec.Proving != nil && rec.Node == n.UID && rec.Skyhook == string(s.UID)
}

// recordProving records that all work is done and the proof is waited for.
func (r recorder) recordProving(n *node.Node) node.Edit {
	now := node.WholeSeconds(r.facts.Now)
	return editRecord(r.facts, n, func(_ v1alpha1.NodeState, rec *node.SkyhookRecord) {
		if rec.Proving == nil {
			rec.Proving = &now
		}
	})
}
