// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"math/rand"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/rollout/engine"
	"github.com/skyhook-k8s/skyhook/internal/sim"
)

// decide returns the plan for a snapshot and checks it: it does not depend on the order of the input, the snapshot is
// unchanged, and everything has a reason.
func (s *faultTest) decide(snap rollout.Snapshot) rollout.Plan {
	s.last = snap
	s.decisions++
	before := snap
	if s.decisions%4 == 0 {
		before = sim.Clone(snap)
	}
	plan := engine.Decide(snap)
	s.checkReasons(plan)
	s.checkDriftLimit(snap, plan)
	s.checkPullLimit(snap, plan)
	s.checkBatchEnd(snap, plan)
	if !plan.Next.IsZero() && !plan.Next.After(snap.Now) {
		s.failf("the next pass is in the past: %s", plan.Next)
	}
	if plan.Next.Sub(snap.Now) > longestWait {
		s.failf("the next pass is at %s", plan.Next)
	}
	if s.decisions%4 == 0 {
		if !reflect.DeepEqual(snap, before) {
			s.failf("Decide changed the snapshot")
		}
		again := engine.Decide(shuffleSnapshot(s.random, before))
		if one, two := sortPlan(plan), sortPlan(again); !reflect.DeepEqual(one, two) {
			s.failf("the plan depends on the order of the input:\n%+v\n%+v", one, two)
		}
		s.checkDriftChangesNothing(before, plan)
	}
	return plan
}

func (s *faultTest) checkReasons(plan rollout.Plan) {
	check := func(what string, why rollout.Why) {
		if why.Reason == "" || why.Text == "" || strings.HasSuffix(why.Text, ".") || len(why.Text) > 400 {
			s.failf("%s has the reason %q, %q", what, why.Reason, why.Text)
		}
	}
	for _, r := range plan.Reports {
		for _, v := range r.Verdicts {
			check("the verdict on "+v.Node, v.Why)
			if v.Phase == "" || v.Node == "" {
				s.failf("a verdict without node or phase: %+v", v)
			}
		}
	}
	for _, a := range plan.Actions {
		check(string(a.Verb)+" on "+a.Node, a.Why)
	}
}

func shuffleSnapshot(r *rand.Rand, s rollout.Snapshot) rollout.Snapshot {
	shuffleList(r, s.Nodes)
	shuffleList(r, s.Groups)
	shuffleList(r, s.Ledgers)
	shuffleList(r, s.Rollouts)
	for i := range s.Nodes {
		shuffleList(r, s.Nodes[i].Holds)
	}
	for i := range s.Groups {
		shuffleList(r, s.Groups[i].Taken)
	}
	for i := range s.Rollouts {
		shuffleList(r, s.Rollouts[i].Targets)
		for j := range s.Rollouts[i].Targets {
			shuffleList(r, s.Rollouts[i].Targets[j].Drain.Pods)
		}
	}
	return s
}

func shuffleList[T any](r *rand.Rand, list []T) {
	r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
}

// sortPlan sorts the parts of a plan whose order is that of the input.
func sortPlan(p rollout.Plan) rollout.Plan {
	slices.SortStableFunc(p.Actions, func(a, b rollout.Action) int { return strings.Compare(a.Node, b.Node) })
	p.Reports = slices.Clone(p.Reports)
	slices.SortFunc(p.Reports, func(a, b rollout.Report) int { return a.Rollout.Compare(b.Rollout) })
	for i := range p.Reports {
		p.Reports[i].Verdicts = slices.Clone(p.Reports[i].Verdicts)
		slices.SortFunc(p.Reports[i].Verdicts, func(a, b rollout.Verdict) int { return strings.Compare(a.Node, b.Node) })
	}
	p.Groups = slices.Clone(p.Groups)
	slices.SortFunc(p.Groups, func(a, b rollout.GroupReport) int { return a.Group.Compare(b.Group) })
	p.Ledgers = slices.Clone(p.Ledgers)
	for i := range p.Ledgers {
		p.Ledgers[i].Admitting = slices.Clone(p.Ledgers[i].Admitting)
		slices.SortFunc(p.Ledgers[i].Admitting, func(a, b rollout.Reservation) int {
			return strings.Compare(a.Rollout.String()+a.Node, b.Rollout.String()+b.Node)
		})
	}
	return p
}

