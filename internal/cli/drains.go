// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// maxDrains limits the drains on a screen.
const maxDrains = 5

// drainStatus is how far the drain of a node is.
type drainStatus struct {
	Node    string     `json:"node"`
	Left    int        `json:"podsLeft"`
	All     int        `json:"podsTotal"`
	Since   *time.Time `json:"since,omitempty"`
	For     string     `json:"for,omitempty"`
	Slowest []slowPod  `json:"slowest"`
}

// slowPod is a pod that is expected to leave last.
type slowPod struct {
	Pod    string     `json:"pod"`
	Reason string     `json:"reason"`
	Text   string     `json:"text"`
	Ends   *time.Time `json:"expectedEnd,omitempty"`
	In     string     `json:"in,omitempty"` // time until then
}

func describeDrains(now time.Time, all []rollout.Drained) []drainStatus {
	var out []drainStatus
	for _, d := range all {
		s := drainStatus{Node: d.Node, Left: d.Left, All: d.All, Since: timeOrNil(d.Since), Slowest: []slowPod{}}
		if now.After(d.Since) && !d.Since.IsZero() {
			s.For = formatDuration(now.Sub(d.Since))
		}
		for _, p := range d.Slowest {
			slow := slowPod{Pod: p.Pod, Reason: string(p.Reason), Text: p.Text}
			if p.Ends.After(now) {
				end := p.Ends.UTC()
				slow.Ends, slow.In = &end, formatDuration(end.Sub(now))
			}
			s.Slowest = append(s.Slowest, slow)
		}
		out = append(out, s)
	}
	return out
}

// format formats a drain: the numbers, and a line for each of the slowest pods.
func (d *drainStatus) format(indent string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s%d of %s left", indent, d.Left, output.Count(d.All, "pod"))
	if d.For != "" {
		fmt.Fprintf(&b, ", draining for %s", d.For)
	}
	b.WriteString("\n")
	for _, p := range d.Slowest {
		fmt.Fprintf(&b, "%s  %s  %s: %s", indent, p.Pod, p.Reason, p.Text)
		if p.In != "" {
			fmt.Fprintf(&b, ", should be gone in %s", p.In)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// formatDrains lists the drains that take the longest.
func (s *rolloutStatus) formatDrains(wide bool) string {
	if len(s.Drains) == 0 {
		return ""
	}
	shown := s.Drains
	if !wide {
		shown = shown[:min(len(shown), maxDrains)]
	}
	var b strings.Builder
	b.WriteString("\nDraining:\n")
	for i := range shown {
		fmt.Fprintf(&b, "  %s  %s", shown[i].Node, strings.TrimLeft(shown[i].format("  "), " "))
	}
	if hidden := len(s.Drains) - len(shown); hidden > 0 {
		fmt.Fprintf(&b, "  and %s; -o wide shows all\n", output.Count(hidden, "more drain"))
	}
	return b.String()
}
