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

// groupAt compiles windows at a time and returns the group of all nodes.
func groupAt(t *testing.T, w v1alpha1.Windows, paused bool, now time.Time) rollout.Group {
	t.Helper()
	p := &v1alpha1.DeploymentPolicy{ObjectMeta: metav1.ObjectMeta{Name: "careful"}}
	p.Spec.Windows, p.Spec.Paused = &w, paused
	groups := NewGrouping(&Input{Policy: p, Rollout: rollout.Ref{Kind: "Skyhook", Name: "demo"}, Now: now}).Groups(nil)
	if len(groups) != 1 {
		t.Fatalf("%d groups", len(groups))
	}
	return groups[0]
}

// TestMargins: a margin counts back from the time at which every window is closed. Of several open windows the one that allows most
// counts.
func TestMargins(t *testing.T) {
	friday := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	day := func(margin time.Duration) v1alpha1.Window {
		return v1alpha1.Window{Schedule: "0 8 * * *", Duration: lasts(10 * time.Hour), Margin: &metav1.Duration{Duration: margin}}
	}
	for name, c := range map[string]struct {
		open   []v1alpha1.Window
		margin time.Duration
		closes int // hour; 0 if everything may start
	}{
		"none":              {open: []v1alpha1.Window{{Schedule: "0 8 * * *", Duration: lasts(10 * time.Hour)}}},
		"given":             {open: []v1alpha1.Window{day(30 * time.Minute)}, margin: 30 * time.Minute, closes: 18},
		"one without":       {open: []v1alpha1.Window{day(30 * time.Minute), {Schedule: "0 10 * * *", Duration: lasts(3 * time.Hour)}}},
		"the smaller":       {open: []v1alpha1.Window{day(30 * time.Minute), day(20 * time.Minute)}, margin: 20 * time.Minute, closes: 18},
		"another continues": {open: []v1alpha1.Window{day(30 * time.Minute), {Schedule: "0 17 * * *", Duration: lasts(3 * time.Hour)}}, margin: 30 * time.Minute, closes: 20},
	} {
		g := groupAt(t, v1alpha1.Windows{Open: c.open}, false, friday)
		if c.closes == 0 {
			if g.Closing != nil {
				t.Errorf("%s: %+v", name, *g.Closing)
			}
			continue
		}
		at := time.Date(2026, 5, 1, c.closes, 0, 0, 0, time.UTC)
		if g.Closing == nil || !g.Closing.At.Equal(at) || g.Closing.Margin != c.margin || !g.Opens.After(at) {
			t.Errorf("%s: %+v, opens %s", name, g.Closing, g.Opens)
		}
	}
}

// TestAtEnd: the window that ended last says what happens to nodes in flight, whatever else holds the rollout.
func TestAtEnd(t *testing.T) {
	hold := v1alpha1.Window{Schedule: "0 8 * * 5", Duration: lasts(10 * time.Hour), AtEnd: v1alpha1.WindowHold}
	over := v1alpha1.Window{Schedule: "0 22 * * 5", Duration: lasts(4 * time.Hour), AtEnd: v1alpha1.WindowFinish}
	monthly := v1alpha1.Window{Schedule: "30 18 1 * *", Duration: lasts(time.Hour), AtEnd: v1alpha1.WindowHold}
	hour := func(day, hour int) time.Time { return time.Date(2026, 5, day, hour, 0, 0, 0, time.UTC) } // the first is a Friday
	for name, c := range map[string]struct {
		windows v1alpha1.Windows
		paused  bool
		now     time.Time
		isHeld  bool
	}{
		"open":                {v1alpha1.Windows{Open: []v1alpha1.Window{hold}}, false, hour(1, 12), false},
		"after it":            {v1alpha1.Windows{Open: []v1alpha1.Window{hold}}, false, hour(1, 19), true},
		"days later":          {v1alpha1.Windows{Open: []v1alpha1.Window{hold}}, false, hour(8, 7), true},
		"finishes":            {v1alpha1.Windows{Open: []v1alpha1.Window{over}}, false, hour(2, 3), false},
		"the last one":        {v1alpha1.Windows{Open: []v1alpha1.Window{hold, over}}, false, hour(2, 3), false},
		"the other one":       {v1alpha1.Windows{Open: []v1alpha1.Window{hold, over}}, false, hour(1, 19), true},
		"monthly":             {v1alpha1.Windows{Open: []v1alpha1.Window{monthly, over}}, false, hour(1, 20), true},
		"monthly, weeks ago":  {v1alpha1.Windows{Open: []v1alpha1.Window{monthly}}, false, hour(28, 20), true},
		"monthly before over": {v1alpha1.Windows{Open: []v1alpha1.Window{monthly, over}}, false, hour(3, 20), false},
		"blackout":            {v1alpha1.Windows{Open: []v1alpha1.Window{hold}, Blackouts: []v1alpha1.Blackout{{From: "2026-05-01"}}}, false, hour(1, 12), true},
		"paused":              {v1alpha1.Windows{Open: []v1alpha1.Window{hold}}, true, hour(1, 19), true},
	} {
		g := groupAt(t, c.windows, c.paused, c.now)
		if got := g.Held != nil; got != c.isHeld || got && !g.Opens.After(c.now) {
			t.Errorf("%s: held is %+v, opens %s", name, g.Held, g.Opens)
		}
		if c.paused && (g.Frozen.Reason != rollout.ReasonPaused || !g.Until.IsZero()) {
			t.Errorf("%s: %+v until %s", name, g.Frozen, g.Until)
		}
	}
}
