// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Durations says how long things take when a snapshot is played. Everything ends well.
type Durations struct {
	Task func(rollout.Rollout, rollout.Target, rollout.Task) time.Duration // from the start of a task's object to its end
	Pod  time.Duration                                                     // from an eviction until the pod is gone
	Stop func(Step) bool                                                   // asked about each moment; true ends the play there; nil never does
}

// Step is what is done at one time.
type Step struct {
	At      time.Time
	Actions []rollout.Action
}

// Timeline is how a snapshot went on. Left says what was still waited for at the end: nothing, unless something waits
// for people, or the time was up.
type Timeline struct {
	Steps      []Step
	End        time.Time
	Final      rollout.Snapshot
	Unfinished []rollout.Report
}

// Run lets a snapshot go on until nothing is left to do, or the time is up, on a clock that jumps to whatever happens
// next. Frozen groups thaw at their Until.
func Run(s rollout.Snapshot, times Durations, limit time.Duration) Timeline {
	return newRunner(s, times).run(limit)
}

// runner knows when what is under way ends.
type runner struct {
	cluster      *Cluster
	pruner       *rollout.Pruner // nil decides about the whole truth each time
	decided      int             // targets that were decided about
	durations    Durations
	ends         map[string]time.Time // by object
	terminations map[string]time.Time // by UID of a workload
	draining     map[string]bool      // nodes that workloads are leaving
}

func newRunner(s rollout.Snapshot, times Durations) *runner {
	p := &runner{cluster: New(s), durations: times, ends: map[string]time.Time{}, terminations: map[string]time.Time{}, draining: map[string]bool{}}
	p.pruner = rollout.NewPruner(&p.cluster.State)
	for node := range p.cluster.Workloads {
		p.draining[node] = true
	}
	return p
}

func (p *runner) run(limit time.Duration) Timeline {
	var out Timeline
	until := p.cluster.State.Now.Add(limit)
	for {
		p.advance()
		v, plan := p.decide()
		enough := false
		if len(plan.Actions) > 0 {
			m := Step{At: v.Now, Actions: plan.Actions}
			out.Steps = append(out.Steps, m)
			enough = p.durations.Stop != nil && p.durations.Stop(m)
		}
		if enough {
			out.Unfinished = p.findUnfinished()
		}
		err := p.cluster.Apply(v, plan)
		for _, a := range plan.Actions {
			if a.Verb == rollout.VerbEvict {
				p.draining[a.Node] = true
			}
		}
		next := p.findNext(plan.Next)
		busy := len(plan.Actions) > 0 || HasStatusChange(v, plan)
		if enough || err != nil || !busy && (next.IsZero() || next.After(until)) {
			if !enough {
				out.Unfinished = p.findUnfinished()
			}
			out.End, out.Final = p.cluster.State.Now, Clone(p.cluster.State)
			return out
		}
		if !busy {
			p.cluster.State.Now = next
		}
	}
}

// findUnfinished are the reports of what is left at this moment, of all nodes.
func (p *runner) findUnfinished() []rollout.Report {
	return removeFinished(rollout.Decide(p.cluster.View().Snapshot))
}

// advance lets everything happen that is due.
func (p *runner) advance() {
	now := p.cluster.State.Now
	for i := range p.cluster.State.Groups {
		if g := &p.cluster.State.Groups[i]; g.Frozen != nil && !g.Until.IsZero() && !now.Before(g.Until) {
			g.Frozen = nil
		}
	}
	p.eachBusyTarget(func(r, t int) { p.advanceTarget(&p.cluster.State.Rollouts[r], t) })
	for node := range p.draining {
		p.terminatePods(node)
	}
}

// decide asks the engine what to do next. The reports of what the pruner left out are missing.
func (p *runner) decide() (View, rollout.Plan) {
	if p.pruner == nil {
		v := p.cluster.View()
		p.decided += countTargets(&v.Snapshot)
		return v, rollout.Decide(v.Snapshot)
	}
	s, plan := p.pruner.Decide(func(s *rollout.Snapshot) {
		p.cluster.addPods(s)
		p.decided += countTargets(s)
	})
	return View{Snapshot: s, revisions: p.cluster.revisions}, plan // nobody else writes meanwhile
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
func (p *runner) eachBusyTarget(do func(r, t int)) {
	if p.pruner != nil {
		p.pruner.EachTarget(do)
		return
	}
	for r := range p.cluster.State.Rollouts {
		for t := range p.cluster.State.Rollouts[r].Targets {
			do(r, t)
		}
	}
}

func (p *runner) advanceTarget(r *rollout.Rollout, target int) {
	t := &r.Targets[target]
	for k := range t.Tasks {
		p.advanceTask(r, t, &t.Tasks[k])
	}
}

// terminatePods lets the pods go that were evicted from a node.
func (p *runner) terminatePods(node string) {
	now, pods, waits := p.cluster.State.Now, p.cluster.Workloads[node], false
	for i := len(pods) - 1; i >= 0; i-- {
		if !pods[i].Leaving {
			continue
		}
		waits = true
		at, known := p.terminations[pods[i].UID]
		if !known {
			at = now.Add(p.durations.Pod)
			p.terminations[pods[i].UID] = at
		}
		if !now.Before(at) {
			delete(p.terminations, pods[i].UID)
			p.cluster.RemovePod(node, pods[i].UID)
		}
	}
	if !waits {
		delete(p.draining, node)
	}
}

// advanceTask lets the object of a task end when its time has come.
func (p *runner) advanceTask(r *rollout.Rollout, t *rollout.Target, k *rollout.Task) {
	if k.Object == "" || k.Dead || k.Leaving || k.State != rollout.StateRunning && k.State != rollout.StateFailing {
		return
	}
	at, known := p.ends[k.Object]
	if !known {
		began := k.Started
		if began.IsZero() || k.State == rollout.StateFailing {
			began = p.cluster.State.Now
		}
		at = began.Add(p.durations.Task(*r, *t, *k))
		p.ends[k.Object] = at
	}
	if !p.cluster.State.Now.Before(at) {
		delete(p.ends, k.Object)
		p.cluster.SucceedTask(t, k)
	}
}

// findNext is when something happens next; zero when nothing does.
func (p *runner) findNext(wake time.Time) time.Time {
	next := wake
	sooner := func(at time.Time) {
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	p.advance()
	now := p.cluster.State.Now
	for object, at := range p.ends {
		if !at.After(now) { // it was deleted before it ended
			delete(p.ends, object)
			continue
		}
		sooner(at)
	}
	for uid, at := range p.terminations {
		if !at.After(now) {
			delete(p.terminations, uid)
			continue
		}
		sooner(at)
	}
	return next
}

// HasStatusChange says that a plan has something to store: what a group learned, or which number comes next.
func HasStatusChange(v View, p rollout.Plan) bool {
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

// removeFinished are the reports of what is left, without the targets that are finished.
func removeFinished(p rollout.Plan) []rollout.Report {
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
