// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// RunWithoutPruner is Play without a pruner.
func RunWithoutPruner(s rollout.Snapshot, times Durations, limit time.Duration) Timeline {
	p := newRunner(s, times)
	p.pruner = nil
	return p.run(limit)
}

// RunWithWidth is Play with a pruner of this width. It returns how many targets were decided about.
func RunWithWidth(s rollout.Snapshot, times Durations, limit time.Duration, width int) (Timeline, int) {
	p := newRunner(s, times)
	if p.pruner != nil {
		p.pruner.Width = width
	}
	return p.run(limit), p.decided
}
