// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// RunWithoutPruner is Run without a pruner.
func RunWithoutPruner(s rollout.Snapshot, durations Durations, limit time.Duration) Timeline {
	r := newRunner(s, durations)
	r.pruner = nil
	return r.run(limit)
}

// RunWithWidth is Run with a pruner of this width. It returns how many targets were evaluated.
func RunWithWidth(s rollout.Snapshot, durations Durations, limit time.Duration, width int) (Timeline, int) {
	r := newRunner(s, durations)
	if r.pruner != nil {
		r.pruner.Width = width
	}
	return r.run(limit), r.decided
}
