// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/sim"
)

// lateCompartment is the compartment of the second wave of a rollout.
const lateCompartment = "late"

// groupOf returns the group of a node. The second wave is the nodes with odd numbers.
func (w *desiredRollout) groupOf(node string) rollout.GroupRef {
	ref := w.groupRef()
	if w.hasWaves && int(node[len(node)-1])%2 == 1 {
		ref.Compartment = lateCompartment
	}
	return ref
}

// addGroups adds the groups of a rollout.
func (s *faultTest) addGroups(w *desiredRollout) {
	first := w.groupRef()
	s.addGroup(first)
	late := rollout.GroupRef{Owner: first.Owner, Compartment: lateCompartment}
	if !w.hasWaves || s.findGroup(late) != nil {
		return
	}
	s.addGroup(late)
	g := s.findGroup(late)
	g.After = []rollout.GroupRef{first}
	g.Approval.Required = s.chance(40)
}

// compileApprovals says what each group that needs an approval rolls out.
func (s *faultTest) compileApprovals() {
	for i := range s.cluster.State.Groups {
		g := &s.cluster.State.Groups[i]
		if !g.Approval.Required {
			continue
		}
		g.Approval.Of = ""
		for _, w := range s.desired {
			if w.hasWaves && w.groupRef().Owner == g.Ref.Owner {
				g.Approval.Of = g.Approval.Of.Merge(rollout.NewVersions(w.name, fmt.Sprintf("%x", fmt.Sprint(w.packages))))
			}
		}
	}
}

// approve lets a person approve what is rolled out, and reports whether anything was not approved.
func (s *faultTest) approve() (hasChanged bool) {
	for i := range s.cluster.State.Groups {
		a := &s.cluster.State.Groups[i].Approval
		if a.Required && a.Given != a.Of {
			hasChanged, a.Given = true, a.Of
		}
	}
	return hasChanged
}

// checkWave: a target is admitted when every target of the groups before its own is complete, as far as the operator has read, and a
// person approved what its rollout begins. What rolls back because another node did does not wait for that node.
func checkWave(v sim.View, g *rollout.Group, r *rollout.Rollout, t *rollout.Target) string {
	if r.Deleting || r.Rollback.Together && t.Rollback.Cause != nil {
		return ""
	}
	for _, ref := range g.After {
		for i := range v.Rollouts {
			o := &v.Rollouts[i]
			if o.Deleting || o.Broken != nil || o.Paused && o.Yields || o.Ref != r.Ref && waitsForOther(v, o) {
				continue
			}
			for j := range o.Targets {
				t := o.Targets[j]
				if t.Group == ref && isOnItsNode(v, t) && isOpen(v, t) {
					return fmt.Sprintf("%s of %s comes before, and is not complete", t.Node, o.Ref)
				}
			}
		}
	}
	if g.Approval.Required && !isApproved(g, r.Ref) {
		return "nobody approved what begins"
	}
	return ""
}

// isApproved reports whether the same of a rollout is approved as is rolled out.
func isApproved(g *rollout.Group, r rollout.Ref) bool {
	id, _, _ := strings.Cut(string(rollout.NewVersions(r, "x")), "=")
	find := func(v rollout.Versions) string {
		for _, entry := range strings.Split(string(v), ",") {
			if strings.HasPrefix(entry, id+"=") {
				return entry
			}
		}
		return ""
	}
	return find(g.Approval.Of) != "" && find(g.Approval.Of) == find(g.Approval.Given)
}

// waitsForOther reports whether an unfinished target of a rollout, in a group that others come after, may wait for a rollout that
// comes first.
func waitsForOther(v sim.View, o *rollout.Rollout) bool {
	for i := range v.Rollouts {
		r := &v.Rollouts[i]
		if o.Ref == r.Ref || o.Sequence != r.Sequence || r.Priority > o.Priority {
			continue
		}
		for j := range o.Targets {
			t := o.Targets[j]
			isHere := func(other *rollout.Target) bool { return other.Node == t.Node && isOnItsNode(v, other) }
			if t.Group.Compartment != lateCompartment && !t.Visit.Admitted && (r.Barrier || slices.ContainsFunc(r.Targets, isHere)) {
				return true
			}
		}
	}
	return false
}

// isOpen reports whether a target is one that later groups wait for.
func isOpen(v sim.View, t *rollout.Target) bool {
	if t.Leaving || t.Blocked != nil && t.Blocked.Reason == rollout.ReasonIgnored {
		return false
	}
	hasWork := slices.ContainsFunc(t.Tasks, func(k rollout.Task) bool { return k.State != rollout.StateDone })
	if hasWork || t.Visit.Admitted || t.Rollback.Cause != nil {
		return true
	}
	soak, n := findObservedGroup(v, t.Group).Soak, findObservedNode(v, t.Node)
	if soak == 0 || t.Visit.FinishedAt.IsZero() {
		return false
	}
	return !n.Ready || v.Now.Before(t.Visit.FinishedAt.Add(soak)) || v.Now.Before(n.ReadyAt.Add(soak))
}
