// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Bar is a wave of a rollout: nodes of one group that begin together.
type Bar struct {
	Rollout, Group string
	Wave           int
	Nodes          []string
	WaveTimes
}

// WaveTimes is when a wave begins and ends in a simulation.
type WaveTimes struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`             // of the simulation, if the wave does not end in it
	Open bool      `json:"open,omitempty"` // it does not end in the simulation
}

// ListBars returns the waves of all rollouts, by time.
func (s *Simulation) ListBars() []Bar {
	out := []Bar{}
	for i := range s.Rollouts {
		r := &s.Rollouts[i]
		for _, w := range r.Waves {
			out = append(out, Bar{Rollout: ShortName(r.Name), Group: w.Group, Wave: w.Number, Nodes: w.Nodes, WaveTimes: w.WaveTimes})
		}
	}
	slices.SortStableFunc(out, func(a, b Bar) int { return cmp.Or(a.From.Compare(b.From), strings.Compare(a.Rollout, b.Rollout)) })
	return out
}
