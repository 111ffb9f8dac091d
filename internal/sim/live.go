// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

var zero time.Time

// SucceedTask lets a task's object end well. A reboot changes the node's boot.
func (w *Cluster) SucceedTask(t *rollout.Target, k *rollout.Task) {
	k.State, k.Why = rollout.StateSucceeded, nil
	if n := w.FindNode(t.Node); n != nil && k.BootID != "" {
		n.BootID += "'"
	}
}

// FailTask lets the running attempt of a task fail. Dead: its object does not try again by itself.
func (w *Cluster) FailTask(k *rollout.Task, dead bool, why rollout.Why) {
	k.State, k.Dead, k.Why = rollout.StateFailing, dead, &why
	k.Attempts, k.FailedAt = k.Attempts+1, w.State.Now
}

// AdvanceClock lets time go by.
func (w *Cluster) AdvanceClock(d time.Duration) { w.State.Now = w.State.Now.Add(d) }
