// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"reflect"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// TestEndStage: a stage is remembered once, with the attempts that failed, and a clock that was set back takes no time.
func TestEndStage(t *testing.T) {
	at := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	p := &PackageRecord{Since: &at, Attempts: 2}
	p.EndStage(v1alpha1.StageApply, at.Add(90*time.Second))
	p.EndStage(v1alpha1.StageApply, at.Add(2*time.Minute))
	p.Since, p.Attempts = &at, 0
	p.EndStage(v1alpha1.StageConfig, at.Add(-time.Minute))
	want := []StageTime{{Stage: v1alpha1.StageApply, At: at, Seconds: 90, Failed: 2}, {Stage: v1alpha1.StageConfig, At: at}}
	if !reflect.DeepEqual(p.Done, want) || p.Since != nil {
		t.Errorf("got %+v, since %v", p.Done, p.Since)
	}
}
