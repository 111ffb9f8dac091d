// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// Calendar has the windows of a policy. It uses local time: an hour that is skipped in spring is in no window, and one
// that is repeated in autumn is in its window twice.
type Calendar struct {
	zone      *time.Location
	recurring []recurringWindow
	weekly    []weeklyWindow
	blackouts []blackout
}

// recurringWindow is a window that starts by a cron schedule.
type recurringWindow struct {
	schedule cron.Schedule
	duration time.Duration
	ending
}

// ending is what a window says about its end.
type ending struct {
	margin time.Duration // 0 for none
	isHeld bool          // nodes in flight are not cordoned after it
}

func newEnding(w *v1alpha1.Window) ending {
	out := ending{isHeld: w.AtEnd == v1alpha1.WindowHold}
	if w.Margin != nil {
		out.margin = min(w.Margin.Duration, maxMargin)
	}
	return out
}

func (w recurringWindow) isOpen(now time.Time) bool {
	start := w.schedule.Next(now.Add(-w.duration))
	return !start.IsZero() && !start.After(now)
}

// weeklyWindow is a window by weekday and hour.
type weeklyWindow struct {
	days     [7]bool // on which it starts
	from, to int     // minutes of the day; a window over midnight has a to that is not above from
	ending
}

func (w weeklyWindow) isOpen(now time.Time) bool {
	minute, today := 60*now.Hour()+now.Minute(), now.Weekday()
	yesterday := (today + 6) % 7
	if w.from < w.to {
		return w.days[today] && w.from <= minute && minute < w.to
	}
	hasStarted := w.days[today] && w.from <= minute
	isOpenSinceYesterday := w.days[yesterday] && minute < w.to
	return hasStarted || isOpenSinceYesterday
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
	if len(c.recurring)+len(c.weekly) == 0 {
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
			return fmt.Errorf("window %d never opens: correct its start, or the blackouts that cover it", i+1)
		}
	}
	return nil
}

func (c *Calendar) addWindow(w *v1alpha1.Window) error {
	if w.Start != "" {
		return c.addRecurring(w)
	}
	return c.addWeekly(w)
}

func (c *Calendar) addRecurring(w *v1alpha1.Window) error {
	schedule, err := cron.ParseStandard(w.Start)
	if err != nil {
		return fmt.Errorf("start %q cannot be used: %w", w.Start, err)
	}
	if spec, ok := schedule.(*cron.SpecSchedule); ok {
		spec.Location = c.zone
	}
	hasDuration := w.Duration != nil && w.Duration.Duration > 0
	if !hasDuration {
		return fmt.Errorf("the window that starts at %q has no duration: add one", w.Start)
	}
	c.recurring = append(c.recurring, recurringWindow{schedule, w.Duration.Duration, newEnding(w)})
	return nil
}

func (c *Calendar) addWeekly(w *v1alpha1.Window) error {
	weekly := weeklyWindow{to: dayMinutes, ending: newEnding(w)}
	if w.Hours != "" {
		var fromHour, fromMinute, toHour, toMinute int
		if _, err := fmt.Sscanf(w.Hours, "%2d:%2d-%2d:%2d", &fromHour, &fromMinute, &toHour, &toMinute); err != nil {
			return fmt.Errorf("hours %q cannot be used: write two times, such as 08:00-18:00", w.Hours)
		}
		weekly.from, weekly.to = 60*fromHour+fromMinute, 60*toHour+toMinute
	}
	isEveryDay := len(w.Weekdays) == 0
	for day := range time.Weekday(7) {
		weekly.days[day] = isEveryDay || slices.Contains(w.Weekdays, v1alpha1.Weekday(day.String()))
	}
	c.weekly = append(c.weekly, weekly)
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
	isRecurring := func(w recurringWindow) bool { return w.isOpen(now) }
	isWeekly := func(w weeklyWindow) bool { return w.isOpen(now) }
	return slices.ContainsFunc(c.weekly, isWeekly) || slices.ContainsFunc(c.recurring, isRecurring)
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
	for _, w := range c.recurring {
		changes = append(changes, w.schedule.Next(t))
	}
	if len(c.weekly) > 0 || c.isBlackout(t) {
		changes = append(changes, c.changesOfDay(t)...)
	}
	changes = slices.DeleteFunc(changes, func(at time.Time) bool { return !at.After(t) })
	if len(changes) == 0 {
		return time.Time{}
	}
	return slices.MinFunc(changes, time.Time.Compare)
}

// changesOfDay returns midnight, the starts of weekly windows, and the next change of the local time.
func (c *Calendar) changesOfDay(t time.Time) []time.Time {
	start := t.Truncate(time.Minute)
	now := 60*start.Hour() + start.Minute()
	after := func(minute int) time.Time { return start.Add(time.Duration(minute-now) * time.Minute) }
	_, zoneChange := t.ZoneBounds()
	changes := []time.Time{after(dayMinutes), zoneChange}
	for _, w := range c.weekly {
		changes = append(changes, after(w.from))
	}
	return changes
}
