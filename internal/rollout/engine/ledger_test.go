// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// TestReservationKeepsItsTime: when a reservation is written again its term does not count anew, and what one process observed stays out.
func TestReservationKeepsItsTime(t *testing.T) {
	noon := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	reserved := []rollout.Reservation{{Node: "n1", Since: noon.Add(5 * time.Hour), Observed: noon}}
	written := (&ledgerState{Ledger: rollout.Ledger{Admitting: reserved}, unseen: reserved}).nextVersion()
	if r := written.Admitting[0]; !r.Since.Equal(noon.Add(5*time.Hour)) || !r.Observed.IsZero() {
		t.Errorf("the reservation is written again with since %s, observed %s", r.Since, r.Observed)
	}
}
