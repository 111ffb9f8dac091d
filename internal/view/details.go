// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"maps"
	"slices"
	"strings"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// Package is a package with the nodes on which it is how far.
type Package struct {
	Name     string   `json:"name"`
	Version  string   `json:"version"`
	After    []string `json:"after,omitempty"` // packages that it depends on
	Column   int      `json:"-"`               // of a drawing in which a package is to the right of those that it depends on
	Complete int      `json:"complete"`
	Working  int      `json:"working"`
	Failed   int      `json:"failed"`
	Waiting  int      `json:"waiting"`
}

// Total is the number of nodes of a package.
func (p Package) Total() int { return p.Complete + p.Working + p.Failed + p.Waiting }

// DescribeRollout summarizes one rollout with what a list of all of them leaves out.
func DescribeRollout(v *Cluster, r *rollout.Rollout) RolloutStatus {
	s := SummarizeRollout(v, r)
	s.PerPackage = v.listPackages(r)
	s.addCounted(v)
	return s
}

// listPackages counts, for each package of a Skyhook, on how many nodes it is how far.
func (v *Cluster) listPackages(r *rollout.Rollout) []Package {
	var out []Package
	hook := v.SkyhookOf(r)
	if hook == nil {
		return out
	}
	columns := columnsOf(hook.Spec.Packages)
	for _, name := range slices.Sorted(maps.Keys(hook.Spec.Packages)) {
		want := hook.Spec.Packages[name]
		p := Package{Name: name, Version: string(want.Version), After: slices.Sorted(maps.Keys(want.DependsOn)), Column: columns[name]}
		for i := range r.Targets {
			if n := v.Objects.Node(r.Targets[i].Node); n != nil && !r.Targets[i].Leaving && !r.Targets[i].Gone {
				countPackage(&p, r.Targets[i], n.Skyhook(hook.Name), want)
			}
		}
		out = append(out, p)
	}
	return out
}

// columnsOf puts each package to the right of those that it depends on. A cycle is refused, but may be in a dump.
func columnsOf(packages map[string]v1alpha1.Package) map[string]int {
	columns := map[string]int{}
	plan.WalkDependencies(plan.SortedNames(packages), func(name string) []string { return plan.SortedNames(packages[name].DependsOn) },
		func(name string, dependencies []string) {
			for _, dep := range dependencies {
				columns[name] = max(columns[name], columns[dep]+1)
			}
		})
	return columns
}

// countPackage counts a package on one node. Without an open task it is complete only if the node records that.
func countPackage(p *Package, t *rollout.Target, on *node.SkyhookState, want v1alpha1.Package) {
	isOpen, isRunning, isFailing := false, false, false
	for i := range t.Tasks {
		k := &t.Tasks[i]
		if pkg, _, _ := strings.Cut(k.Label, " "); pkg != p.Name || k.State == rollout.StateDone {
			continue
		}
		isOpen = true
		isRunning = isRunning || k.State == rollout.StateRunning || k.State == rollout.StateSucceeded
		isFailing = isFailing || k.State == rollout.StateFailing
	}
	switch {
	case isFailing:
		p.Failed++
	case isRunning:
		p.Working++
	case isOpen:
		p.Waiting++
	case isThere(p.Name, want, on, t.Rollback.Cause != nil):
		p.Complete++
	case t.Rollback.Cause != nil:
		p.Failed++
	default:
		p.Waiting++
	}
}

// isThere reports whether a node records a package as the spec wants it. A node that went back may have the same version with
// another configMap.
func isThere(name string, want v1alpha1.Package, on *node.SkyhookState, wentBack bool) bool {
	key := name + "|" + string(want.Version)
	e, isInstalled := on.State[key]
	if u := want.Uninstall; u != nil && u.Enabled && u.Apply {
		return !isInstalled
	}
	rec := on.Record.Packages[key]
	isWanted := rec != nil && rec.Hash == plan.NewDefinition(name, want).Hash
	return e.State == v1alpha1.StateComplete && (!wentBack || isWanted)
}

// maxCounted is how many nodes of one group are listed.
const maxCounted = 50

// addCounted adds what counts against the budgets of a rollout: its own nodes, those of other rollouts in the same groups, and nodes
// that nobody of ours made unavailable.
func (s *RolloutStatus) addCounted(v *Cluster) {
	for at := range s.Groups {
		g := &s.Groups[at]
		for i := range v.Snapshot.Rollouts {
			other := &v.Snapshot.Rollouts[i]
			for j, verdict := range v.ReportOf(other.Ref).Verdicts {
				t := other.Targets[j]
				n := v.Objects.Node(t.Node)
				if t.Group == g.ref && t.Visit.Admitted && n != nil {
					g.Counted = append(g.Counted, v.newCell(other, t, verdict, n))
				}
			}
		}
		for _, group := range v.Snapshot.Groups {
			if group.Ref != g.ref {
				continue
			}
			for _, name := range group.Taken {
				g.Counted = append(g.Counted, Cell{Node: name, State: StateNotReady, Reason: "not ready, or cordoned by somebody else"})
			}
		}
		g.NotListed = max(0, len(g.Counted)-maxCounted)
		g.Counted = g.Counted[:len(g.Counted)-g.NotListed]
	}
}
