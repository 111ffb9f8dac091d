// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/sim"
)

// SimulateForPages simulates without remembering what pages do not show: a simulation stays in memory for a while.
func (v *Cluster) SimulateForPages(isEnough StopCondition, most time.Duration) *Forecast {
	times := sim.Recorded(v.Snapshot.Times)
	times.Keep = func(*rollout.Action) bool { return false }
	f := v.SimulateRollouts(times, MaxSimulatedTime, stopAtEither(stopLate(most), isEnough))
	f.timeline.Final, f.timeline.Steps, f.runs = rollout.Snapshot{}, nil, nil
	return f
}
