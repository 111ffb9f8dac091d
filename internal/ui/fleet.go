// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/skyhook-k8s/skyhook/internal/view"
)

// Groupings of nodes, besides labels.
const (
	byNothing     = "none"
	byCompartment = "compartment"
	byRollout     = "rollout"
	byZone        = "zone"
	zoneLabel     = "topology.kubernetes.io/zone"
	ourLabels     = "skyhook.nvidia.com/" // they say what other columns say better
)

// fleetFilter is which nodes are shown and how, as the address of the page says.
type fleetFilter struct {
	view.FleetFilter
	Rollout string
	By      string // compartment, zone, none or the key of a label
}

func newFleetFilter(q url.Values) fleetFilter {
	return fleetFilter{
		FleetFilter: view.FleetFilter{State: view.State(q.Get("state")), Query: strings.TrimSpace(q.Get("q"))},
		Rollout:     q.Get("rollout"), By: cmp.Or(q.Get("by"), byCompartment),
	}
}

// With returns the query of the address with another state.
func (f fleetFilter) With(state view.State) string {
	q := url.Values{}
	for key, value := range map[string]string{"rollout": f.Rollout, "by": f.By, "state": string(state), "q": f.Query} {
		if value != "" {
			q.Set(key, value)
		}
	}
	return "?" + q.Encode()
}

func (f fleetFilter) groupOf(c *view.Cell) string {
	switch f.By {
	case byNothing:
		return ""
	case byCompartment:
		return c.Compartment
	case byRollout:
		return c.Rollout
	case byZone:
		return c.Labels[zoneLabel]
	}
	return c.Labels[f.By]
}

// stateCount is how many nodes are in a state.
type stateCount struct {
	State view.State
	Nodes int
}

// cellGroup is a group of cells of the page.
type cellGroup struct {
	ID, Name string
	Counts   []stateCount // of its states, the most urgent first
	Cells    []view.Cell
}

// Summary says what the nodes of a group do.
func (g *cellGroup) Summary() string {
	var parts []string
	for _, c := range g.Counts {
		parts = append(parts, fmt.Sprintf("%d %s", c.Nodes, strings.ToLower(c.State.Title())))
	}
	return strings.Join(parts, ", ")
}

// maxListed is how many nodes of one fold the page lists.
const maxListed = 50

// fold is nodes in the same state for the same reason.
type fold struct {
	view.Cell // the first one
	ID        string
	Cells     []view.Cell
}

// Listed are the nodes that the page lists.
func (f *fold) Listed() []view.Cell { return f.Cells[:min(maxListed, len(f.Cells))] }

// NotListed is how many more there are.
func (f *fold) NotListed() int { return len(f.Cells) - len(f.Listed()) }

// foldCells puts nodes with the same reason together, in the order of the first ones.
func foldCells(cells []view.Cell) []*fold {
	var out []*fold
	folds := map[string]*fold{}
	for _, c := range cells {
		key := strings.Join([]string{string(c.State), c.Rollout, c.Reason}, "-")
		if folds[key] == nil {
			folds[key] = &fold{Cell: c, ID: strings.ReplaceAll(key, "/", "-")}
			out = append(out, folds[key])
		}
		folds[key].Cells = append(folds[key].Cells, c)
	}
	return out
}

// fleetView is what the page shows.
type fleetView struct {
	*view.Fleet
	Filter  fleetFilter
	Total   int          // nodes before filters
	Counts  []stateCount // before the filter of states
	Groups  []*cellGroup
	Folds   []*fold              // the most urgent ones first
	Open    []view.RolloutStatus // rollouts, by need
	Done    []view.RolloutStatus
	Labels  []string // by which nodes can be grouped
	Reasons []string // each text once; cells refer to them by number
	numbers map[string]int
}

// newFleetView filters and groups nodes. The filters also apply to the JSON.
func newFleetView(fleet *view.Fleet, filter fleetFilter) *fleetView {
	v := &fleetView{Fleet: fleet, Filter: filter, Total: len(fleet.Nodes), Labels: groupingLabels(fleet.Nodes), numbers: map[string]int{}}
	anyState := filter.FleetFilter
	anyState.State = ""
	fleet.Nodes = slices.DeleteFunc(fleet.Nodes, func(c view.Cell) bool { return !anyState.Matches(&c) })
	v.Counts = countStates(fleet.Nodes)
	fleet.Nodes = slices.DeleteFunc(fleet.Nodes, func(c view.Cell) bool { return !filter.Matches(&c) })
	groups := map[string]*cellGroup{}
	for i := range fleet.Nodes {
		c := &fleet.Nodes[i]
		name := filter.groupOf(c)
		g := groups[name]
		if g == nil {
			g = &cellGroup{Name: name}
			groups[name] = g
			v.Groups = append(v.Groups, g)
		}
		g.Cells = append(g.Cells, *c)
	}
	slices.SortFunc(v.Groups, func(a, b *cellGroup) int { return strings.Compare(a.Name, b.Name) })
	for i, g := range v.Groups {
		g.ID, g.Counts = fmt.Sprintf("group-%d", i), countStates(g.Cells)
	}
	v.Folds = foldCells(fleet.SortByUrgency())
	v.Open, v.Done = fleet.SortRollouts()
	return v
}

// Number returns the number of what a cell says; each text is sent once.
func (v *fleetView) Number(c view.Cell) int {
	text := strings.Join([]string{c.Rollout, c.Stage, c.Reason, c.Text}, "\n")
	n, ok := v.numbers[text]
	if !ok {
		n = len(v.Reasons)
		v.numbers[text], v.Reasons = n, append(v.Reasons, text)
	}
	return n
}

// CountOf returns how many nodes of the page are in a state.
func (v *fleetView) CountOf(s view.State) int {
	for _, c := range v.Counts {
		if c.State == s {
			return c.Nodes
		}
	}
	return 0
}

func countStates(cells []view.Cell) []stateCount {
	counts := map[view.State]int{}
	for i := range cells {
		counts[cells[i].State]++
	}
	var out []stateCount
	for _, s := range view.States {
		if counts[s.State] > 0 {
			out = append(out, stateCount{s.State, counts[s.State]})
		}
	}
	return out
}

// groupingLabels returns the labels that split the nodes into a few groups.
func groupingLabels(cells []view.Cell) []string {
	values := map[string]map[string]bool{}
	for i := range cells {
		for key, value := range cells[i].Labels {
			if strings.HasPrefix(key, ourLabels) {
				continue
			}
			if values[key] == nil {
				values[key] = map[string]bool{}
			}
			values[key][value] = true
		}
	}
	var keys []string
	for key, of := range values {
		if len(of) <= max(2, len(cells)/4) && len(of) <= 100 {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}
