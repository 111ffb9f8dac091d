// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package policy compiles DeploymentPolicies for the front ends: nodes are grouped by compartments, and compartments
// become groups of the engine, with budgets, strategies, windows and gates. It is pure.
//
//	g := policy.NewGrouping(&policy.Input{…})
//	g.GroupOf(node)                    // Target.Group of a node
//	g.Groups(targets), g.Ledger()      // for the Snapshot
//	policy.AddUnavailable(&snapshot)   // nodes that count against shared budgets
package policy

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/profile"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Kind is the kind of the owner of groups and ledgers that belong to a policy of scope Policy.
const Kind = "DeploymentPolicy"

// maxResume is the most bytes of the resume annotation that are stored.
const maxResume = 128

// Ref returns the reference of a policy.
func Ref(p *v1alpha1.DeploymentPolicy) rollout.Ref {
	return rollout.Ref{Kind: Kind, Name: p.Name}
}

// Input is one rollout and the policy that it names.
type Input struct {
	Policy       *v1alpha1.DeploymentPolicy // nil for none
	Profile      v1alpha1.Profile           // without a policy and a budget: Recommended has limits of its own
	Rollout      rollout.Ref                // Rollout.Ref
	Budget       v1alpha1.Budget            // without a policy: of a sliding window; may be 0 or empty
	Reset        *bool                      // overrides resetBatchStateOnCompletion of the policy
	Versions     string                     // hash of what is rolled out: batches of other versions start again
	Resume       string                     // value of the resume annotation of the rollout's object
	Memory       v1alpha1.Memory            // in the status of the rollout's object
	Compartments map[string]v1alpha1.CompartmentStatus
	Revision     string              // hash of everything that is rolled out: what a person approves
	Approvals    map[string]string   // annotations of the rollout's object: see ReadApprovals
	Nodes        []Node              // of the rollout
	Cluster      []map[string]string // labels of all nodes
	Closed       *rollout.Why        // a gate of the cluster that does not pass
	Failed       *rollout.Why        // one that is false and stops the rollout
	Now          time.Time
}

// Grouping groups nodes by the compartments of a policy.
type Grouping struct {
	owner        rollout.Ref     // of the groups and of the ledger
	rollout      rollout.Ref     // Rollout.Ref
	compartments []compartment   // in the order in which they select nodes
	memory       v1alpha1.Memory // in the status of the owner
	template     rollout.Group   // the fields that are the same for all groups

	isOfRollout      map[string]bool // nodes, by name, if there are canaries
	revision         rollout.Versions
	approvals        map[string]GivenApproval
	approvalsProblem error
}

// NewGrouping compiles the compartments for the nodes of a rollout. Without a policy there is one, with a sliding window.
func NewGrouping(in *Input) *Grouping {
	g := &Grouping{rollout: in.Rollout, owner: in.Rollout, memory: in.Memory}
	g.template = rollout.Group{Reset: true, For: rollout.Versions(in.Versions), Resume: in.Resume}
	g.revision = rollout.Versions(in.Revision)
	statuses := in.Compartments
	switch {
	case HasOwnLimits(in.Profile, in.Policy, in.Budget):
		g.compartments = []compartment{{name: v1alpha1.DefaultCompartment, budget: profile.Budget, stopsFirst: true}}
		g.template.Spread = rollout.Spread{Key: corev1.LabelTopologyZone, Zones: 1}
	case in.Policy == nil:
		g.compartments = []compartment{{name: v1alpha1.DefaultCompartment, budget: in.Budget, isWindow: true}}
	default:
		annotations, nodes := in.Approvals, labelsOf(in.Nodes)
		if in.Policy.Spec.Scope == v1alpha1.ScopePolicy {
			g.setPolicyOwner(in.Policy)
			g.template.For, g.revision = rollout.NewVersions(in.Rollout, in.Versions), rollout.NewVersions(in.Rollout, in.Revision)
			statuses, annotations, nodes = in.Policy.Status.CompartmentStatuses, in.Policy.Annotations, in.Cluster
		}
		g.approvals, g.approvalsProblem = ReadApprovals(annotations)
		g.compartments = matchCompartments(in.Policy, nodes)
		g.chooseCanaries(in.Nodes)
		g.applyControls(in)
	}
	if in.Reset != nil {
		g.template.Reset = *in.Reset
	}
	g.template.Resume = g.template.Resume[:min(len(g.template.Resume), maxResume)]
	g.template.Ledger = g.owner
	for i := range g.compartments {
		c := &g.compartments[i]
		c.memory = ReadMemory(statuses, g.memory, c.name)
	}
	return g
}

func labelsOf(nodes []Node) []map[string]string {
	out := make([]map[string]string, 0, len(nodes))
	for i := range nodes {
		out = append(out, nodes[i].Labels)
	}
	return out
}

// setPolicyOwner makes a policy of scope Policy the owner of the groups and of the ledger.
func (g *Grouping) setPolicyOwner(p *v1alpha1.DeploymentPolicy) {
	g.owner, g.memory = Ref(p), p.Status.Internal
	g.template.Resume = p.Annotations[v1alpha1.AnnotationResume]
}

// applyControls sets what is the same for all compartments.
func (g *Grouping) applyControls(in *Input) {
	spec := &in.Policy.Spec
	if spec.ResetBatchStateOnCompletion != nil {
		g.template.Reset = *spec.ResetBatchStateOnCompletion
	}
	if spec.Soak != nil {
		g.template.Soak = spec.Soak.Duration
	}
	if t := spec.MaxUnavailablePerTopology; t != nil {
		g.template.Spread = rollout.Spread{Key: t.TopologyKey, Limit: max(1, int(t.Count))}
	}
	g.template.Frozen, g.template.Failed = in.Closed, in.Failed
	about := Kind + " " + in.Policy.Name
	ApplyWindows(&g.template, spec.Windows, about, in.Now)
	if spec.Paused {
		g.template.Frozen = &rollout.Why{Reason: rollout.ReasonPaused, About: about, Text: about + " is paused"}
		g.template.Until = time.Time{}
	}
}

// HasOwnLimits reports whether an object gets the limits of its profile: it is Recommended, and neither a policy nor a budget limits it.
func HasOwnLimits(of v1alpha1.Profile, p *v1alpha1.DeploymentPolicy, b v1alpha1.Budget) bool {
	return of == v1alpha1.ProfileRecommended && p == nil && b.Percent == nil && b.Count == nil
}

// PlaceOf returns the rack or zone of a node, for Target.Place; empty if there is no limit for them.
func (g *Grouping) PlaceOf(labels map[string]string) string { return labels[g.template.Spread.Key] }

// DescribeMissing returns the problem of a policy that is named and does not exist.
func DescribeMissing(name string, byDefault bool) string {
	if byDefault {
		return fmt.Sprintf("DeploymentPolicy %s, which the operator's --default-deployment-policy names, does not exist: create it, or name another", name)
	}
	return fmt.Sprintf("DeploymentPolicy %s does not exist: create it, or correct deploymentPolicy", name)
}

// groupRef returns the group of a compartment.
func (g *Grouping) groupRef(compartment string) rollout.GroupRef {
	return rollout.GroupRef{Owner: g.owner, Compartment: compartment}
}
