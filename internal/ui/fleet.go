// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Fleet is the data behind the page of all nodes. status --nodes -o json prints it.
type Fleet struct {
	Rollouts any    `json:"rollouts"` // as status -o json prints them
	Nodes    []Cell `json:"nodes"`    // those that the filter selects
}

// SortByUrgency returns the nodes, the most urgent first.
func (f *Fleet) SortByUrgency() []Cell {
	return slices.SortedStableFunc(slices.Values(f.Nodes), func(a, b Cell) int {
		return cmp.Or(cmp.Compare(a.State.rank(), b.State.rank()), strings.Compare(a.Node, b.Node))
	})
}

// Cell is one node: what it does in the rollout that needs the most attention there.
type Cell struct {
	Node        string            `json:"node"`
	State       State             `json:"state"`
	Rollout     string            `json:"rollout,omitempty"`
	Compartment string            `json:"compartment,omitempty"`
	Stage       string            `json:"stage,omitempty"`
	Reason      string            `json:"reason,omitempty"`
	Text        string            `json:"text,omitempty"`
	Since       *time.Time        `json:"since,omitempty"`
	Labels      map[string]string `json:"-"`
}

// State is what a node does, in the words of the pages.
type State string

// The states, the most urgent first.
const (
	StateFailed    State = "failed"
	StateNotReady  State = "not-ready"
	StateRebooting State = "rebooting"
	StateDraining  State = "draining"
	StateWorking   State = "working"
	StateBlocked   State = "blocked"
	StateDrifted   State = "drifted"
	StateWaiting   State = "waiting"
	StatePaused    State = "paused"
	StateComplete  State = "complete"
	StateIdle      State = "idle"
)

// stateTable has the sign of each state, because colour is never the only one, and its words.
var stateTable = []struct {
	State       State
	Sign, Title string
	Meaning     string
}{
	{StateFailed, "×", "Failed", "a stage failed; it may be retried"},
	{StateNotReady, "!", "Not ready", "the kubelet does not report the node as ready"},
	{StateRebooting, "↻", "Rebooting", "a reboot of ours is in progress"},
	{StateDraining, "▾", "Draining", "pods must leave the node first"},
	{StateWorking, "▸", "Working", "stages run, or are about to"},
	{StateBlocked, "◆", "Blocked", "work cannot begin without somebody's help"},
	{StateDrifted, "≠", "Drifted", "it is complete, and is not any more as it was left"},
	{StateWaiting, "…", "Waiting", "work begins by itself"},
	{StatePaused, "‖", "Paused", "its rollout is paused or disabled"},
	{StateComplete, "✓", "Complete", "nothing is left to do"},
	{StateIdle, "·", "Not selected", "no rollout selects the node"},
}

// Sign is the character of a state.
func (s State) Sign() string { return stateTable[s.rank()].Sign }

// Title is the state for people.
func (s State) Title() string { return stateTable[s.rank()].Title }

// rank is the place of a state in order of urgency.
func (s State) rank() int {
	for i := range stateTable {
		if stateTable[i].State == s {
			return i
		}
	}
	return len(stateTable) - 1
}

// IsMoreUrgent reports whether a state needs attention before another one.
func (s State) IsMoreUrgent(other State) bool { return s.rank() < other.rank() }

// Groupings of nodes, besides labels.
const (
	byNothing     = "none"
	byCompartment = "compartment"
	byZone        = "zone"
	zoneLabel     = "topology.kubernetes.io/zone"
	ourLabels     = "skyhook.nvidia.com/" // they say what other columns say better
)

// FleetFilter is which nodes are shown, as the address of the page or the flags of status say.
type FleetFilter struct {
	Rollout string
	By      string // compartment, zone, none or the key of a label
	State   State
	Query   string // part of a name, a stage or a reason
}

func newFleetFilter(q url.Values) FleetFilter {
	return FleetFilter{
		Rollout: q.Get("rollout"), By: cmp.Or(q.Get("by"), byCompartment), State: State(q.Get("state")), Query: strings.TrimSpace(q.Get("q")),
	}
}

