// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import "github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"

// Tally counts the nodes of one package version.
type Tally struct {
	Name, Version string
	States        map[v1alpha1.State]int
	Stages        map[v1alpha1.Stage]int
	Restarts      int // recorded now, over all nodes
}

// Tallies counts, for every package version that is wanted or that some node has, the nodes by state and by stage.
func (c *Compiled) Tallies() []Tally {
	all := map[string]*Tally{}
	of := func(name, version string) *Tally {
		key := name + "|" + version
		if all[key] == nil {
			all[key] = &Tally{Name: name, Version: version, States: map[v1alpha1.State]int{}, Stages: map[v1alpha1.Stage]int{}}
		}
		return all[key]
	}
	for name, d := range c.defs {
		if !c.uninstalls(name) {
			of(name, string(d.Package.Version))
		}
	}
	for _, t := range c.targets {
		for _, e := range t.on.state {
			tally := of(e.Name, e.Version)
			tally.States[e.State]++
			tally.Stages[e.Stage]++
			tally.Restarts += int(e.Restarts)
		}
	}
	out := make([]Tally, 0, len(all))
	for _, key := range sortedNames(all) {
		out = append(out, *all[key])
	}
	return out
}
