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
	w        *World
	pruner   *rollout.Pruner // nil decides about the whole truth each time
	decided  int             // targets that were decided about
	times    Times
	ends     map[string]time.Time // by object
	gone     map[string]time.Time // by UID of a workload
	draining map[string]bool      // nodes that workloads are leaving
}

func newPlayer(s rollout.Snapshot, times Times) *player {
	p := &player{w: New(s), times: times, ends: map[string]time.Time{}, gone: map[string]time.Time{}, draining: map[string]bool{}}
	p.pruner = rollout.NewPruner(&p.w.Truth)
	for node := range p.w.Workloads {
		p.draining[node] = true
	}
	return p
}

func (p *player) play(limit time.Duration) Timeline {
	var out Timeline
	until := p.w.Truth.Now.Add(limit)
	for {
		p.happen()
		v, plan := p.decide()
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
		for _, a := range plan.Actions {
			if a.Verb == rollout.VerbEvict {
				p.draining[a.Node] = true
			}
		}
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
	p.eachBusyTarget(func(r, t int) { p.workOn(&p.w.Truth.Rollouts[r], t) })
	for node := range p.draining {
		p.leave(node)
	}
}

// decide asks the engine what to do next. The reports of what the pruner left out are missing.
func (p *player) decide() (View, rollout.Plan) {
	if p.pruner == nil {
		v := p.w.View()
		p.decided += countTargets(&v.Snapshot)
		return v, rollout.Decide(v.Snapshot)
	}
	s, plan := p.pruner.Decide(func(s *rollout.Snapshot) {
		p.w.addPods(s)
		p.decided += countTargets(s)
	})
	return View{Snapshot: s, rev: p.w.rev}, plan // nobody else writes meanwhile
}

func countTargets(s *rollout.Snapshot) int {
	n := 0
	for i := range s.Rollouts {
		n += len(s.Rollouts[i].Targets)
	}
	return n
}

// eachBusyTarget calls do with the rollout and the target, by index, of all targets for which something is under way,
// and perhaps of others.
func (p *player) eachBusyTarget(do func(r, t int)) {
	if p.pruner != nil {
		p.pruner.EachTarget(do)
		return
	}
	for r := range p.w.Truth.Rollouts {
		for t := range p.w.Truth.Rollouts[r].Targets {
			do(r, t)
		}
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
	now, pods, waits := p.w.Truth.Now, p.w.Workloads[node], false
	for i := len(pods) - 1; i >= 0; i-- {
		if !pods[i].Leaving {
			continue
		}
		waits = true
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
	if !waits {
		delete(p.draining, node)
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
