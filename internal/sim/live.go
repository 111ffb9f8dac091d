// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

var zero time.Time

// End lets a task's object end well. A reboot changes the node's boot.
func (w *World) End(t *rollout.Target, k *rollout.Task) {
	k.State, k.Why = rollout.StateSucceeded, nil
	if n := w.Node(t.Node); n != nil && k.BootID != "" {
		n.BootID += "'"
	}
}

// Fail lets the running attempt of a task fail. Dead: its object does not try again by itself.
func (w *World) Fail(k *rollout.Task, dead bool, why rollout.Why) {
	k.State, k.Dead, k.Why = rollout.StateFailing, dead, &why
	k.Attempts, k.FailedAt = k.Attempts+1, w.Truth.Now
}

// Pass lets time go by.
func (w *World) Pass(d time.Duration) { w.Truth.Now = w.Truth.Now.Add(d) }
