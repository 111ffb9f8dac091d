// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Times says how long things take when a snapshot is played. Everything ends well.
type Times struct {
	Task   func(rollout.Rollout, rollout.Target, rollout.Task) time.Duration // from the start of a task's object to its end
	Pod    time.Duration                                                     // from an eviction until the pod is gone
	Enough func(Moment) bool                                                 // asked about each moment; true ends the play there; nil never does
}

// Moment is what is done at one time.
type Moment struct {
	At      time.Time
	Actions []rollout.Action
}

// Timeline is how a snapshot went on. Left says what was still waited for at the end: nothing, unless something waits
// for people, or the time was up.
type Timeline struct {
	Moments []Moment
	End     time.Time
	Final   rollout.Snapshot
	Left    []rollout.Report
}

// Play lets a snapshot go on until nothing is left to do, or the time is up, on a clock that jumps to whatever happens
// next. Frozen groups thaw at their Until.
func Play(s rollout.Snapshot, times Times, limit time.Duration) Timeline {
	p := player{w: New(s), times: times, ends: map[string]time.Time{}, gone: map[string]time.Time{}}
	var out Timeline
	until := s.Now.Add(limit)
	for {
		p.happen()
		v := p.w.View()
		plan := rollout.Decide(v.Snapshot)
		if len(plan.Actions) > 0 {
			out.Moments = append(out.Moments, Moment{At: v.Now, Actions: plan.Actions})
		}
		err := p.w.Apply(v, plan)
		if err == nil && len(plan.Actions) > 0 && times.Enough != nil && times.Enough(out.Moments[len(out.Moments)-1]) {
			out.End, out.Final, out.Left = p.w.Truth.Now, Clone(p.w.Truth), unfinished(plan)
			return out
		}
		next := p.next(plan.Next)
		busy := len(plan.Actions) > 0 || Learned(v, plan)
		if err != nil || !busy && (next.IsZero() || next.After(until)) {
			out.End, out.Final, out.Left = p.w.Truth.Now, Clone(p.w.Truth), unfinished(plan)
			return out
		}
		if !busy {
			p.w.Truth.Now = next
		}
	}
}

// player knows when what is under way ends.
type player struct {
	w     *World
	times Times
	ends  map[string]time.Time // by object
	gone  map[string]time.Time // by UID of a workload
}

// happen lets everything happen that is due.
func (p *player) happen() {
	now := p.w.Truth.Now
	for i := range p.w.Truth.Groups {
		if g := &p.w.Truth.Groups[i]; g.Frozen != nil && !g.Until.IsZero() && !now.Before(g.Until) {
			g.Frozen = nil
		}
	}
	for i := range p.w.Truth.Rollouts {
		r := &p.w.Truth.Rollouts[i]
		for j := range r.Targets {
			for k := range r.Targets[j].Tasks {
				p.work(r, &r.Targets[j], &r.Targets[j].Tasks[k])
			}
		}
	}
	for node, pods := range p.w.Workloads {
		for i := len(pods) - 1; i >= 0; i-- {
			if !pods[i].Leaving {
				continue
			}
			at, known := p.gone[pods[i].UID]
			if !known {
				at = now.Add(p.times.Pod)
				p.gone[pods[i].UID] = at
			}
			if !now.Before(at) {
				delete(p.gone, pods[i].UID)
				p.w.Gone(node, pods[i].UID)
			}
		}
	}
}

// work lets the object of a task end when its time has come.
func (p *player) work(r *rollout.Rollout, t *rollout.Target, k *rollout.Task) {
	if k.Object == "" || k.Dead || k.Leaving || k.State != rollout.Running && k.State != rollout.Failing {
		return
	}
	at, known := p.ends[k.Object]
	if !known {
		began := k.Started
		if began.IsZero() || k.State == rollout.Failing {
			began = p.w.Truth.Now
		}
		at = began.Add(p.times.Task(*r, *t, *k))
		p.ends[k.Object] = at
	}
	if !p.w.Truth.Now.Before(at) {
		delete(p.ends, k.Object)
		p.w.End(t, k)
	}
}

// next is when something happens next; zero when nothing does.
func (p *player) next(wake time.Time) time.Time {
	next := wake
	sooner := func(at time.Time) {
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	p.happen()
	now := p.w.Truth.Now
	for object, at := range p.ends {
		if !at.After(now) { // it was deleted before it ended
			delete(p.ends, object)
			continue
		}
		sooner(at)
	}
	for uid, at := range p.gone {
		if !at.After(now) {
			delete(p.gone, uid)
			continue
		}
		sooner(at)
	}
	return next
}

// Learned says that a plan has something to store: what a group learned, or which number comes next.
func Learned(v View, p rollout.Plan) bool {
	for i := range p.Groups {
		if p.Groups[i].Memory != v.Groups[i].Memory {
			return true
		}
	}
	for i := range p.Reports {
		if v.Rollouts[i].Numbered && p.Reports[i].NextOrder != v.Rollouts[i].NextOrder {
			return true
		}
	}
	return false
}

// unfinished are the reports of what is left, without the targets that are finished.
func unfinished(p rollout.Plan) []rollout.Report {
	var out []rollout.Report
	for _, r := range p.Reports {
		var left []rollout.Verdict
		for _, v := range r.Verdicts {
			if v.Phase != rollout.Finished {
				left = append(left, v)
			}
		}
		if r.Verdicts = left; len(left) > 0 {
			out = append(out, r)
		}
	}
	return out
}
