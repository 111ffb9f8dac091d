// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"reflect"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// TestEndStage: a stage is remembered once, with the attempts that failed, and a clock that was set back takes no time.
func TestEndStage(t *testing.T) {
	at := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	p := &PackageRecord{Since: &at, Attempts: 2}
	p.EndStage(v1alpha1.StageApply, at.Add(90*time.Second))
	p.EndStage(v1alpha1.StageApply, at.Add(2*time.Minute))
	p.Since, p.Attempts = &at, 0
	p.EndStage(v1alpha1.StageConfig, at.Add(-time.Minute))
	want := []rollout.StageTime{{Stage: "apply", At: at, Seconds: 90, Failed: 2}, {Stage: "config", At: at}}
	if !reflect.DeepEqual(p.Done, want) || p.Since != nil {
		t.Errorf("got %+v, since %v", p.Done, p.Since)
	}
}

// TestRuns: what ran is listed by package, in a fixed order. A step of a NodeOp whose time is not recorded is left out.
func TestRuns(t *testing.T) {
	at := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	apply := []rollout.StageTime{{Stage: "apply", At: at, Seconds: 90}}
	hook := SkyhookRecord{Packages: map[string]*PackageRecord{"b|1": {Done: apply}, "a|1": {Done: apply}, "c|1": {}}}
	if got, want := hook.Runs(), []rollout.Runs{{Package: "a|1", Stages: apply}, {Package: "b|1", Stages: apply}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	op := OpRecord{Preflight: &Step{State: StepDone, At: at}, Command: &Step{State: StepDone, At: at.Add(time.Minute), Took: 40}, Reboot: &Step{State: StepRunning, At: at}}
	if got, want := op.Runs(), []rollout.Runs{{Stages: []rollout.StageTime{{Stage: "command", At: at.Add(20 * time.Second), Seconds: 40}}}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := (&OpRecord{}).Runs(); got != nil {
		t.Errorf("nothing ran, and %+v is listed", got)
	}
}
