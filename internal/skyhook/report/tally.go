// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"slices"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// Tally counts the nodes of one package version.
type Tally struct {
	Name, Version string
	States        map[v1alpha1.State]int
	Stages        map[v1alpha1.Stage]int
	Restarts      int // recorded, over all nodes
}

// maxTallies bounds the package versions that are counted each for itself: nodes may name any. The rest counts as otherTally.
const (
	MaxTallies = 200
	otherTally = "other"
)

// Tallies counts, for every package version of the spec or of some node, the nodes by state and by stage.
func (rep Reporter) Tallies() []Tally {
	all := tallyMap{}
	for name, d := range rep.Facts.Packages {
		if !rep.Facts.Uninstalls(name) {
			all.of(name, string(d.Package.Version))
		}
	}
	for i := range rep.Rollout.Targets {
		t := rep.Target(rep.Rollout.Targets[i].Node)
		if len(all)+len(t.On.State) <= MaxTallies {
			for _, e := range t.On.State {
				all.count(e)
			}
			continue
		}
		for _, key := range plan.SortedNames(t.On.State) { // so that the same ones are told apart each time
			all.count(t.On.State[key])
		}
	}
	out := make([]Tally, 0, len(all))
	for _, t := range all {
		out = append(out, *t)
	}
	slices.SortFunc(out, func(a, b Tally) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version)) })
	return out
}

// tallyMap has the tallies by name and version.
type tallyMap map[[2]string]*Tally

func (all tallyMap) of(name, version string) *Tally {
	key := [2]string{name, version}
	if all[key] == nil && len(all) >= MaxTallies {
		key = [2]string{otherTally, ""}
	}
	t := all[key]
	if t == nil {
		t = &Tally{Name: key[0], Version: key[1], States: map[v1alpha1.State]int{}, Stages: map[v1alpha1.Stage]int{}}
		all[key] = t
	}
	return t
}

func (all tallyMap) count(e v1alpha1.PackageStatus) {
	t := all.of(e.Name, e.Version)
	t.States[e.State]++
	t.Stages[e.Stage]++
	t.Restarts += int(e.Restarts)
}