// Check returns an error for a state that does not exist.
func (f FleetFilter) Check() error {
	if f.State == "" || stateTable[f.State.rank()].State == f.State {
		return nil
	}
	var known []string
	for _, s := range stateTable {
		known = append(known, string(s.State))
	}
	return fmt.Errorf("state %q is not one of %s", f.State, strings.Join(known, ", "))
}

// With returns the query of the address with another state.
func (f FleetFilter) With(state State) string {
	q := url.Values{}
	for key, value := range map[string]string{"rollout": f.Rollout, "by": f.By, "state": string(state), "q": f.Query} {
		if value != "" {
			q.Set(key, value)
		}
	}
	return "?" + q.Encode()
}

// Matches reports whether a node is shown.
func (f FleetFilter) Matches(c *Cell) bool {
	if f.State != "" && c.State != f.State {
		return false
	}
	query := strings.ToLower(f.Query)
	for _, text := range []string{c.Node, c.Stage, c.Reason, c.Text} {
		if strings.Contains(strings.ToLower(text), query) {
			return true
		}
	}
	return false
}

func (f FleetFilter) groupOf(c *Cell) string {
	switch f.By {
	case byNothing:
		return ""
	case byCompartment:
		return c.Compartment
	case byZone:
		return c.Labels[zoneLabel]
	}
	return c.Labels[f.By]
}

// stateCount is how many nodes are in a state.
type stateCount struct {
	State State
	Nodes int
}

// cellGroup is a group of cells of the page.
type cellGroup struct {
	ID, Name string
	Counts   []stateCount // of its states, the most urgent first
	Cells    []Cell
}

// Summary says what the nodes of a group do.
func (g *cellGroup) Summary() string {
	var parts []string
	for _, c := range g.Counts {
		parts = append(parts, fmt.Sprintf("%d %s", c.Nodes, strings.ToLower(c.State.Title())))
	}
	return strings.Join(parts, ", ")
}

// maxListed is how many nodes the table of the page lists.
const maxListed = 100

// fleetView is what the page shows.
type fleetView struct {
	*Fleet
	Filter  FleetFilter
	Total   int          // nodes before filters
	Counts  []stateCount // before the filter of states
	Groups  []*cellGroup
	Listed  []Cell   // the most urgent ones, for the table
	Labels  []string // by which nodes can be grouped
	Reasons []string // each text once; cells refer to them by number
	numbers map[string]int
}

// newFleetView filters and groups nodes. The filters also apply to the JSON.
func newFleetView(fleet *Fleet, filter FleetFilter) *fleetView {
	v := &fleetView{Fleet: fleet, Filter: filter, Total: len(fleet.Nodes), Labels: groupingLabels(fleet.Nodes), numbers: map[string]int{}}
	anyState := filter
	anyState.State = ""
	fleet.Nodes = slices.DeleteFunc(fleet.Nodes, func(c Cell) bool { return !anyState.Matches(&c) })
	v.Counts = countStates(fleet.Nodes)
	fleet.Nodes = slices.DeleteFunc(fleet.Nodes, func(c Cell) bool { return !filter.Matches(&c) })
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
	v.Listed = fleet.SortByUrgency()
	v.Listed = v.Listed[:min(maxListed, len(v.Listed))]
	return v
}

// Number returns the number of what a cell says; each text is sent once.
func (v *fleetView) Number(c Cell) int {
	text := strings.Join([]string{c.Rollout, c.Stage, c.Reason, c.Text}, "\n")
	n, ok := v.numbers[text]
	if !ok {
		n = len(v.Reasons)
		v.numbers[text], v.Reasons = n, append(v.Reasons, text)
	}
	return n
}

// CountOf returns how many nodes of the page are in a state.
func (v *fleetView) CountOf(s State) int {
	for _, c := range v.Counts {
		if c.State == s {
			return c.Nodes
		}
	}
	return 0
}

func countStates(cells []Cell) []stateCount {
	counts := map[State]int{}
	for i := range cells {
		counts[cells[i].State]++
	}
	var out []stateCount
	for _, s := range stateTable {
		if counts[s.State] > 0 {
			out = append(out, stateCount{s.State, counts[s.State]})
		}
	}
	return out
}

// groupingLabels returns the labels that split the nodes into a few groups.
func groupingLabels(cells []Cell) []string {
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
