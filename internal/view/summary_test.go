// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"testing"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// TestFailureIsNamed: a node that no stage keeps failing says what did.
func TestFailureIsNamed(t *testing.T) {
	for reason, want := range map[rollout.Reason]string{
		rollout.ReasonRolledBack: "rollback", rollout.ReasonProofFailed: "proof", rollout.ReasonDrainTimeout: "drain", rollout.ReasonStageFailed: "driver apply",
	} {
		target := &rollout.Target{Node: "n1"}
		if reason == rollout.ReasonStageFailed {
			target.Tasks = []rollout.Task{{Label: "driver apply", Attempts: rollout.Attempts{Failed: 2}}}
		}
		got := newFailure(target, rollout.Verdict{Phase: rollout.PhaseFailed, Why: rollout.Why{Reason: reason}})
		if got.Task != want || !got.Final {
			t.Errorf("%s is shown as %+v, want %s", reason, got, want)
		}
	}
}
