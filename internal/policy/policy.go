// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package policy reads DeploymentPolicies for the front ends: it sorts nodes into compartments and makes the engine's
// groups of them, with budgets, strategies, windows and gates. It is pure: what it needs to know of the cluster comes in.
//
//	g := policy.Sort(&policy.Input{…}) // compartments by labels
//	g.Of(labels)                       // Target.Group of a node
//	g.Groups(targets), g.Ledger()      // for the Snapshot
//	policy.Share(&snapshot)            // what rollouts of one policy take from each other
package policy

import (
	"cmp"
	"fmt"
	"time"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Kind begins the names of groups and ledgers that belong to a policy of scope Policy.
const Kind = "DeploymentPolicy"

// Ref names a policy.
func Ref(p *v1alpha1.DeploymentPolicy) rollout.Ref {
	return rollout.Ref{Kind: Kind, Name: p.Name}
}

// Input is one rollout and the policy it names.
type Input struct {
	Policy       *v1alpha1.DeploymentPolicy // nil for none
	Rollout      rollout.Ref                // Rollout.Ref
	Budget       v1alpha1.Budget            // without a policy: a sliding window, which may be 0 or absent
	Reset        *bool                      // overrides the policy's resetBatchStateOnCompletion
	Versions     string                     // hash of what is rolled out: other versions begin anew
	Resume       string                     // value of the annotation that resumes, on the rollout's object
	Admission    *v1alpha1.Admission        // in the status of the rollout's object
	Compartments map[string]v1alpha1.CompartmentStatus
	Nodes        []map[string]string // labels of the nodes of the rollout
	Cluster      []map[string]string // labels of all nodes
	Closed       *rollout.Why        // a gate of the fleet that does not pass
	Now          time.Time
}

// Grouping sorts nodes into groups.
type Grouping struct {
	owner        rollout.Ref   // of the groups and of the ledger
	rollout      rollout.Ref   // the rollout
	compartments []compartment // careful ones first; the rest last
	admission    *v1alpha1.Admission
	template     rollout.Group // what all groups have in common
}

// NewGrouping prepares the compartments for the nodes of a rollout. Without a policy there is one, a sliding window.
func NewGrouping(in *Input) *Grouping {
	g := &Grouping{rollout: in.Rollout, owner: in.Rollout, admission: in.Admission}
	g.template = rollout.Group{Reset: true, For: in.Versions, Resume: in.Resume}
	memories := in.Compartments
	if p := in.Policy; p == nil {
		g.compartments = []compartment{{name: v1alpha1.DefaultCompartment, budget: in.Budget, isWindow: true}}
	} else {
		nodes := in.Nodes
		if p.Spec.Scope == v1alpha1.ScopePolicy {
			g.owner, g.admission, memories, nodes = Ref(p), p.Status.Admission, p.Status.CompartmentStatuses, in.Cluster
			g.template.Resume = p.Annotations[v1alpha1.AnnotationResume]
		}
		g.compartments = matchCompartments(p, nodes)
		g.applyControls(p, in)
	}
	if in.Reset != nil {
		g.template.Reset = *in.Reset
	}
	g.template.Resume = g.template.Resume[:min(len(g.template.Resume), 128)]
	g.template.Ledger = g.owner
	for i := range g.compartments {
		g.compartments[i].memory = toMemory(memories[g.compartments[i].name].BatchState)
	}
	return g
}

// applyControls takes over what applies to all compartments alike.
func (g *Grouping) applyControls(p *v1alpha1.DeploymentPolicy, in *Input) {
	spec := &p.Spec
	if spec.ResetBatchStateOnCompletion != nil {
		g.template.Reset = *spec.ResetBatchStateOnCompletion
	}
	if spec.Soak != nil {
		g.template.Soak = spec.Soak.Duration
	}
	if t := spec.MaxUnavailablePerTopology; t != nil {
		g.template.Spread = rollout.Spread{Key: t.TopologyKey, Limit: max(1, t.Count)}
	}
	about := Kind + " " + p.Name
	if spec.Paused {
		g.template.Frozen = &rollout.Why{Reason: rollout.ReasonPaused, About: about, Text: about + " is paused"}
		return
	}
	if c, err := NewCalendar(spec.Windows); err == nil && c != nil && !c.IsOpen(in.Now) { // one that is wrong is a problem, see Check
		g.template.Frozen = &rollout.Why{Reason: rollout.ReasonWindow, About: about, Text: "every window of " + about + " is closed"}
		if opens, ok := c.FindNextOpening(in.Now); ok {
			g.template.Until = opens.UTC()
			g.template.Frozen.Text += ", the next opens " + opens.Format("2006-01-02 15:04 MST")
		}
		return
	}
	g.template.Frozen = in.Closed
}

// FindTopologyValue is the rack or zone of a node, as Target.Place has it.
func FindTopologyValue(p *v1alpha1.DeploymentPolicy, labels map[string]string) string {
	if p == nil || p.Spec.MaxUnavailablePerTopology == nil {
		return ""
	}
	return labels[p.Spec.MaxUnavailablePerTopology.TopologyKey]
}

// DescribeMissing says that nobody made the policy that is named.
func DescribeMissing(name string, byDefault bool) string {
	if byDefault {
		return fmt.Sprintf("DeploymentPolicy %s, which the operator's --default-deployment-policy names, does not exist: create it, or name another", name)
	}
	return fmt.Sprintf("DeploymentPolicy %s does not exist: create it, or correct deploymentPolicy", name)
}

// groupRef names one compartment.
func (g *Grouping) groupRef(compartment string) rollout.GroupRef {
	return rollout.GroupRef{Owner: g.owner, Compartment: compartment}
}

// toReservation reads a line of a ledger.
func (g *Grouping) toReservation(s v1alpha1.Seat) rollout.Reservation {
	return rollout.Reservation{
		Rollout: cmp.Or(rollout.ParseRef(s.Rollout), g.rollout), Node: s.Node, Order: s.Order, Batch: s.Batch, Since: s.Since.Time,
		Group: g.groupRef(cmp.Or(s.Compartment, v1alpha1.DefaultCompartment)),
	}
}
