// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"slices"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/rollout/engine"
)

// Durations defines how long everything takes in a run. Every task succeeds.
type Durations struct {
	Task func(rollout.Rollout, rollout.Target, rollout.Task) time.Duration // from the creation of a task's object to its success
	Pod  time.Duration                                                     // from an eviction until the pod is gone
	Stop func(Step) bool                                                   // called after each step; true ends the run; nil never does
	Keep func(*rollout.Action) bool                                        // which actions the timeline has; nil keeps all
	// changes a group to what its windows say at a time, and reports whether it has windows; nil: what is closed opens at Group.Until
	Windows func(*rollout.Group, time.Time) bool
}

// usualPod is how long an evicted pod takes when nothing is recorded.
const usualPod = 30 * time.Second

// Recorded returns the durations that nodes recorded. The first tasks of a visit end as if its rest came before them.
func Recorded(times rollout.Times) Durations {
	out := Durations{Pod: usualPod, Task: func(r rollout.Rollout, t rollout.Target, k rollout.Task) time.Duration {
		took, began := times.Task(&r, k.ID).Of(t.Visit.Order), k.Attempts.Started
		if began.IsZero() || t.Visit.AdmittedAt.IsZero() {
			return took
		}
		return took + max(0, t.Visit.AdmittedAt.Add(times.Rest(&r).Of(t.Visit.Order)).Sub(began))
	}}
	if rest := times.Rest(&rollout.Rollout{}); rest.Basis != rollout.BasisAssumed {
		out.Pod = min(usualPod, rest.Median())
	}
	return out
}

// Step has the actions at one time.
type Step struct {
	At      time.Time
	Actions []rollout.Action
}

// Timeline is the result of a run. Unfinished has what was still waited for at the end: nothing, unless something waits
// for people, or the time limit was reached.
type Timeline struct {
	Steps      []Step
	End        time.Time
	Final      rollout.Snapshot
	Unfinished []rollout.Report
}

// Run runs a snapshot until no work is left or the time limit is reached, on a clock that advances to the next event.
// Frozen groups continue at their Until, unless their windows say more.
func Run(s rollout.Snapshot, durations Durations, limit time.Duration) Timeline {
	return newRunner(s, durations).run(limit)
}

// runner knows when running tasks and evicted pods end.
type runner struct {
	cluster      *Cluster
	pruner       *engine.Pruner // nil decides about all targets each time
	decided      int            // targets that were evaluated so far
	durations    Durations
	ends         map[string]time.Time // by object
	terminations map[string]time.Time // by UID of an evicted pod
	draining     map[string]bool      // nodes with evicted pods
}

func newRunner(s rollout.Snapshot, durations Durations) *runner {
	r := &runner{
		cluster:      New(s),
		durations:    durations,
		ends:         map[string]time.Time{},
		terminations: map[string]time.Time{},
		draining:     map[string]bool{},
	}
	isProtected := hasProtectedPod(r.cluster.Workloads)
	for i := range r.cluster.State.Rollouts {
		of := &r.cluster.State.Rollouts[i]
		simplifyChecks(of)
		simplifyPulls(of)
		of.Drain.WaitFirst = of.Drain.WaitFirst && isProtected // otherwise nothing is waited for, and targets can be left out
	}
	r.pruner = engine.NewPruner(&r.cluster.State)
	for node := range r.cluster.Workloads {
		r.draining[node] = true
	}
	return r
}

func hasProtectedPod(workloads map[string][]rollout.Pod) bool {
	for _, pods := range workloads {
		if slices.ContainsFunc(pods, func(p rollout.Pod) bool { return p.Wait }) {
			return true
		}
	}
	return false
}

func (r *runner) run(limit time.Duration) Timeline {
	var out Timeline
	until := r.cluster.State.Now.Add(limit)
	for {
		r.advance()
		v, plan := r.decide()
		isStopped := out.addStep(v.Now, plan, r.durations)
		if isStopped {
			out.Unfinished = r.findUnfinished()
		}
		err := r.apply(v, plan)
		next := r.findNext(plan.Next)
		isBusy := len(plan.Actions) > 0 || HasStatusChange(v, plan)
		isIdle := !isBusy && (next.IsZero() || next.After(until))
		if isStopped || isIdle || err != nil {
			if !isStopped {
				out.Unfinished = r.findUnfinished()
			}
			out.End, out.Final = r.cluster.State.Now, r.cluster.State
			return out
		}
		if !isBusy {
			r.cluster.State.Now = next
		}
	}
}

