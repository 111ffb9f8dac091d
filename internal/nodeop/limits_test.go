// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
)

// TestLargestLimits uses the largest value that the API accepts for each field with a time or a number of attempts. Nothing fails
// before it has run.
func TestLargestLimits(t *testing.T) {
	w := newEnvironment(t, "n1")
	o := w.applyYAML(fmt.Sprintf(`{metadata: {name: up}, spec: {command: [x], rebootOnSuccess: true, cordon: true, activeDeadlineSeconds: %d, rebootTimeoutSeconds: %d,
		ttlSecondsAfterFinished: %d, backoffLimit: %d, drainOptions: {enabled: true, timeoutSeconds: %d, gracePeriodSeconds: %d}, preflight: {command: [y], activeDeadlineSeconds: %d}}}`,
		int64(math.MaxInt64), math.MaxInt32, math.MaxInt32, math.MaxInt32, math.MaxInt32, math.MaxInt32, math.MaxInt32))
	op := nodeop.NewOperation(o, nil)
	for name, limit := range map[string]time.Duration{
		"command": op.CommandTimeout(), "reboot": op.RebootTimeout(), "preflight": op.PreflightTimeout(), "drain": nodeop.TranslateDrain(o.Spec.DrainOptions).Timeout,
	} {
		if limit < 68*365*24*time.Hour {
			t.Errorf("the limit of the %s is %s", name, limit)
		}
	}
	w.commands["n1"] = "hang"
	for range 20 {
		w.tick()
	}
	requireEqual(t, "phase", o.Status.Phase, v1alpha1.PhaseRunning)
	requireEqual(t, "jobs", len(w.jobs), 1)
	if seconds := *w.jobs[0].Spec.ActiveDeadlineSeconds; seconds != math.MaxInt32 {
		t.Errorf("the deadline of the job is %d seconds", seconds)
	}
	delete(w.commands, "n1")
	w.runToEnd()
	requireEqual(t, "phase", o.Status.Phase, v1alpha1.PhaseCompleted)
}
