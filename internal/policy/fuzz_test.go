// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/test/memory"
)

// FuzzWindows reads schedules and looks for openings: an opening is open, and neither needs much memory.
func FuzzWindows(f *testing.F) {
	f.Add("0 22 * * 1-5", "Europe/Berlin", "2026-12-24", uint32(240), int64(1_790_000_000))
	f.Add("59 23 29 2 *", "", "2026-02-29", uint32(1), int64(0))
	f.Add("*/7 0-23/5 * * mon,3", "America/New_York", "2026-01-01", uint32(10080), int64(1_774_000_000))
	f.Fuzz(func(t *testing.T, schedule, zone, blackout string, minutes uint32, at int64) {
		w := &v1alpha1.Windows{TimeZone: zone, Open: []v1alpha1.Window{{
			Schedule: schedule, Duration: metav1.Duration{Duration: time.Duration(1+minutes%10080) * time.Minute},
		}}, Blackouts: []v1alpha1.Blackout{{From: v1alpha1.Date(blackout)}}}
		now := time.Unix(at%4_000_000_000, 0)
		memory.Check(t, 32<<20, func() {
			c, err := NewCalendar(w)
			if err != nil {
				return
			}
			next, ok := c.FindNextOpening(now)
			if ok && (next.Before(now) || !c.IsOpen(next)) {
				t.Errorf("%s is no opening after %s", next, now)
			}
			if isOpen := c.IsOpen(now); isOpen && (!ok || !next.Equal(now)) {
				t.Errorf("it is open at %s, and opens at %s", now, next)
			}
		})
	})
}
