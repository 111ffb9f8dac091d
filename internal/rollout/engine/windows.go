// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine

import "github.com/skyhook-k8s/skyhook/internal/rollout"

// checkClosing stops candidates within the margin before the window closes.
func checkClosing(t *targetState) *rollout.Why {
	g := t.group
	if g.Closing == nil || !g.now.Add(g.Closing.Margin).After(g.Closing.At) {
		return nil
	}
	g.closing = groupReasons{g}.closing()
	return g.closing
}

// forgetWindow forgets what holds until the next window when that is open.
func (g *groupState) forgetWindow() {
	if !g.Opens.IsZero() && !g.now.Before(g.Opens) {
		g.Held, g.Closing = nil, nil
	}
}

// checkHeld stops an admitted target from cordoning its node before the next window. It keeps its slot: stages may have run there,
// and its batch is open.
func (d drainer) checkHeld() *rollout.Why {
	g := d.target.group
	if g.Held == nil {
		return nil
	}
	d.plan.requestNext(g.Opens)
	why := rollout.WithDefaultReason(g.Held, rollout.ReasonWindow)
	return &why
}
