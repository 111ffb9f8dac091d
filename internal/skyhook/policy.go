// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// newGrouping sorts the nodes of a Skyhook into compartments.
func newGrouping(f *plan.Facts, in *plan.Input, selected []bool) *policy.Grouping {
	s := in.Skyhook
	p := policy.Input{
		Policy: in.Policy, Profile: f.Profile(), Rollout: plan.Ref(s.Name), Budget: v1alpha1.Budget(s.Spec.InterruptionBudget),
		Versions: plan.HashID(f.PackageList()), Resume: s.Annotations[v1alpha1.AnnotationResume],
		Admission: s.Status.Admission, Compartments: s.Status.CompartmentStatuses, Closed: in.Closed, Failed: in.Failed, Now: in.Now,
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

// unprovenReason says which gate a finished node does not pass yet; nil when it passes all.
func (c *nodeCompiler) unprovenReason(n *node.Node, rec *node.SkyhookRecord) *rollout.Why {
	if c.facts.Policy == nil || c.facts.Policy.Spec.Health == nil {
		return nil
	}
	gates := c.facts.Policy.Spec.Health
	fails := func(format string, args ...any) *rollout.Why {
		return &rollout.Why{Reason: rollout.ReasonHealthGate, About: "Node " + n.Name, Text: fmt.Sprintf(format, args...)}
	}
	for _, g := range gates.NodeConditions {
		if is, want := n.Condition(g.Type), cmp.Or(string(g.Status), "True"); is != want {
			return fails("condition %s of the node is %s, and must be %s", g.Type, cmp.Or(is, "absent"), want)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(rec.Offered)) {
		if is := n.Allocatable(name); is < rec.Offered[name] && slices.Contains(gates.Resources, name) {
			return fails("the node offers %d of %s, and offered %d before", is, name, rec.Offered[name])
		}
	}
	if text := c.unready; text != "" {
		return fails("%s", text)
	}
	return nil
}

// Unsettled says that a Skyhook is finished on a node in a batch of its policy that is still open.
func Unsettled(s *v1alpha1.Skyhook, p *v1alpha1.DeploymentPolicy, n *node.Node) bool {
	rec := n.Skyhook(s.Name).Record
	if rec.Admitted || rec.FinishedAt == nil || rec.Node != n.UID {
		return false
	}
	statuses, owner := s.Status.CompartmentStatuses, plan.Ref(s.Name)
	if p.Spec.Scope == v1alpha1.ScopePolicy {
		statuses, owner = p.Status.CompartmentStatuses, policy.Ref(p)
	}
	if rec.Group.Owner != owner {
		return false
	}
	batch := statuses[rec.Group.Compartment].BatchState
	return batch != nil && rec.Batch >= batch.From
}