// addStep adds the actions of a plan and reports whether the run ends with them.
func (t *Timeline) addStep(at time.Time, plan rollout.Plan, durations Durations) bool {
	if len(plan.Actions) == 0 {
		return false
	}
	step := Step{At: at, Actions: plan.Actions}
	kept := step
	if durations.Keep != nil {
		kept.Actions = nil // in an array of its own, so that the plan's can be freed
		for i := range plan.Actions {
			if durations.Keep(&plan.Actions[i]) {
				kept.Actions = append(kept.Actions, plan.Actions[i])
			}
		}
	}
	t.Steps = append(t.Steps, kept)
	return durations.Stop != nil && durations.Stop(step)
}

func (r *runner) apply(v View, plan rollout.Plan) error {
	err := r.cluster.Apply(v, plan)
	for i := range plan.Actions {
		switch a := &plan.Actions[i]; a.Verb {
		case rollout.VerbEvict:
			r.draining[a.Node] = true
		case rollout.VerbRun:
			r.endExclusion(a)
		}
	}
	return err
}

// endExclusion lets the tasks start that wait for one that was started: what it has to find out takes no time here.
func (r *runner) endExclusion(a *rollout.Action) {
	t := r.cluster.FindTarget(a.Rollout, a.Node)
	if t == nil {
		return
	}
	started := FindTask(t, a.Task)
	if started == nil || started.Exclusive == "" {
		return
	}
	key, of := started.Exclusive, r.cluster.FindRollout(a.Rollout)
	for i := range of.Targets {
		for j := range of.Targets[i].Tasks {
			if k := &of.Targets[i].Tasks[j]; k.Exclusive == key {
				k.Exclusive, k.ExclusiveUntil = "", time.Time{}
			}
		}
	}
}

// findUnfinished returns the verdicts of all targets that are not finished now.
func (r *runner) findUnfinished() []rollout.Report {
	var out []rollout.Report
	for _, report := range engine.Decide(r.cluster.View().Snapshot).Reports {
		report.Verdicts = slices.DeleteFunc(report.Verdicts, func(v rollout.Verdict) bool {
			return v.Phase == rollout.PhaseFinished
		})
		if len(report.Verdicts) > 0 {
			out = append(out, report)
		}
	}
	return out
}

// advance lets everything end that is due.
func (r *runner) advance() {
	state := &r.cluster.State
	for i := range state.Groups {
		g := &state.Groups[i]
		if r.durations.Windows != nil && r.durations.Windows(g, state.Now) {
			continue
		}
		isTimed := g.Frozen != nil && !g.Until.IsZero()
		if isTimed && !state.Now.Before(g.Until) {
			g.Frozen, g.Held = nil, nil
		}
	}
	r.eachBusyTarget(func(of, target int) {
		t := state.Rollouts[of].Targets[target]
		endPull(t)
		releaseDeleted(t)
		for k := range t.Tasks {
			r.advanceTask(&state.Rollouts[of], t, &t.Tasks[k])
		}
	})
	for node := range r.draining {
		r.terminatePods(node)
	}
}