// runWithoutFaults removes all faults and checks that all work finishes.
func (s *faultTest) runWithoutFaults() {
	s.rates = faultRates{}
	s.logf("no more faults")
	s.removeFaults()
	o := &operator{name: "C", s: s}
	o.restart()
	for pass := range 600 {
		s.checkRepairs(pass)
		s.compileAll()
		s.addUnavailable()
		o.correctTimes()
		v := s.cluster.View()
		o.view = v
		o.readClock()
		o.durations.Measure(&v.Snapshot)
		ignoreFutureChecks(&v.Snapshot)
		plan := s.decide(v.Snapshot)
		s.cluster.LookAt(plan.Look)
		o.durations.RecordDrains(v.Snapshot, plan)
		o.observation = observation{view: v, plan: plan, decision: s.decisions, since: s.cluster.State.Now, stopped: map[string]bool{}, refused: map[rollout.Ref]bool{}}
		for _, l := range plan.Ledgers {
			o.writeLedger(l)
		}
		for _, a := range plan.Actions {
			o.applyAction(o.observation, a)
		}
		remembers := sim.HasStatusChange(v, plan)
		o.saveStatus()
		if len(plan.Actions) > 0 || len(plan.Ledgers) > 0 || remembers || s.finishAll() {
			s.cluster.AdvanceClock(time.Second)
			continue
		}
		if !plan.Next.IsZero() {
			s.cluster.AdvanceClock(plan.Next.Sub(s.cluster.State.Now))
			continue
		}
		if !s.retrySkipped() {
			s.checkCompletion(plan)
			return
		}
	}
	s.failf("the work is not finished after 600 passes without faults: %s", s.describe(s.decide(s.cluster.View().Snapshot)))
}

// retrySkipped requests a retry of the targets that were given up.
func (s *faultTest) retrySkipped() bool {
	more := s.approve()
	for i := range s.cluster.State.Groups {
		if g := &s.cluster.State.Groups[i]; g.Memory.Stopped {
			more = true
			switch s.random.Intn(3) { // the three ways to request a retry
			case 0:
				g.Memory = rollout.Memory{}
			case 1:
				g.For = rollout.Versions(s.newUID())
			default:
				g.Resume = s.newUID()
			}
		}
	}
	for i := range s.cluster.State.Nodes {
		if n := &s.cluster.State.Nodes[i]; n.Cordoned && len(n.Holds) == 0 {
			more, n.Cordoned, s.cordoned[n.Name] = true, false, false
		}
	}
	for i := range s.cluster.State.Rollouts {
		for j := range s.cluster.State.Rollouts[i].Targets {
			t := s.cluster.State.Rollouts[i].Targets[j]
			more, t.Visit.Skipped = more || t.Visit.Skipped, false
		}
	}
	return more
}

// removeFaults removes everything that blocks the rollouts.
func (s *faultTest) removeFaults() {
	for i := range s.cluster.State.Rollouts {
		r := &s.cluster.State.Rollouts[i]
		for j := range r.Targets {
			s.repairRecord(r, r.Targets[j])
			r.Targets[j].Rollback.Cause, r.Targets[j].Rollback.WithOthers = nil, false // what failed is mended, and asked for again
		}
	}
	for _, w := range s.desired {
		w.rollsBack = false
		if r := s.cluster.FindRollout(w.name); r != nil {
			r.Rollback.Together = false
		}
	}
	s.unproven = map[string]bool{}
	s.compileAll()
	s.addUnavailable()
	for i := range s.cluster.State.Nodes {
		n := &s.cluster.State.Nodes[i]
		n.Ready, s.notReady[n.Name] = true, 0
		if n.Cordoned && len(n.Holds) == 0 {
			n.Cordoned, s.cordoned[n.Name] = false, false
		}
		s.cluster.TouchNode(n.Name)
		s.cluster.Workloads[n.Name] = slices.DeleteFunc(s.cluster.Workloads[n.Name], func(p rollout.Pod) bool { return p.Keep != "" })
	}
	for i := range s.cluster.State.Groups {
		g := &s.cluster.State.Groups[i]
		g.Frozen, g.Failed, g.Held, g.Closing, g.Memory = nil, nil, nil, nil, rollout.Memory{}
		if g.Limit == 0 {
			g.Limit = 1
		}
	}
	for i := range s.cluster.State.Rollouts {
		r := &s.cluster.State.Rollouts[i]
		r.Paused, r.Yields, r.Broken = false, false, nil
		for j := range r.Targets {
			t := r.Targets[j]
			t.Blocked, t.Visit.Skipped = nil, false
			for k := range t.Tasks {
				if task := &t.Tasks[k]; task.Bounded {
					task.Attempts.Failed, task.Attempts.Noted = 0, 0
				}
			}
		}
	}
	for name := range s.absent {
		s.absent[name] = 100
	}
}

