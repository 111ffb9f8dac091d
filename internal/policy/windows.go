// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// Calendar is the windows of a policy made ready. It looks at clocks on walls: an hour that is skipped in spring is in
// no window, and one that comes twice in autumn is in its window twice.
type Calendar struct {
	zone      *time.Location
	starts    []recurringWindow
	spans     []weeklyWindow
	blackouts []blackout
}

// recurringWindow is a window that begins by cron.
type recurringWindow struct {
	at   cron.Schedule
	long time.Duration
}

// weeklyWindow is a window by weekday and hour.
type weeklyWindow struct {
	days     [7]bool // of its beginning
	from, to int     // minutes of the day; to is not above from when it goes over midnight
}

// blackout is a span of days, both included.
type blackout struct{ from, to int }

const (
	dayMinutes = 24 * 60
	maxSteps   = 20000 // in search of an opening
	maxYears   = 5     // years, within which a window opens or never does
)

// NewCalendar reads windows; nil when there are none. What it refuses no API server finds.
func NewCalendar(w *v1alpha1.Windows) (*Calendar, error) {
	if w == nil {
		return nil, nil
	}
	name := w.TimeZone
	if name == "" {
		name = "UTC"
	}
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
	if len(c.starts)+len(c.spans) == 0 {
		return nil, fmt.Errorf("windows lists none, so nothing ever begins: add one, or leave windows out")
	}
	return c, nil
}

// CheckOpens finds a window that does not open within the next years.
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
		at, err := cron.ParseStandard(w.Start)
		if err != nil {
			return fmt.Errorf("start %q cannot be used: %w", w.Start, err)
		}
		if by, ok := at.(*cron.SpecSchedule); ok {
			by.Location = c.zone
		}
		if w.Duration == nil || w.Duration.Duration <= 0 {
			return fmt.Errorf("the window that starts at %q has no duration: add one", w.Start)
		}
		c.starts = append(c.starts, recurringWindow{at, w.Duration.Duration})
		return nil
	}
	s := weeklyWindow{to: dayMinutes}
	if w.Hours != "" {
		var fromHour, fromMinute, toHour, toMinute int
		if _, err := fmt.Sscanf(w.Hours, "%2d:%2d-%2d:%2d", &fromHour, &fromMinute, &toHour, &toMinute); err != nil {
			return fmt.Errorf("hours %q cannot be used: write two times, such as 08:00-18:00", w.Hours)
		}
		s.from, s.to = 60*fromHour+fromMinute, 60*toHour+toMinute
	}
	for day := time.Sunday; day <= time.Saturday; day++ {
		s.days[day] = len(w.Weekdays) == 0 || slices.Contains(w.Weekdays, v1alpha1.Weekday(day.String()))
	}
	c.spans = append(c.spans, s)
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

// dayNumber numbers the days of a calendar, whatever the zone.
func dayNumber(t time.Time) int {
	y, m, d := t.Date()
	return int(time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix() / (24 * 60 * 60))
}

// IsOpen says that work may begin at this time.
func (c *Calendar) IsOpen(now time.Time) bool {
	now = now.In(c.zone)
	today := dayNumber(now)
	if slices.ContainsFunc(c.blackouts, func(b blackout) bool { return b.from <= today && today <= b.to }) {
		return false
	}
	for _, w := range c.starts {
		if at := w.at.Next(now.Add(-w.long)); !at.IsZero() && !at.After(now) {
			return true
		}
	}
	minute, weekday := 60*now.Hour()+now.Minute(), now.Weekday()
	for _, s := range c.spans {
		yesterday := (weekday + 6) % 7
		switch {
		case s.from < s.to && s.days[weekday] && s.from <= minute && minute < s.to,
			s.from >= s.to && s.days[weekday] && s.from <= minute,
			s.from >= s.to && s.days[yesterday] && minute < s.to:
			return true
		}
	}
	return false
}

// FindNextOpening is the first time from now on at which work may begin; false when that is too far away to matter.
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

// nextChange is the next time after t at which a closed calendar may open: a start, an hour on the wall, midnight, or the
// moment in which the clocks are changed; zero for never.
func (c *Calendar) nextChange(t time.Time) time.Time {
	var next time.Time
	sooner := func(at time.Time) {
		if at.After(t) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	for _, w := range c.starts {
		sooner(w.at.Next(t))
	}
	today := dayNumber(t)
	dark := slices.ContainsFunc(c.blackouts, func(b blackout) bool { return b.from <= today && today <= b.to })
	if len(c.spans) > 0 || dark {
		minute := t.Truncate(time.Minute)
		wall := 60*minute.Hour() + minute.Minute()
		sooner(minute.Add(time.Duration(dayMinutes-wall) * time.Minute)) // midnight
		for _, s := range c.spans {
			if s.from > wall {
				sooner(minute.Add(time.Duration(s.from-wall) * time.Minute))
			}
		}
		if _, change := t.ZoneBounds(); !change.IsZero() {
			sooner(change)
		}
	}
	return next
}
