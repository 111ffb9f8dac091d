// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// PlanRow is what comes in one compartment of a rollout.
type PlanRow struct {
	Rollout rollout.Ref
	Group   string
	Waves   []PlanWave
	Closed  []Span // no window is open
}

// PlanWave is nodes that begin together.
type PlanWave struct {
	Nodes []string
	WaveTimes
}

// Names are the nodes, for people.
func (w PlanWave) Names() string { return output.List(w.Nodes, 40) }

// Describe says what a row has.
func (r PlanRow) Describe() string {
	nodes := 0
	for _, w := range r.Waves {
		nodes += len(w.Nodes)
	}
	return fmt.Sprintf("%s of %s in %s", output.Count(nodes, "node"), r.Rollout.Title(), output.Count(len(r.Waves), "batch"))
}

// WaveTimes is when a wave begins and ends in a simulation.
type WaveTimes struct {
	From time.Time     `json:"from"`
	To   time.Time     `json:"to"`             // of the simulation, if the wave does not end in it
	Open bool          `json:"open,omitempty"` // it does not end in the simulation
	Soak time.Duration `json:"-"`              // after the end, until it counts
}

// ListRows returns what comes, by rollout and by the first wave of each compartment.
func (s *Simulation) ListRows() []PlanRow {
	var out []PlanRow
	for i := range s.Rollouts {
		r, first := &s.Rollouts[i], len(out)
		for _, w := range r.Waves {
			at := slices.IndexFunc(out[first:], func(row PlanRow) bool { return row.Group == w.Group })
			if at < 0 {
				at = len(out) - first
				out = append(out, PlanRow{Rollout: r.Name, Group: w.Group, Closed: r.Progress.Closed})
			}
			row := &out[first+at]
			row.Waves = append(row.Waves, PlanWave{w.Nodes, w.WaveTimes})
		}
	}
	return out
}

// summary is what two simulations are compared by.
type summary struct {
	nodes, waves, left int
	end                time.Duration
}

func (s *Simulation) summarize() map[rollout.Ref]summary {
	out := map[rollout.Ref]summary{}
	for i := range s.Rollouts {
		r, of := &s.Rollouts[i], summary{}
		for _, w := range r.Waves {
			of.nodes, of.waves, of.end = of.nodes+len(w.Nodes), of.waves+1, max(of.end, w.To.Sub(s.Now))
		}
		for _, reason := range r.Left {
			of.left += reason.Nodes
		}
		out[r.Name] = of
	}
	return out
}

// CompareTo says what another simulation changes.
func (s *Simulation) CompareTo(edited *Simulation) []string {
	var out []string
	old, others := s.summarize(), edited.summarize()
	for i := range edited.Rollouts {
		name := edited.Rollouts[i].Name
		is := others[name]
		was, existed := old[name]
		switch {
		case !existed && is.waves == 0:
			out = append(out, name.Title()+" is new, and begins no node.")
		case !existed:
			out = append(out, fmt.Sprintf("%s is new: %s in %s, done after %s.", name.Title(), output.Count(is.nodes, "node"), output.Count(is.waves, "batch"), FormatDuration(is.end)))
		case was != is:
			out = append(out, name.Title()+": "+strings.Join(was.changesTo(is), "; ")+".")
		}
	}
	for i := range s.Rollouts {
		if _, stays := others[s.Rollouts[i].Name]; !stays {
			out = append(out, s.Rollouts[i].Name.Title()+" is gone.")
		}
	}
	return out
}

func (was summary) changesTo(is summary) []string {
	var out []string
	add := func(changed bool, format, from, to string) {
		if changed {
			out = append(out, fmt.Sprintf(format, to, from))
		}
	}
	add(was.nodes != is.nodes, "%s begin instead of %s", output.Count(was.nodes, "node"), output.Count(is.nodes, "node"))
	add(was.waves != is.waves, "in %s instead of %s", output.Count(was.waves, "batch"), output.Count(is.waves, "batch"))
	add(was.end != is.end && is.waves > 0, "done after %s instead of %s", FormatDuration(was.end), FormatDuration(is.end))
	add(was.left != is.left, "%s left instead of %s", output.Count(was.left, "node"), output.Count(is.left, "node"))
	return out
}
