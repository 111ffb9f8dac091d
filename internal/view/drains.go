// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// MaxDrains limits the drains on a screen.
const MaxDrains = 5

// DrainStatus is how far the drain of a node is.
type DrainStatus struct {
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

func describeDrains(now time.Time, all []rollout.Drained) []DrainStatus {
	var out []DrainStatus
	for _, d := range all {
		s := DrainStatus{Node: d.Node, Left: d.Left, All: d.All, Since: timeOrNil(d.Since), Slowest: []slowPod{}}
		if now.After(d.Since) && !d.Since.IsZero() {
			s.For = FormatDuration(now.Sub(d.Since))
		}
		for _, p := range d.Slowest {
			slow := slowPod{Pod: p.Pod, Reason: string(p.Reason), Text: p.Text}
			if p.Ends.After(now) {
				end := p.Ends.UTC()
				slow.Ends, slow.In = &end, FormatDuration(end.Sub(now))
			}
			s.Slowest = append(s.Slowest, slow)
		}
		out = append(out, s)
	}
	return out
}
