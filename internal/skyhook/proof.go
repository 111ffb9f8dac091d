// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"cmp"
	"fmt"
	"time"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// defaultProofTimeout is how long a proof without a timeout is waited for.
const defaultProofTimeout = 30 * time.Minute

// Proofs returns the proofs that a Skyhook and its policy ask for; both must be complete.
func Proofs(s *v1alpha1.Skyhook, p *v1alpha1.DeploymentPolicy) []*v1alpha1.Proof {
	var out []*v1alpha1.Proof
	if s.Spec.Proof != nil {
		out = append(out, s.Spec.Proof)
	}
	if p != nil && p.Spec.Proof != nil {
		out = append(out, p.Spec.Proof)
	}
	return out
}

// IsProving reports whether all work of a Skyhook is done on a node and its proof is waited for.
func IsProving(s *v1alpha1.Skyhook, n *node.Node) bool {
	rec := n.Skyhook(s.Name).Record
	return rec.Admitted && rec.Proving != nil && rec.Node == n.UID && rec.Skyhook == string(s.UID)
}

// compileProof returns what must be true of a node before it is given back; nil if nothing must be. Of several proofs that are not
// complete, one that holds the node comes first, then the one with the shorter timeout.
func (tc targetCompiler) compileProof(n *node.Node, rec *node.SkyhookRecord) *rollout.Proof {
	var out *rollout.Proof
	for _, p := range Proofs(tc.in.Skyhook, tc.in.Policy) {
		one := &rollout.Proof{Missing: tc.findMissing(p, n, rec), Timeout: defaultProofTimeout, Release: p.OnTimeout == v1alpha1.ProofRelease}
		if p.Timeout != nil {
			one.Timeout = p.Timeout.Duration
		}
		if rec.Proving != nil {
			one.Since = *rec.Proving
		}
		if out == nil || isProofStricter(one, out) {
			out = one
		}
	}
	return out
}

func isProofStricter(a, b *rollout.Proof) bool {
	switch {
	case (a.Missing == nil) != (b.Missing == nil):
		return b.Missing == nil
	case a.Release != b.Release:
		return b.Release
	}
	return a.Timeout > 0 && (b.Timeout <= 0 || a.Timeout < b.Timeout)
}

// findMissing says what of a proof is not true of a node; nil if everything is.
func (tc targetCompiler) findMissing(p *v1alpha1.Proof, n *node.Node, rec *node.SkyhookRecord) *rollout.Why {
	missing := func(format string, args ...any) *rollout.Why {
		return &rollout.Why{Reason: rollout.ReasonProof, About: "Node " + n.Name, Text: fmt.Sprintf(format, args...)}
	}
	if !n.Ready {
		return missing("the node is not ready")
	}
	for _, c := range p.NodeConditions {
		if is, want := n.Condition(c.Type), cmp.Or(string(c.Status), "True"); is != want {
			return missing("condition %s of the node is %s, and must be %s", c.Type, cmp.Or(is, "absent"), want)
		}
	}
	for _, r := range p.Resources {
		is, want, before := n.Allocatable(r.Name), rec.Offered[r.Name], " as when it was admitted"
		if r.AtLeast != nil {
			want, before = *r.AtLeast, ""
		}
		if is < want {
			return missing("the node offers %d of %s, and must offer %d%s", is, r.Name, want, before)
		}
	}
	if len(p.DaemonSets) == 0 {
		return nil
	}
	text, isChecked := tc.in.Unproven[n.Name]
	switch {
	case !isChecked:
		return missing("the pods of the DaemonSets are looked at next")
	case text != "":
		return missing("%s", text)
	}
	return nil
}

// recordProving records that all work is done and the proof is waited for.
func (r recorder) recordProving(n *node.Node) node.Edit {
	now := node.WholeSeconds(r.in.Now)
	return r.editRecord(n, func(_ v1alpha1.NodeState, rec *node.SkyhookRecord) {
		if rec.Proving == nil {
			rec.Proving = &now
		}
	})
}
