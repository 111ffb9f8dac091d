// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// TestEstimateCompletion: waiting nodes start within windows, and what has begun ends outside of them.
func TestEstimateCompletion(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 30, 0, time.UTC)
	on := func(day, hour, minute int) time.Time { return time.Date(2026, 5, day, hour, minute, 0, 0, time.UTC) }
	daily := &v1alpha1.Windows{Open: []v1alpha1.Window{{Schedule: "0 10 * * *", Duration: lasts(3 * time.Hour)}}}
	for name, c := range map[string]struct {
		windows *v1alpha1.Windows
		in      rollout.Completion
		want    time.Time
	}{
		"unknown":           {nil, rollout.Completion{}, time.Time{}},
		"in flight":         {nil, rollout.Completion{At: on(1, 12, 20)}, on(1, 12, 20)},
		"whole minutes":     {nil, rollout.Completion{At: on(1, 12, 20).Add(time.Second)}, on(1, 12, 21)},
		"waiting":           {nil, rollout.Completion{At: on(1, 12, 20), Waiting: 10 * time.Hour}, on(1, 22, 20)},
		"in the window":     {daily, rollout.Completion{At: on(1, 12, 20), Waiting: 30 * time.Minute}, on(1, 12, 50)},
		"two windows later": {daily, rollout.Completion{At: on(1, 12, 20), Waiting: 4 * time.Hour}, on(3, 10, 20)},
		"after the window":  {daily, rollout.Completion{At: on(1, 14, 0)}, on(1, 14, 0)},
		"years":             {nil, rollout.Completion{At: now, Waiting: 2 * maxEstimate}, time.Time{}},
	} {
		got := EstimateCompletion(c.windows, c.in, nil, now)
		if got == nil != c.want.IsZero() || got != nil && !got.Time.Equal(c.want) {
			t.Errorf("%s: %v, want %s", name, got, c.want)
		}
	}
}

// TestEstimateIsKept: an estimate that is about right is not written again, so that writes do not grow with the time that passes.
func TestEstimateIsKept(t *testing.T) {
	start := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	var stored *metav1.Time
	writes := 0
	for second := range 10 * 60 * 60 { // ten hours during which each second moves the estimate by up to three minutes
		now := start.Add(time.Duration(second) * time.Second)
		noise := time.Duration(second%4) * time.Minute
		next := EstimateCompletion(nil, rollout.Completion{At: start.Add(10 * time.Hour).Add(noise)}, stored, now)
		if stored == nil || !next.Equal(stored) {
			writes++
		}
		stored = next
	}
	if writes > 5400 || writes < 1 {
		t.Errorf("%d writes", writes)
	}
	// an estimate that moves steadily, as of a rollout that makes no progress, is written once in each twentieth
	stored, writes = nil, 0
	for second := range 60 * 60 {
		now := start.Add(time.Duration(second) * time.Second)
		next := EstimateCompletion(nil, rollout.Completion{At: now.Add(5 * time.Hour)}, stored, now)
		if stored == nil || !next.Equal(stored) {
			writes++
		}
		stored = next
	}
	if writes > 5 {
		t.Errorf("%d writes in an hour", writes)
	}
}
