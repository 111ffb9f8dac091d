// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"slices"
	"time"
	_ "time/tzdata" // images have no zones, and Windows has none

	"github.com/robfig/cron/v3"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// Calendar has the windows of a policy. It uses local time: an hour that is skipped in spring opens no window, and one that is repeated
// in autumn opens two.
type Calendar struct {
	zone      *time.Location
	windows   []window
	blackouts []blackout
}

// window is a window that opens by a cron schedule.
type window struct {
	schedule cron.Schedule
	duration time.Duration
	margin   time.Duration // 0 for none
	isHeld   bool          // nodes in flight are not cordoned after it
}

func (w window) isOpen(now time.Time) bool {
	start := w.schedule.Next(now.Add(-w.duration))
	return !start.IsZero() && !start.After(now)
}

// blackout is a span of days, both included.
type blackout struct{ from, to int }

const (
	dayMinutes = 24 * 60
	maxSteps   = 20000 // of a search for an opening
	maxYears   = 5     // within which every window must open
)

// NewCalendar parses windows; nil if there are none. The API server cannot check what it refuses.
func NewCalendar(w *v1alpha1.Windows) (*Calendar, error) {
	if w == nil {
		return nil, nil
	}
	name := cmp.Or(w.TimeZone, "UTC")
	zone, err := time.LoadLocation(name)
	if err != nil || name == "Local" {
		return nil, fmt.Errorf("timeZone %q is not known: use an IANA name, such as Europe/Berlin", name)
	}
	c := &Calendar{zone: zone}
	for i := range w.Open {
		if err := c.addWindow(&w.Open[i]); err != nil {
			return nil, err
		}
	}
	for _, b := range w.Blackouts {
		if err := c.addBlackout(b); err != nil {
			return nil, err
		}
	}
	if len(c.windows) == 0 {
		return nil, fmt.Errorf("windows has no windows, so nothing ever starts: add one, or remove windows")
	}
	return c, nil
}

// CheckOpens returns an error if a window does not open within the next years.
func (c *Calendar) CheckOpens(w *v1alpha1.Windows, now time.Time) error {
	for i := range w.Open {
		alone := Calendar{zone: c.zone, blackouts: c.blackouts}
		if err := alone.addWindow(&w.Open[i]); err != nil {
			return err
		}
		if _, ok := alone.FindNextOpening(now); !ok {
			return fmt.Errorf("window %d never opens: correct its schedule, or the blackouts that cover it", i+1)
		}
	}
	return nil
}

func (c *Calendar) addWindow(w *v1alpha1.Window) error {
	schedule, err := cron.ParseStandard(w.Schedule)
	if err != nil {
		return fmt.Errorf("schedule %q cannot be used: %w", w.Schedule, err)
	}
	if spec, ok := schedule.(*cron.SpecSchedule); ok {
		spec.Location = c.zone
	}
	if w.Duration.Duration <= 0 {
		return fmt.Errorf("the window that opens at %q has no duration: add one", w.Schedule)
	}
	out := window{schedule: schedule, duration: w.Duration.Duration, isHeld: w.AtEnd == v1alpha1.WindowHold}
	if w.Margin != nil {
		out.margin = min(w.Margin.Duration, maxMargin)
	}
	c.windows = append(c.windows, out)
	return nil
}

func (c *Calendar) addBlackout(b v1alpha1.Blackout) error {
	from, err := time.Parse(time.DateOnly, string(b.From))
	to := from
	if err == nil && b.To != "" {
		to, err = time.Parse(time.DateOnly, string(b.To))
	}
	if err != nil {
		return fmt.Errorf("a blackout has a day that does not exist: %w", err)
	}
	c.blackouts = append(c.blackouts, blackout{dayNumber(from), dayNumber(to)})
	return nil
}

// dayNumber returns the number of a day, whatever the zone.
func dayNumber(t time.Time) int {
	y, m, d := t.Date()
	return int(time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix() / (24 * 60 * 60))
}

// IsOpen reports whether work may start at this time.
func (c *Calendar) IsOpen(now time.Time) bool {
	now = now.In(c.zone)
	if c.isBlackout(now) {
		return false
	}
	return slices.ContainsFunc(c.windows, func(w window) bool { return w.isOpen(now) })
}

func (c *Calendar) isBlackout(now time.Time) bool {
	today := dayNumber(now)
	return slices.ContainsFunc(c.blackouts, func(b blackout) bool { return b.from <= today && today <= b.to })
}

// FindNextOpening returns the first time from now on at which work may start; false if there is none within years.
func (c *Calendar) FindNextOpening(now time.Time) (time.Time, bool) {
	t := now.In(c.zone)
	for range maxSteps {
		if c.IsOpen(t) {
			return t, true
		}
		t = c.nextChange(t)
		if t.IsZero() || t.After(now.AddDate(maxYears, 0, 0)) {
			break
		}
	}
	return time.Time{}, false
}

// nextChange returns the next time after t at which a closed calendar may open; zero if there is none.
func (c *Calendar) nextChange(t time.Time) time.Time {
	var changes []time.Time
	for _, w := range c.windows {
		changes = append(changes, w.schedule.Next(t))
	}
	if c.isBlackout(t) {
		changes = append(changes, changesOfDay(t)...)
	}
	return firstAfter(t, changes)
}

// changesOfDay returns midnight, and the next change of the local time.
func changesOfDay(t time.Time) []time.Time {
	start := t.Truncate(time.Minute)
	_, zoneChange := t.ZoneBounds()
	return []time.Time{start.Add(time.Duration(dayMinutes-60*start.Hour()-start.Minute()) * time.Minute), zoneChange}
}

// firstAfter returns the first of some times that is after t; zero if none is.
func firstAfter(t time.Time, times []time.Time) time.Time {
	var first time.Time
	for _, at := range times {
		if at.After(t) && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}
