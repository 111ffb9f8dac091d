// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"time"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
)

// Marks returns the marks that a Skyhook and its policy put on nodes; the policy may be nil.
func Marks(s *v1alpha1.Skyhook, p *v1alpha1.DeploymentPolicy) v1alpha1.NodeMarks {
	return node.MarksOf(s.Spec.NodeMarks, p)
}

// PolicyName is the policy that applies to a Skyhook, or none: the one it names, otherwise, when it has no budget of its own,
// the operator's default.
func PolicyName(s *v1alpha1.Skyhook, c Config) (name string, byDefault bool) {
	if s.Spec.DeploymentPolicy != "" {
		return s.Spec.DeploymentPolicy, false
	}
	if b := s.Spec.InterruptionBudget; b.Percent != nil || b.Count != nil {
		return "", false
	}
	return c.DefaultPolicy, c.DefaultPolicy != ""
}

// PolicyName returns the name of the policy that applies to the Skyhook; empty for none.
func (f *Facts) PolicyName() string {
	name, _ := PolicyName(f.Skyhook, f.Config)
	return name
}

// Windows returns the windows of the policy; nil for none.
func (f *Facts) Windows() *v1alpha1.Windows {
	if f.Policy == nil {
		return nil
	}
	return f.Policy.Spec.Windows
}

// Proofs returns the proofs that a Skyhook and its policy ask for.
func Proofs(s *v1alpha1.Skyhook, p *v1alpha1.DeploymentPolicy) node.Proofs {
	return node.ProofsOf(s.Spec.Proof, p)
}

// ProvingSince returns when a node was admitted on which all work of a Skyhook is done and its proof is waited for; nil for others.
func ProvingSince(s *v1alpha1.Skyhook, n *node.Node) *time.Time {
	rec := n.Skyhook(s.Name).Record
	if rec.Admitted && rec.Proving != nil && rec.Node == n.UID && rec.Skyhook == string(s.UID) {
		return cmp.Or(rec.At, rec.Proving)
	}
	return nil
}

// Profile returns the profile of the Skyhook. With a policy that is missing nothing begins, and no limits are looked for.
func (f *Facts) Profile() v1alpha1.Profile {
	if f.PolicyName() != "" {
		return ""
	}
	return f.Skyhook.Spec.Profile
}

// HasBudget reports whether a budget, a policy or the profile limits how many nodes are in progress at the same time. A budget of 100 percent
// that somebody wrote is one.
func (f *Facts) HasBudget() bool {
	b := f.Skyhook.Spec.InterruptionBudget
	return b.Percent != nil || b.Count != nil || f.PolicyName() != "" || f.isRecommended()
}

// isRecommended reports whether absent fields and settings are those of the profile Recommended.
func (f *Facts) isRecommended() bool { return f.Skyhook.Spec.Profile == v1alpha1.ProfileRecommended }
