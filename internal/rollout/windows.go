// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"slices"
	"time"
)

// FindUsual returns how long visits of a rollout usually take: nine of ten finished targets took at most as long. It is 0 without
// any.
func FindUsual(targets []*Target) time.Duration {
	var visits []time.Duration
	for _, t := range targets {
		hasWork := slices.ContainsFunc(t.Tasks, func(k Task) bool { return k.State != StateDone })
		if isFinished := !t.Visit.Admitted && !t.Leaving && !hasWork; isFinished && t.Visit.Took > 0 {
			visits = append(visits, t.Visit.Took)
		}
	}
	if len(visits) == 0 {
		return 0
	}
	slices.Sort(visits)
	return visits[(9*len(visits)-1)/10]
}

// margin returns how long before the end of the window no target of a rollout is admitted any more.
func (c *Closing) margin(r *rolloutState) time.Duration {
	switch {
	case !c.Learnt, r.Usual == 0 && c.Margin > 0:
		return c.Margin
	case c.Margin == 0:
		return r.Usual
	}
	return min(c.Margin, r.Usual)
}

// checkClosing stops candidates that usually would not end before the window closes.
func checkClosing(t *targetState) *Why {
	g := t.group
	if g.Closing == nil {
		return nil
	}
	margin := g.Closing.margin(t.rollout)
	if margin == 0 || !g.now.Add(margin).After(g.Closing.At) {
		return nil
	}
	g.closing = groupReasons{g}.closing(t.rollout, margin)
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
func (d drainer) checkHeld() *Why {
	g := d.target.group
	if g.Held == nil {
		return nil
	}
	d.plan.requestNext(g.Opens)
	why := withDefaultReason(g.Held, ReasonWindow)
	return &why
}
