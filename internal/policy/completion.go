// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// A stored estimate is replaced only by one that differs by more than a minute and more than this share of the time that is left, so
// that a rollout does not write its status because time passes.
const (
	estimateGrain = time.Minute
	estimateShare = 20 // a twentieth
	maxEstimate   = 366 * 24 * time.Hour
	maxWindows    = 1000 // that an estimate passes through
)

// EstimateCompletion returns when a rollout should have finished, in whole minutes; nil if that is unknown. Windows may be nil. An
// estimate that is stored is kept while it is about right.
func EstimateCompletion(windows *v1alpha1.Windows, c rollout.Completion, stored *metav1.Time, now time.Time) *metav1.Time {
	at, isKnown := finish(windows, c)
	if !isKnown || at.Sub(now) > maxEstimate {
		return nil
	}
	at = at.UTC().Add(estimateGrain - 1).Truncate(estimateGrain)
	tolerance := max(estimateGrain, at.Sub(now)/estimateShare)
	if stored != nil && stored.After(now) && at.Sub(stored.Time).Abs() <= tolerance {
		return stored
	}
	return &metav1.Time{Time: at}
}

// finish adds the time that waiting nodes take, while a window is open. What has begun ends outside of windows, too.
func finish(windows *v1alpha1.Windows, c rollout.Completion) (time.Time, bool) {
	if c.At.IsZero() {
		return time.Time{}, false
	}
	calendar, err := NewCalendar(windows)
	if calendar == nil || err != nil || c.Waiting == 0 {
		return c.At.Add(c.Waiting), true
	}
	at, left := c.At, c.Waiting
	for range maxWindows {
		opens, isKnown := calendar.FindNextOpening(at)
		if !isKnown {
			return time.Time{}, false
		}
		closes, isSoon := calendar.findClosing(opens, opens.Add(left))
		if !isSoon || !closes.Before(opens.Add(left)) {
			return opens.Add(left), true
		}
		left -= closes.Sub(opens)
		at = closes
	}
	return time.Time{}, false
}
