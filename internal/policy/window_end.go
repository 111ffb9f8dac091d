// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"time"
)

const (
	maxMargin   = 168 * time.Hour // as the API allows
	maxBackDays = 8               // a window by weekday ended within them, if it ever did
	maxStarts   = 3000            // of a cron schedule that are looked at
)

// findMargin returns the smallest margin of the windows that are open; 0 if one of them has none.
func (c *Calendar) findMargin(now time.Time) time.Duration {
	margin := maxMargin
	for _, e := range c.openEndings(now.In(c.zone)) {
		margin = min(margin, e.margin)
	}
	return margin
}

// openEndings returns the ends of the windows that are open at a local time, blackouts aside.
func (c *Calendar) openEndings(now time.Time) (out []ending) {
	for _, w := range c.weekly {
		if w.isOpen(now) {
			out = append(out, w.ending)
		}
	}
	for _, w := range c.recurring {
		if w.isOpen(now) {
			out = append(out, w.ending)
		}
	}
	return out
}

// findClosing returns the first time from now on at which every window is closed; false if there is none up to a limit.
func (c *Calendar) findClosing(now, limit time.Time) (time.Time, bool) {
	t := now.In(c.zone)
	for range maxSteps {
		if !c.IsOpen(t) {
			return t, true
		}
		t = c.nextEnd(t)
		if t.IsZero() || t.After(limit) {
			break
		}
	}
	return time.Time{}, false
}

// Span is a time from one moment to another one.
type Span struct{ From, To time.Time }

// OpenSpans returns when work may start between two times.
func (c *Calendar) OpenSpans(from, to time.Time) []Span {
	var out []Span
	for at := from; at.Before(to); {
		opens, isKnown := c.FindNextOpening(at)
		if !isKnown || !opens.Before(to) {
			break
		}
		closes, isSoon := c.findClosing(opens, to)
		if !isSoon || closes.After(to) {
			closes = to
		}
		out, at = append(out, Span{opens, closes}), closes
	}
	return out
}

// nextEnd returns the next time after t at which an open calendar may close; zero if there is none.
func (c *Calendar) nextEnd(t time.Time) time.Time {
	var ends []time.Time
	for _, w := range c.recurring {
		if start := w.schedule.Next(t.Add(-w.duration)); !start.IsZero() {
			ends = append(ends, start.Add(w.duration))
		}
	}
	if len(c.weekly)+len(c.blackouts) > 0 {
		start := t.Truncate(time.Minute)
		now := 60*start.Hour() + start.Minute()
		_, zoneChange := t.ZoneBounds()
		ends = append(ends, start.Add(time.Duration(dayMinutes-now)*time.Minute), zoneChange)
		for _, w := range c.weekly {
			ends = append(ends, start.Add(time.Duration(w.to-now)*time.Minute))
		}
	}
	ends = slices.DeleteFunc(ends, func(at time.Time) bool { return !at.After(t) })
	if len(ends) == 0 {
		return time.Time{}
	}
	return slices.MinFunc(ends, time.Time.Compare)
}

// isHeldSince reports whether the window that ended last holds nodes in flight. During a blackout that is a window that would be
// open. Of several that ended at the same time one is enough.
func (c *Calendar) isHeldSince(now time.Time) bool {
	now = now.In(c.zone)
	isHeld := func(e ending) bool { return e.isHeld }
	hasHeld := slices.ContainsFunc(c.weekly, func(w weeklyWindow) bool { return w.isHeld }) ||
		slices.ContainsFunc(c.recurring, func(w recurringWindow) bool { return w.isHeld })
	if !hasHeld {
		return false
	}
	if open := c.openEndings(now); len(open) > 0 {
		return slices.ContainsFunc(open, isHeld)
	}
	var last time.Time
	var ended []ending
	note := func(at time.Time, e ending) {
		switch {
		case at.IsZero() || at.Before(last):
		case at.Equal(last):
			ended = append(ended, e)
		default:
			last, ended = at, []ending{e}
		}
	}
	for _, w := range c.weekly {
		note(w.lastEnd(now), w.ending)
	}
	for _, w := range c.recurring {
		note(w.lastEnd(now), w.ending)
	}
	return slices.ContainsFunc(ended, isHeld)
}

// lastEnd returns when the window ended last before a local time at which it is closed; zero if it did not within days.
func (w weeklyWindow) lastEnd(now time.Time) time.Time {
	y, m, d := now.Date()
	for back := range maxBackDays + 1 {
		day := time.Date(y, m, d-back, 0, 0, 0, 0, now.Location())
		if !w.days[day.Weekday()] {
			continue
		}
		end := w.to
		if w.to <= w.from {
			end += dayMinutes
		}
		if at := time.Date(y, m, d-back, 0, end, 0, 0, now.Location()); !at.After(now) {
			return at
		}
	}
	return time.Time{}
}

// lastEnd returns when the window ended last before a time at which it is closed; zero if it did not within a year.
func (w recurringWindow) lastEnd(now time.Time) (last time.Time) {
	for _, days := range []int{1, 8, 32, 400} {
		start := w.schedule.Next(now.Add(-w.duration).AddDate(0, 0, -days))
		for range maxStarts {
			if start.IsZero() || start.Add(w.duration).After(now) {
				break
			}
			last = start.Add(w.duration)
			start = w.schedule.Next(start)
		}
		if !last.IsZero() {
			break
		}
	}
	return last
}
