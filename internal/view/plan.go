// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"slices"
	"strings"

	"github.com/skyhook-k8s/skyhook/internal/ui"
)

// ListBars returns the waves of all rollouts, by time.
func (s *Simulation) ListBars() []ui.Bar {
	out := []ui.Bar{}
	for i := range s.Rollouts {
		r := &s.Rollouts[i]
		for _, w := range r.Waves {
			out = append(out, ui.Bar{Rollout: ShortName(r.Name), Group: w.Group, Wave: w.Number, Nodes: w.Nodes, WaveTimes: w.WaveTimes})
		}
	}
	slices.SortStableFunc(out, func(a, b ui.Bar) int { return cmp.Or(a.From.Compare(b.From), strings.Compare(a.Rollout, b.Rollout)) })
	return out
}
