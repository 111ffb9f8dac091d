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
	owner     rollout.Ref   // of the groups and of the ledger
	own       rollout.Ref   // the rollout
	rooms     []compartment // careful ones first; the rest last
	admission *v1alpha1.Admission
	shape     rollout.Group // what all groups have in common
}

// Sort prepares the compartments for the nodes of a rollout. Without a policy there is one, a sliding window.
func Sort(in *Input) *Grouping {
	g := &Grouping{own: in.Rollout, owner: in.Rollout, admission: in.Admission}
	g.shape = rollout.Group{Reset: true, For: in.Versions, Resume: in.Resume}
	memories := in.Compartments
	if p := in.Policy; p == nil {
		g.rooms = []compartment{{name: v1alpha1.DefaultCompartment, budget: in.Budget, window: true}}
	} else {
		nodes := in.Nodes
		if p.Spec.Scope == v1alpha1.ScopePolicy {
			g.owner, g.admission, memories, nodes = Ref(p), p.Status.Admission, p.Status.CompartmentStatuses, in.Cluster
			g.shape.Resume = p.Annotations[v1alpha1.AnnotationResume]
		}
		g.rooms = matchCompartments(p, nodes)
		g.applyControls(p, in)
	}
	if in.Reset != nil {
		g.shape.Reset = *in.Reset
	}
	g.shape.Resume = g.shape.Resume[:min(len(g.shape.Resume), 128)]
	g.shape.Ledger = g.owner
	for i := range g.rooms {
		g.rooms[i].memory = toMemory(memories[g.rooms[i].name].BatchState)
	}
	return g
}

// applyControls takes over what applies to all compartments alike.
func (g *Grouping) applyControls(p *v1alpha1.DeploymentPolicy, in *Input) {
	spec := &p.Spec
	if spec.ResetBatchStateOnCompletion != nil {
		g.shape.Reset = *spec.ResetBatchStateOnCompletion
	}
	if spec.Soak != nil {
		g.shape.Soak = spec.Soak.Duration
	}
	if t := spec.MaxUnavailablePerTopology; t != nil {
		g.shape.Spread = rollout.Spread{Key: t.TopologyKey, Limit: max(1, t.Count)}
	}
	about := Kind + " " + p.Name
	if spec.Paused {
		g.shape.Frozen = &rollout.Why{Reason: rollout.ReasonPaused, About: about, Text: about + " is paused"}
		return
	}
	if c, err := NewCalendar(spec.Windows); err == nil && c != nil && !c.Open(in.Now) { // one that is wrong is a problem, see Check
		g.shape.Frozen = &rollout.Why{Reason: rollout.ReasonWindow, About: about, Text: "every window of " + about + " is closed"}
		if opens, ok := c.Opens(in.Now); ok {
			g.shape.Until = opens.UTC()
			g.shape.Frozen.Text += ", the next opens " + opens.Format("2006-01-02 15:04 MST")
		}
		return
	}
	g.shape.Frozen = in.Closed
}

// Place is the rack or zone of a node, as Target.Place has it.
func Place(p *v1alpha1.DeploymentPolicy, labels map[string]string) string {
	if p == nil || p.Spec.MaxUnavailablePerTopology == nil {
		return ""
	}
	return labels[p.Spec.MaxUnavailablePerTopology.TopologyKey]
}

// Missing says that nobody made the policy that is named.
func Missing(name string, byDefault bool) string {
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
		Rollout: cmp.Or(rollout.ParseRef(s.Rollout), g.own), Node: s.Node, Order: s.Order, Batch: s.Batch, Since: s.Since.Time,
		Group: g.groupRef(cmp.Or(s.Compartment, v1alpha1.DefaultCompartment)),
	}
}
