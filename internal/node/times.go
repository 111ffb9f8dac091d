// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"
	"time"
)

// maxClockSkew is how much later than the clock a recorded time may be: another operator wrote it a moment ago.
const maxClockSkew = 10 * time.Second

// LimitTimes returns the record without times in the future, and whether it had any. Such a time was written by an operator with
// a wrong clock, or by hand: what it stands for has happened, so now takes its place.
func (r SkyhookRecord) LimitTimes(now time.Time) (out SkyhookRecord, isChanged bool) {
	if !isAnyInFuture(r.eachTime, now) {
		return r, false
	}
	out = r.Clone()
	out.At, out.FinishedAt, out.Proving = copied(r.At), copied(r.FinishedAt), copied(r.Proving)
	for _, p := range out.Packages {
		p.FailedAt, p.Since, p.Done = copied(p.FailedAt), copied(p.Since), slices.Clone(p.Done)
	}
	out.eachTime(limitTo(now))
	return out, true
}

// LimitTimes is like SkyhookRecord.LimitTimes.
func (r OpRecord) LimitTimes(now time.Time) (out OpRecord, isChanged bool) {
	if !isAnyInFuture(r.eachTime, now) {
		return r, false
	}
	out = r.Clone()
	out.eachTime(limitTo(now))
	return out, true
}

func isInFuture(at, now time.Time) bool { return at.After(now.Add(maxClockSkew)) }

func isAnyInFuture(each func(func(*time.Time)), now time.Time) (found bool) {
	each(func(at *time.Time) { found = found || isInFuture(*at, now) })
	return found
}

func limitTo(now time.Time) func(*time.Time) {
	return func(at *time.Time) {
		if isInFuture(*at, now) {
			*at = WholeSeconds(now)
		}
	}
}

// eachTime calls a function with every time of the record.
func (r SkyhookRecord) eachTime(do func(*time.Time)) {
	note := func(at *time.Time) {
		if at != nil {
			do(at)
		}
	}
	note(r.At)
	note(r.FinishedAt)
	note(r.Proving)
	if r.Held != nil {
		do(&r.Held.At)
	}
	for key, answer := range r.Preflight {
		before := answer.At
		if do(&answer.At); !answer.At.Equal(before) {
			r.Preflight[key] = answer
		}
	}
	for _, p := range r.Packages {
		note(p.FailedAt)
		note(p.Since)
		for i := range p.Done {
			do(&p.Done[i].At)
		}
	}
}

// eachTime calls a function with every time of the record.
func (r OpRecord) eachTime(do func(*time.Time)) {
	for _, s := range []*Step{r.Preflight, r.Command, r.Reboot} {
		if s != nil {
			do(&s.At)
		}
	}
	for _, at := range []*time.Time{r.At, r.Proving} {
		if at != nil {
			do(at)
		}
	}
	if r.Held != nil {
		do(&r.Held.At)
	}
	if r.Result != nil {
		do(&r.Result.At)
	}
}
