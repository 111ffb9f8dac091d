// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

// TestProgressIsWrittenSeldom follows a drain second by second: its progress alone is written every ten seconds, other changes at once, and
// a pass is requested for when the drain is long.
func TestProgressIsWrittenSeldom(t *testing.T) {
	start := time.Unix(1000, 0)
	now := start
	r := &reporter{clock: func() time.Time { return now }, lastWrites: map[types.UID]time.Time{}}
	stored, wrote := v1alpha1.SkyhookStatus{Status: v1alpha1.StatusInProgress}, []int{}
	for second := range 45 {
		now = start.Add(time.Duration(second) * time.Second)
		status := v1alpha1.SkyhookStatus{Status: v1alpha1.StatusInProgress}
		if second >= 10 && second < 40 {
			status.Drains = []v1alpha1.NodeDrain{{Node: "n1", DrainProgress: v1alpha1.DrainProgress{PodsLeft: int32(100 - second)}}}
		}
		if second >= 33 {
			status.Status = v1alpha1.StatusErroring
		}
		p := &passReport{reporter: r, written: map[types.UID]time.Time{}}
		drain := rollout.Drained{Since: start, Long: second >= 10}
		interval := p.requestProgress(rollout.Report{Draining: []rollout.Drained{drain}}, skyhook.HasNews(stored, status))
		isDifferent := stored.Status != status.Status || len(stored.Drains) != len(status.Drains) || len(status.Drains) > 0 && stored.Drains[0].PodsLeft != status.Drains[0].PodsLeft
		if p.writeStatusAfter(interval, "demo", func() (bool, error) { return isDifferent, nil }) {
			stored = status
			wrote = append(wrote, second)
		}
		if due := start.Add(rollout.LongDrain); second < 10 && !p.next.Equal(due) {
			t.Errorf("after %d s the next pass is at %v, want %v", second, p.next, due)
		}
		r.lastWrites = p.written
		if p.written["demo"].IsZero() && len(wrote) > 0 { // as when nothing differs: the time of the last write is forgotten
			r.lastWrites["demo"] = start.Add(time.Duration(wrote[len(wrote)-1]) * time.Second)
		}
	}
	want := []int{10, 20, 30, 33, 43}
	if len(wrote) != len(want) {
		t.Fatalf("written after %v s, want %v", wrote, want)
	}
	for i := range want {
		if wrote[i] != want[i] {
			t.Errorf("written after %v s, want %v", wrote, want)
		}
	}
}
