// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package look

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/view"
)

// newFleetAnswer returns what status --nodes prints: the nodes that a filter selects.
func newFleetAnswer(p *output.Printer, fleet *view.Fleet, filter view.FleetFilter, now time.Time) output.Answer {
	fleet.Nodes = slices.DeleteFunc(fleet.Nodes, func(c view.Cell) bool { return !filter.Matches(&c) })
	var names []string
	for i := range fleet.Nodes {
		names = append(names, fleet.Nodes[i].Node)
	}
	return output.Answer{Value: fleet, Names: output.WithKind("node", names...), Text: func(bool) string { return formatFleet(p, fleet, now) }}
}

func formatFleet(p *output.Printer, fleet *view.Fleet, now time.Time) string {
	if len(fleet.Nodes) == 0 {
		return "No node matches.\n"
	}
	header := []string{"NODE", "STATE", "ROLLOUT", "STAGE", "SINCE", "WHY"}
	var rows [][]string
	for _, c := range fleet.SortByUrgency() {
		why := strings.TrimPrefix(c.Reason+": "+c.Text, ": ")
		rows = append(rows, []string{
			c.Node, c.State.Sign() + " " + strings.ToLower(c.State.Title()), cmp.Or(c.Rollout, "-"), cmp.Or(c.Stage, "-"), formatSince(c.Since, now), strings.TrimSuffix(why, ": "),
		})
	}
	return output.FormatTable(header, p.ClipLastColumn(header, rows, 80, 0), nil)
}

// formatSince returns how long ago a time was; a dash for none.
func formatSince(t *time.Time, now time.Time) string {
	if t == nil {
		return "-"
	}
	return view.FormatDuration(now.Sub(*t))
}
