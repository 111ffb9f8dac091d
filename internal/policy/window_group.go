// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"time"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// windowTime is how the time of a window is written in reasons.
const windowTime = "2006-01-02 15:04 MST"

// ApplyWindows freezes a group outside the windows of its policy, of which messages say what about is. Invalid windows, which FindProblems
// reports, freeze nothing.
func ApplyWindows(g *rollout.Group, w *v1alpha1.Windows, about string, now time.Time) {
	calendar, err := NewCalendar(w)
	if err == nil && calendar != nil {
		calendar.apply(g, about, now)
	}
}

func (c *Calendar) apply(g *rollout.Group, about string, now time.Time) {
	if c.IsOpen(now) {
		c.applyMargin(g, about, now)
	} else {
		c.applyClosed(g, about, now)
	}
}

// Advance changes a group to what the windows say at a later time. A group that is frozen for another reason stays so.
func (c *Calendar) Advance(g *rollout.Group, about string, now time.Time) {
	isClosed := g.Frozen != nil && g.Frozen.Reason == rollout.ReasonWindow
	isKnown := isClosed && now.Before(g.Until) || !isClosed && g.Closing != nil && now.Before(g.Closing.At)
	if isKnown {
		return
	}
	other, until := g.Frozen, g.Until
	if isClosed {
		other, until = nil, time.Time{}
	}
	g.Frozen, g.Held, g.Closing, g.Until, g.Opens = nil, nil, nil, time.Time{}, time.Time{}
	c.apply(g, about, now)
	if other != nil {
		g.Frozen, g.Until = other, until
	}
}

// applyClosed freezes a group until the next window, and holds nodes in flight if the last window says so.
func (c *Calendar) applyClosed(g *rollout.Group, about string, now time.Time) {
	frozen := &rollout.Why{Reason: rollout.ReasonWindow, About: about, Text: "every window of " + about + " is closed"}
	g.Frozen = frozen
	opens, isSoon := c.FindNextOpening(now)
	if isSoon {
		g.Until = opens.UTC()
		frozen.Text += ", the next opens " + opens.Format(windowTime)
	}
	if c.isHeldSince(now) {
		held := *frozen
		held.Text += "; the node is not cordoned before, by atEnd of the window"
		g.Held, g.Opens = &held, g.Until
	}
}

// applyMargin sets until when the windows that are open admit nodes, if all of them have a margin.
func (c *Calendar) applyMargin(g *rollout.Group, about string, now time.Time) {
	margin := c.findMargin(now)
	if margin == 0 {
		return
	}
	closes, isSoon := c.findClosing(now, now.Add(max(2*margin, 24*time.Hour))) // later ends change nothing yet, and windows of a minute have many
	if !isSoon {
		return
	}
	text := "the window of " + about + " closes " + closes.Format(windowTime)
	if opens, isKnown := c.FindNextOpening(closes); isKnown {
		g.Opens = opens.UTC()
		text += " and opens again " + opens.Format(windowTime)
	}
	g.Closing = &rollout.Closing{At: closes.UTC(), Margin: margin, About: about, Text: text}
}
