// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import "time"

// The pace of the loop. To observe and decide takes about a tenth of a core: from the beginning of a pass until it is paid
// for lies thinkingShare times what it computed, but never more than longestRest, and what follows a pass never begins
// sooner than shortestRest after it. Whoever is in a hurry need not wait for that as long as what is owed is less than credit.
const (
	thinkingShare = 10
	shortestRest  = 50 * time.Millisecond
	longestRest   = time.Second
	credit        = time.Second
)

// pace is how much the loop may compute.
type pace struct{ paid time.Time }

// spent is called when a pass that began then has computed that long.
func (p *pace) spent(began time.Time, thought time.Duration) {
	if p.paid.Before(began) {
		p.paid = began
	}
	p.paid = p.paid.Add(min(thinkingShare*thought, longestRest))
}

// next is when the next pass may begin after one that ended then.
func (p *pace) next(ended time.Time, hurried bool) time.Time {
	at := p.paid
	if hurried {
		at = at.Add(-credit)
	}
	if soonest := ended.Add(shortestRest); at.Before(soonest) {
		return soonest
	}
	return at
}
