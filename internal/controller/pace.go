// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import "time"

// The pace of the loop. To observe and decide takes a thirtieth of a core, or a tenth where people or nodes wait: after a
// pass it rests usualShare times what the pass computed, but never more than longestRest. Whoever is in a hurry waits until
// what was computed is paid for with thinkingShare times as much, and not even that as long as less than credit is owed.
// Nothing begins sooner than shortestRest after a pass.
const (
	usualShare    = 30
	thinkingShare = 10
	shortestRest  = 50 * time.Millisecond
	longestRest   = time.Second
	credit        = time.Second
)

// pace is how much the loop may compute.
type pace struct{ rested, paid time.Time }

// spent is called when a pass that began then has computed that long.
func (p *pace) spent(began time.Time, thought time.Duration) {
	if p.paid.Before(began) {
		p.paid = began
	}
	p.paid = p.paid.Add(min(thinkingShare*thought, longestRest))
	p.rested = began.Add(min(usualShare*thought, longestRest))
}

// next is when the next pass may begin after one that ended then.
func (p *pace) next(ended time.Time, hurried bool) time.Time {
	at := p.paid
	switch {
	case hurried:
		at = at.Add(-credit)
	case at.Before(p.rested):
		at = p.rested
	}
	if soonest := ended.Add(shortestRest); at.Before(soonest) {
		return soonest
	}
	return at
}
