// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"time"
)

const (
	maxMargin = 168 * time.Hour // as the API allows
	maxStarts = 3000            // of a schedule that are looked at
)

// findMargin returns the smallest margin of the windows that are open; 0 if one of them has none.
func (c *Calendar) findMargin(now time.Time) time.Duration {
	margin := maxMargin
	for _, w := range c.openWindows(now.In(c.zone)) {
		margin = min(margin, w.margin)
	}
	return margin
}

// openWindows returns the windows that are open at a local time, blackouts aside.
func (c *Calendar) openWindows(now time.Time) (out []window) {
	for _, w := range c.windows {
		if w.isOpen(now) {
			out = append(out, w)
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
	for _, w := range c.windows {
		if start := w.schedule.Next(t.Add(-w.duration)); !start.IsZero() {
			ends = append(ends, start.Add(w.duration))
		}
	}
	if len(c.blackouts) > 0 {
		ends = append(ends, changesOfDay(t)...)
	}
	return firstAfter(t, ends)
}

// isHeldSince reports whether the window that ended last holds nodes in flight. During a blackout that is a window that would be
// open. Of several that ended at the same time one is enough.
func (c *Calendar) isHeldSince(now time.Time) bool {
	now = now.In(c.zone)
	isHeld := func(w window) bool { return w.isHeld }
	if !slices.ContainsFunc(c.windows, isHeld) {
		return false
	}
	if open := c.openWindows(now); len(open) > 0 {
		return slices.ContainsFunc(open, isHeld)
	}
	var last time.Time
	var ended []window
	for _, w := range c.windows {
		switch at := w.lastEnd(now); {
		case at.IsZero() || at.Before(last):
		case at.Equal(last):
			ended = append(ended, w)
		default:
			last, ended = at, []window{w}
		}
	}
	return slices.ContainsFunc(ended, isHeld)
}

// lastEnd returns when the window ended last before a time at which it is closed; zero if it did not within a year.
func (w window) lastEnd(now time.Time) (last time.Time) {
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
