// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"cmp"
	"slices"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// Tally counts the nodes of one package version.
type Tally struct {
	Name, Version string
	States        map[v1alpha1.State]int
	Stages        map[v1alpha1.Stage]int
	Restarts      int // recorded, over all nodes
}

// Tallies counts, for every package version of the spec or of some node, the nodes by state and by stage.
func (c *Compiled) Tallies() []Tally {
	all := map[[2]string]*Tally{}
	of := func(name, version string) *Tally {
		key := [2]string{name, version}
		t := all[key]
		if t == nil {
			t = &Tally{Name: name, Version: version, States: map[v1alpha1.State]int{}, Stages: map[v1alpha1.Stage]int{}}
			all[key] = t
		}
		return t
	}
	for name, d := range c.defs {
		if !c.uninstalls(name) {
			of(name, string(d.Package.Version))
		}
	}
	for _, t := range c.targets {
		for _, e := range t.on.State {
			tally := of(e.Name, e.Version)
			tally.States[e.State]++
			tally.Stages[e.Stage]++
			tally.Restarts += int(e.Restarts)
		}
	}
	out := make([]Tally, 0, len(all))
	for _, t := range all {
		out = append(out, *t)
	}
	slices.SortFunc(out, func(a, b Tally) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version)) })
	return out
}
