// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// PlayWhole is Play that leaves nothing out of what is decided about.
func PlayWhole(s rollout.Snapshot, times Times, limit time.Duration) Timeline {
	p := newPlayer(s, times)
	p.field.whole = true
	return p.play(limit)
}

// PlayFew is Play that looks at so few of each line at first, and says how many targets were decided about.
func PlayFew(s rollout.Snapshot, times Times, limit time.Duration, fewest int) (Timeline, int) {
	p := newPlayer(s, times)
	p.field.fewest = fewest
	return p.play(limit), p.field.seen
}
