// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import "time"

// The pace of the loop. To observe and decide takes a thirtieth of a core, or a tenth where people or nodes wait: after a
// pass it rests usualShare times what the pass computed, but never more than longestRest. Whoever is in a hurry waits until
// what was computed is paid for with thinkingShare times as much, and not even that as long as less than credit is owed.
// Nothing begins sooner than shortestRest after a pass.
const (
	usualShare   = 30
	urgentShare  = 10
	shortestRest = 50 * time.Millisecond
	longestRest  = time.Second
	urgentCredit = time.Second
)

// pace is how much the loop may compute.
type pace struct{ restedAt, paidAt time.Time }

// addPass is called when a pass that began then has computed that long.
func (p *pace) addPass(began time.Time, thought time.Duration) {
	if p.paidAt.Before(began) {
		p.paidAt = began
	}
	p.paidAt = p.paidAt.Add(min(urgentShare*thought, longestRest))
	p.restedAt = began.Add(min(usualShare*thought, longestRest))
}

// nextStart is when the next pass may begin after one that ended then.
func (p *pace) nextStart(ended time.Time, hurried bool) time.Time {
	at := p.paidAt
	switch {
	case hurried:
		at = at.Add(-urgentCredit)
	case at.Before(p.restedAt):
		at = p.restedAt
	}
	if soonest := ended.Add(shortestRest); at.Before(soonest) {
		return soonest
	}
	return at
}
