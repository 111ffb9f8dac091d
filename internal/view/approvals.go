// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"slices"
	"strings"
	"time"

	nodeopv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/rollout/engine"
	"github.com/skyhook-k8s/skyhook/internal/sim"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// FindApprovable returns the group of a compartment that needs an approval.
func (v *Cluster) FindApprovable(arg, compartment string) (*rollout.Group, error) {
	owner, err := v.findOwner(arg)
	if err != nil {
		return nil, err
	}
	compartment = rollout.GroupRef{Compartment: compartment}.Name()
	var all, approvable []string
	for i := range v.Snapshot.Groups {
		g := &v.Snapshot.Groups[i]
		if g.Ref.Owner != owner {
			continue
		}
		all = append(all, g.Ref.Name())
		if !g.Approval.Required {
			continue
		}
		approvable = append(approvable, g.Ref.Name())
		if g.Ref.Name() == compartment {
			return g, nil
		}
	}
	switch {
	case !slices.Contains(all, compartment):
		return nil, fmt.Errorf("%s has no compartment %s: there are %s", owner.Title(), compartment, output.List(all, 10))
	case len(approvable) == 0:
		return nil, fmt.Errorf("compartment %s of %s needs no approval, and neither does another: approval: Required in the DeploymentPolicy asks for one", compartment, owner.Title())
	}
	return nil, fmt.Errorf("compartment %s of %s needs no approval: those that do are %s", compartment, owner.Title(), output.List(approvable, 10))
}

// findOwner returns the owner of the compartments that an argument names. For a Skyhook or NodeOp whose policy has scope Policy that is the
// policy.
func (v *Cluster) findOwner(arg string) (rollout.Ref, error) {
	var found []rollout.Ref
	hasKind := strings.Contains(arg, "/")
	for i := range v.Snapshot.Rollouts {
		if ref := v.Snapshot.Rollouts[i].Ref; matchesName(ref, arg) || !hasKind && ref.Name == arg {
			found = append(found, ref)
		}
	}
	for _, p := range v.Objects.Policies {
		if ref := policy.Ref(p); matchesPolicy(ref, arg) {
			found = append(found, ref)
		}
	}
	switch len(found) {
	case 1:
		return v.findGroupOwner(found[0])
	case 0:
		return rollout.Ref{}, fmt.Errorf("there is no Skyhook, NodeOp or DeploymentPolicy %s: %s", arg, v.ListNames())
	}
	var names []string
	for _, ref := range found {
		names = append(names, strings.ToLower(ref.String()))
	}
	return rollout.Ref{}, fmt.Errorf("%s is the name of several objects: write one of %s", arg, strings.Join(names, ", "))
}

func matchesPolicy(ref rollout.Ref, arg string) bool {
	kind, name, hasKind := strings.Cut(arg, "/")
	if !hasKind {
		return arg == ref.Name
	}
	isKind := slices.Contains([]string{"dp", "deploymentpolicy", "deploymentpolicies"}, strings.ToLower(kind))
	return isKind && name == ref.Name
}

// findGroupOwner returns the owner of the compartments of an object that was found.
func (v *Cluster) findGroupOwner(ref rollout.Ref) (rollout.Ref, error) {
	var users []string
	for i := range v.Snapshot.Rollouts {
		r := &v.Snapshot.Rollouts[i]
		owner := v.policyOwner(r)
		switch {
		case r.Ref == ref && !owner.IsZero():
			return owner, nil
		case owner == ref:
			return ref, nil
		case v.policyName(r) == ref.Name:
			users = append(users, strings.ToLower(r.Ref.String()))
		}
	}
	switch {
	case ref.Kind != policy.Kind:
		return ref, nil
	case len(users) == 0:
		return ref, fmt.Errorf("no object names %s: there is nothing to approve", ref.Title())
	}
	return ref, fmt.Errorf("%s has scope Skyhook, so that each object has approvals of its own: name one of %s", ref.Title(), output.List(users, 10))
}

// policyName returns the name of the policy that applies to a rollout; empty for none.
func (v *Cluster) policyName(r *rollout.Rollout) string {
	if s := v.SkyhookOf(r); s != nil {
		return v.Compiled.Skyhook(s).PolicyName()
	}
	at := slices.IndexFunc(v.Objects.NodeOps, func(op *nodeopv1.NodeOp) bool { return op.Namespace == r.Ref.Namespace && op.Name == r.Ref.Name })
	if at < 0 {
		return ""
	}
	return v.Objects.NodeOps[at].Spec.DeploymentPolicy
}

// policyOwner returns the policy of scope Policy that applies to a rollout; none otherwise.
func (v *Cluster) policyOwner(r *rollout.Rollout) rollout.Ref {
	name := v.policyName(r)
	for _, p := range v.Objects.Policies {
		if p.Name == name && p.Spec.Scope == v1alpha1.ScopePolicy {
			return policy.Ref(p)
		}
	}
	return rollout.Ref{}
}

// DescribeRevision returns what is approved, for people.
func (v *Cluster) DescribeRevision(g *rollout.Group) string {
	for _, s := range v.Objects.Skyhooks {
		if plan.Ref(s.Name) != g.Ref.Owner {
			continue
		}
		for _, r := range s.Status.Revisions {
			if strings.HasSuffix(r.Name, "-"+string(g.Approval.Of)) {
				return fmt.Sprintf("revision %d of %s", r.Revision, g.Ref.Owner.Title())
			}
		}
		return "the packages of " + g.Ref.Owner.Title()
	}
	var users []string
	for i := range v.Snapshot.Rollouts {
		r := &v.Snapshot.Rollouts[i]
		if v.policyOwner(r) == g.Ref.Owner {
			users = append(users, r.Ref.Title())
		}
	}
	if len(users) == 0 {
		return g.Ref.Owner.Title()
	}
	return "what is rolled out now by " + output.List(users, 10)
}

// PreviewApproval returns the nodes that start at once when the group is approved, or what else it waits for.
func (v *Cluster) PreviewApproval(g *rollout.Group) (begins []string, waits string) {
	g.Approval.Given, g.Approval.Problem = g.Approval.Of, ""
	stop := func(c *Forecast, m sim.Step) bool { return m.At.After(c.Start) }
	for _, waves := range v.SimulateRollouts(sim.Recorded(v.Snapshot.Times), time.Second, stop).waves {
		for _, w := range waves {
			if w.group == g.Ref && w.after == 0 {
				begins = append(begins, w.Nodes...)
			}
		}
	}
	slices.Sort(begins)
	if len(begins) > 0 {
		return slices.Compact(begins), ""
	}
	for _, report := range engine.Decide(v.Snapshot).Groups {
		if report.Group == g.Ref && report.Why != nil {
			return []string{}, report.Why.Text
		}
	}
	return []string{}, ""
}
