// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// newGrouping sorts the nodes of a Skyhook into compartments.
func newGrouping(f *plan.Facts, in *plan.Input, selected []bool) *policy.Grouping {
	s := in.Skyhook
	p := policy.Input{
		Policy: in.Policy, Profile: f.Profile(), Rollout: plan.Ref(s.Name), Budget: v1alpha1.Budget(s.Spec.InterruptionBudget),
		Versions: plan.HashID(f.PackageList()), Resume: s.Annotations[v1alpha1.AnnotationResume],
		Memory: s.Status.Internal.Memory, Compartments: s.Status.CompartmentStatuses, Closed: in.Closed, Failed: in.Failed, Now: in.Now,
	}
	if o := s.Spec.DeploymentPolicyOptions; o != nil {
		p.Reset = o.ResetBatchStateOnCompletion
	}
	if in.Policy != nil {
		p.Revision, p.Approvals = f.Key, s.Annotations
	}
	if in.Policy != nil && len(in.Policy.Spec.Compartments) > 0 {
		for i, n := range in.Nodes {
			p.Cluster = append(p.Cluster, n.Labels)
			if selected[i] {
				p.Nodes = append(p.Nodes, policyNode(f, n))
			}
		}
	}
	return policy.NewGrouping(&p)
}

// policyNode returns what the compartment of a node depends on.
func policyNode(f *plan.Facts, n *node.Node) policy.Node {
	s := f.Skyhook
	out := policy.Node{
		Name: n.Name, Labels: n.Labels, Created: n.Created, IsControlPlane: n.IsControlPlane(), IsExcluded: excludedReason(f, n) != nil,
	}
	if rec := &n.Skyhook(s.Name).Record; rec.Node == n.UID && rec.Skyhook == string(s.UID) {
		out.Group = rec.Group
	}
	return out
}
