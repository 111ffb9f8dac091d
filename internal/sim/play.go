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
	return newPlayer(s, times).play(limit)
}

// player knows when what is under way ends.
type player struct {
	w     *World
	field *field
	times Times
	ends  map[string]time.Time // by object
	gone  map[string]time.Time // by UID of a workload
}

func newPlayer(s rollout.Snapshot, times Times) *player {
	w := New(s)
	return &player{w: w, field: newField(w), times: times, ends: map[string]time.Time{}, gone: map[string]time.Time{}}
}

func (p *player) play(limit time.Duration) Timeline {
	var out Timeline
	until := p.w.Truth.Now.Add(limit)
	for {
		p.happen()
		v, plan := p.field.decide()
		enough := false
		if len(plan.Actions) > 0 {
			m := Moment{At: v.Now, Actions: plan.Actions}
			out.Moments = append(out.Moments, m)
			enough = p.times.Enough != nil && p.times.Enough(m)
		}
		if enough {
			out.Left = p.left()
		}
		err := p.w.Apply(v, plan)
		p.field.stir(plan.Actions)
		next := p.next(plan.Next)
		busy := len(plan.Actions) > 0 || Learned(v, plan)
		if enough || err != nil || !busy && (next.IsZero() || next.After(until)) {
			if !enough {
				out.Left = p.left()
			}
			out.End, out.Final = p.w.Truth.Now, Clone(p.w.Truth)
			return out
		}
		if !busy {
			p.w.Truth.Now = next
		}
	}
}

// left are the reports of what is left at this moment, of all nodes.
func (p *player) left() []rollout.Report { return unfinished(rollout.Decide(p.w.View().Snapshot)) }

// happen lets everything happen that is due.
func (p *player) happen() {
	now := p.w.Truth.Now
	for i := range p.w.Truth.Groups {
		if g := &p.w.Truth.Groups[i]; g.Frozen != nil && !g.Until.IsZero() && !now.Before(g.Until) {
			g.Frozen = nil
		}
	}
	if p.field.whole {
		p.happenEverywhere()
		return
	}
	for _, at := range p.field.lively {
		for _, post := range p.field.spots[at].posts {
			p.workOn(&p.w.Truth.Rollouts[post.rollout], post.target)
		}
		p.leave(p.w.Truth.Nodes[at].Name)
	}
}

func (p *player) happenEverywhere() {
	for i := range p.w.Truth.Rollouts {
		for j := range p.w.Truth.Rollouts[i].Targets {
			p.workOn(&p.w.Truth.Rollouts[i], j)
		}
	}
	for node := range p.w.Workloads {
		p.leave(node)
	}
}

func (p *player) workOn(r *rollout.Rollout, target int) {
	t := &r.Targets[target]
	for k := range t.Tasks {
		p.work(r, t, &t.Tasks[k])
	}
}

// leave lets the pods go that were evicted from a node.
func (p *player) leave(node string) {
	now, pods := p.w.Truth.Now, p.w.Workloads[node]
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

// work lets the object of a task end when its time has come.
func (p *player) work(r *rollout.Rollout, t *rollout.Target, k *rollout.Task) {
	if k.Object == "" || k.Dead || k.Leaving || k.State != rollout.StateRunning && k.State != rollout.StateFailing {
		return
	}
	at, known := p.ends[k.Object]
	if !known {
		began := k.Started
		if began.IsZero() || k.State == rollout.StateFailing {
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
			if v.Phase != rollout.PhaseFinished {
				left = append(left, v)
			}
		}
		if r.Verdicts = left; len(left) > 0 {
			out = append(out, r)
		}
	}
	return out
}