// decide returns the next plan. With a pruner it has no reports of the targets that were left out.
func (r *runner) decide() (View, rollout.Plan) {
	if r.pruner == nil {
		v := r.cluster.View()
		r.decided += countTargets(&v.Snapshot)
		return v, engine.Decide(v.Snapshot)
	}
	s, plan := r.pruner.Decide(func(s *rollout.Snapshot) {
		r.cluster.addPods(s)
		r.decided += countTargets(s)
	})
	return View{Snapshot: s, revisions: r.cluster.revisions}, plan // there are no other writers
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
func (r *runner) eachBusyTarget(do func(of, target int)) {
	if r.pruner != nil {
		r.pruner.EachTarget(do)
		return
	}
	for i := range r.cluster.State.Rollouts {
		for j := range r.cluster.State.Rollouts[i].Targets {
			do(i, j)
		}
	}
}

// terminatePods removes the pods that were evicted from a node and whose time is over.
func (r *runner) terminatePods(node string) {
	now := r.cluster.State.Now
	isDraining := false
	for _, pod := range slices.Clone(r.cluster.Workloads[node]) {
		if !pod.Leaving {
			continue
		}
		isDraining = true
		if !now.Before(dueAt(r.terminations, pod.UID, now.Add(r.durations.Pod))) {
			delete(r.terminations, pod.UID)
			r.cluster.RemovePod(node, pod.UID)
		}
	}
	if !isDraining {
		delete(r.draining, node)
	}
}

// releaseDeleted lets objects go that are being deleted. One that has succeeded stays until that is recorded.
func releaseDeleted(t *rollout.Target) {
	t.Objects.Going, t.Objects.Ended = nil, nil
	for i := range t.Tasks {
		if k := &t.Tasks[i]; k.Object.Leaving && k.State != rollout.StateSucceeded {
			RemoveObject(k)
		}
	}
}

// advanceTask lets the object of a task succeed if its time is over.
func (r *runner) advanceTask(of *rollout.Rollout, t *rollout.Target, k *rollout.Task) {
	isRunning := k.State == rollout.StateRunning || k.State == rollout.StateFailing
	hasObject := k.Object.Name != "" && !k.Object.Dead && !k.Object.Leaving && !k.Object.Queued
	if !isRunning || !hasObject {
		return
	}
	now := r.cluster.State.Now
	end, isKnown := r.ends[k.Object.Name]
	if !isKnown {
		began := k.Attempts.Started
		if began.IsZero() || k.State == rollout.StateFailing {
			began = now
		}
		end = began.Add(r.durations.Task(*of, *t, *k))
		r.ends[k.Object.Name] = end
	}
	if !now.Before(end) {
		delete(r.ends, k.Object.Name)
		r.cluster.SucceedTask(t, k)
	}
}

// dueAt returns the time that is stored for a key, or stores this one.
func dueAt(times map[string]time.Time, key string, otherwise time.Time) time.Time {
	at, isKnown := times[key]
	if !isKnown {
		at = otherwise
		times[key] = at
	}
	return at
}

// findNext returns the time of the next event; zero if there is none.
func (r *runner) findNext(next time.Time) time.Time {
	r.advance()
	next = r.firstOf(r.ends, next)
	return r.firstOf(r.terminations, next)
}

// firstOf returns the first of these times, or next if that is earlier. Past times belong to objects that were deleted
// before they ended, and are removed.
func (r *runner) firstOf(times map[string]time.Time, next time.Time) time.Time {
	for key, at := range times {
		isPast := !at.After(r.cluster.State.Now)
		if isPast {
			delete(times, key)
			continue
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return next
}

// HasStatusChange reports whether the next pass sees something else: the memory of a group, the next order of a rollout, or
// pods that the plan asks for.
func HasStatusChange(v View, p rollout.Plan) bool {
	for i := range p.Groups {
		if p.Groups[i].Memory != v.Groups[i].Memory {
			return true
		}
	}
	if hasNewLook(&v.Snapshot, p.Look) {
		return true
	}
	for i := range p.Reports {
		r := &v.Rollouts[i]
		if r.Numbering.Stored && r.Numbering.Next != p.Reports[i].NextOrder {
			return true
		}
	}
	return false
}

// hasNewLook reports whether pods of one of these nodes are not listed yet.
func hasNewLook(s *rollout.Snapshot, nodes []string) bool {
	if len(nodes) == 0 {
		return false
	}
	listed := map[string]bool{}
	eachTarget(s, func(_ *rollout.Rollout, t *rollout.Target) { listed[t.Node] = listed[t.Node] || t.Drain.PodsSeen })
	return slices.ContainsFunc(nodes, func(node string) bool { return !listed[node] })
}
