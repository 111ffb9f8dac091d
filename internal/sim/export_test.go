// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// PlayWhole is Play without a pruner.
func PlayWhole(s rollout.Snapshot, times Times, limit time.Duration) Timeline {
	p := newPlayer(s, times)
	p.pruner = nil
	return p.play(limit)
}

// PlayFew is Play with a pruner of this width. It returns how many targets were decided about.
func PlayFew(s rollout.Snapshot, times Times, limit time.Duration, width int) (Timeline, int) {
	p := newPlayer(s, times)
	if p.pruner != nil {
		p.pruner.Width = width
	}
	return p.play(limit), p.decided
}