// finishAll lets all running tasks succeed and all evicted pods terminate.
func (s *faultTest) finishAll() bool {
	moved := false
	for i := range s.cluster.State.Nodes {
		n := &s.cluster.State.Nodes[i]
		if s.notReady[n.Name] > 0 {
			s.notReady[n.Name], moved = 0, true
			n.Ready, n.ReadyAt = true, s.cluster.State.Now
			s.cluster.TouchNode(n.Name)
		}
		for _, p := range slices.Clone(s.cluster.Workloads[n.Name]) {
			if p.Leaving || p.Wait {
				s.cluster.RemovePod(n.Name, p.UID)
				moved = true
			}
		}
		s.noteProtected(n.Name)
	}
	for i := range s.cluster.State.Rollouts {
		for j := range s.cluster.State.Rollouts[i].Targets {
			moved = s.finishTarget(s.cluster.State.Rollouts[i].Targets[j]) || moved
		}
	}
	return moved
}

func (s *faultTest) finishTarget(t *rollout.Target) bool {
	n, moved := s.cluster.FindNode(t.Node), len(t.Objects.Going) > 0
	if n == nil || n.UID != t.UID {
		t.Gone = true
		return false
	}
	t.Objects.Going = nil
	moved = finishPull(t) || moved
	for i := range t.Tasks {
		k := &t.Tasks[i]
		switch {
		case k.Object.Queued:
		case k.Object.Name != "" && k.Object.Leaving:
			s.cluster.LoseObject(t, k)
			moved = true
		case k.Object.Name != "" && (k.State == rollout.StateRunning || k.State == rollout.StateFailing && !k.Object.Dead):
			s.endOrFail(t, n, k)
			moved = true
		}
	}
	return moved
}

// checkCompletion checks that everything is finished, no node is held, and the plan is empty.
func (s *faultTest) checkCompletion(plan rollout.Plan) {
	for i := range s.cluster.State.Nodes {
		if n := &s.cluster.State.Nodes[i]; len(n.Holds) > 0 || n.Cordoned && !s.cordoned[n.Name] {
			s.failf("%s is still held by %v, cordoned %v", n.Name, n.Holds, n.Cordoned)
		}
	}
	for _, r := range plan.Reports {
		for _, v := range r.Verdicts {
			if v.Phase != rollout.PhaseFinished && v.Why.Reason != rollout.ReasonGiveUp {
				s.failf("the plan is not empty: %s", s.describe(plan))
			}
		}
	}
	for i := range s.cluster.State.Rollouts {
		for j := range s.cluster.State.Rollouts[i].Targets {
			t := s.cluster.State.Rollouts[i].Targets[j]
			if n := s.cluster.FindNode(t.Node); t.Visit.Admitted && n != nil && n.UID == t.UID {
				s.failf("%s is still in flight on %s", s.cluster.State.Rollouts[i].Ref, t.Node)
			}
		}
	}
}

func (s *faultTest) describe(p rollout.Plan) string {
	var out strings.Builder
	for _, r := range p.Reports {
		for _, v := range r.Verdicts {
			out.WriteString("\n" + r.Rollout.String() + " " + v.Node + " " + string(v.Phase) + " " + string(v.Why.Reason) + ": " + v.Why.Text)
		}
	}
	for _, a := range p.Actions {
		out.WriteString("\n" + string(a.Verb) + " " + a.Rollout.String() + " " + a.Node + " " + a.Task + " " + a.Object)
	}
	return out.String()
}
