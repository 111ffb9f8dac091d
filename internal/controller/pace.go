// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import "time"

// The pace of the loop. Observing and deciding takes a thirtieth of a core, or a tenth where users or nodes wait: after a
// pass the loop rests usualShare times its CPU time, but at most longestRest. An urgent pass waits only urgentShare times the
// CPU time of the passes before it, less urgentCredit. No pass begins sooner than shortestRest after the one before. With more than
// fewNodes in progress it is restPerNode for each further one, but at most longestNodeRest: the more there are, the more a pass does for
// them, and the more of it is the same as in the pass before.
const (
	usualShare   = 30
	urgentShare  = 10
	shortestRest = 50 * time.Millisecond
	longestRest  = time.Second
	urgentCredit = time.Second

	fewNodes        = 25
	restPerNode     = 2 * time.Millisecond
	longestNodeRest = 2 * time.Second
)

// pace decides when the next pass may begin.
type pace struct {
	restedAt time.Time     // a usual pass may begin
	paidAt   time.Time     // an urgent pass may begin, before its credit
	rest     time.Duration // that any pass waits for
}

// passCost is what a pass took to observe and decide.
type passCost struct {
	cpuTime  time.Duration
	inFlight int // nodes that it found in progress
}

// addPass adds a pass that began at a time.
func (p *pace) addPass(began time.Time, cost passCost) {
	if p.paidAt.Before(began) {
		p.paidAt = began
	}
	p.paidAt = p.paidAt.Add(min(urgentShare*cost.cpuTime, longestRest))
	p.restedAt = began.Add(min(usualShare*cost.cpuTime, longestRest))
	p.rest = min(max(shortestRest, time.Duration(cost.inFlight-fewNodes)*restPerNode), longestNodeRest)
}

// nextStart is when the next pass may begin after one that ended at a time.
func (p *pace) nextStart(ended time.Time, urgent bool) time.Time {
	at := p.paidAt
	switch {
	case urgent:
		at = at.Add(-urgentCredit)
	case at.Before(p.restedAt):
		at = p.restedAt
	}
	if soonest := ended.Add(p.rest); at.Before(soonest) {
		return soonest
	}
	return at
}
