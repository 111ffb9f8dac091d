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
	"github.com/skyhook-k8s/skyhook/internal/sim"
)

// decide asks the engine, and checks what must hold for each answer: it is the same for the same snapshot in any
// order, it leaves the snapshot alone, and it is silent about nothing.
func (s *storm) decide(snap rollout.Snapshot) rollout.Plan {
	s.last = snap
	s.looks++
	before := snap
	if s.looks%4 == 0 {
		before = sim.Clone(snap)
	}
	plan := rollout.Decide(snap)
	s.checkWords(plan)
	s.checkBatchEnd(snap, plan)
	if !plan.Next.IsZero() && !plan.Next.After(snap.Now) {
		s.broken("the plan wants to look again in the past: %s", plan.Next)
	}
	if s.looks%4 == 0 {
		if !reflect.DeepEqual(snap, before) {
			s.broken("Decide changed what it looked at")
		}
		again := rollout.Decide(shuffle(s.r, before))
		if one, two := normal(plan), normal(again); !reflect.DeepEqual(one, two) {
			s.broken("the order of the input decides:\n%+v\n%+v", one, two)
		}
	}
	return plan
}

func (s *storm) checkWords(plan rollout.Plan) {
	check := func(what string, why rollout.Why) {
		if why.Reason == "" || why.Text == "" || strings.HasSuffix(why.Text, ".") || len(why.Text) > 400 {
			s.broken("%s says %q, %q", what, why.Reason, why.Text)
		}
	}
	for _, r := range plan.Reports {
		for _, v := range r.Verdicts {
			check("the verdict on "+v.Node, v.Why)
			if v.Phase == "" || v.Node == "" {
				s.broken("a verdict without node or phase: %+v", v)
			}
		}
	}
	for _, a := range plan.Actions {
		check(string(a.Verb)+" on "+a.Node, a.Why)
	}
}

func shuffle(r *rand.Rand, s rollout.Snapshot) rollout.Snapshot {
	mix(r, s.Nodes)
	mix(r, s.Groups)
	mix(r, s.Ledgers)
	mix(r, s.Rollouts)
	for i := range s.Nodes {
		mix(r, s.Nodes[i].Holds)
	}
	for i := range s.Groups {
		mix(r, s.Groups[i].Taken)
	}
	for i := range s.Rollouts {
		mix(r, s.Rollouts[i].Targets)
		for j := range s.Rollouts[i].Targets {
			mix(r, s.Rollouts[i].Targets[j].Pods)
		}
	}
	return s
}

func mix[T any](r *rand.Rand, list []T) {
	r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
}

// normal puts the parts of a plan whose order follows the input into one order.
func normal(p rollout.Plan) rollout.Plan {
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

// calm lets the sun shine: nothing fails any more, and whatever people held up goes on. Then everything has to end, and
// nothing may be left to do.
func (s *storm) calm() {
	s.luck = luck{}
	s.say("calm")
	s.mend()
	for pass := 0; pass < 600; pass++ {
		s.refit()
		s.derive()
		v := s.w.View()
		plan := s.decide(v.Snapshot)
		o := &operator{name: "C", s: s, round: round{view: v, plan: plan, looked: s.looks, since: s.w.Truth.Now, stopped: map[string]bool{}, refused: map[rollout.Ref]bool{}}}
		for _, l := range plan.Ledgers {
			o.ledger(l)
		}
		for _, a := range plan.Actions {
			o.do(o.round, a)
		}
		remembers := sim.Learned(v, plan)
		o.save()
		if len(plan.Actions) > 0 || len(plan.Ledgers) > 0 || remembers || s.progress() {
			s.w.Pass(time.Second)
			continue
		}
		if !plan.Next.IsZero() {
			s.w.Pass(plan.Next.Sub(s.w.Truth.Now))
			continue
		}
		if !s.again() {
			s.checkRest(plan)
			return
		}
	}
	s.broken("600 passes in the sun, and it has not ended: %s", s.describe(s.decide(s.w.View().Snapshot)))
}

// again asks for another try of the targets that were given up in the storm or because of it.
func (s *storm) again() bool {
	more := false
	for i := range s.w.Truth.Groups {
		if g := &s.w.Truth.Groups[i]; g.Memory.Stopped {
			more = true
			switch s.r.Intn(3) { // the three ways in which people let it go on
			case 0:
				g.Memory = rollout.Memory{}
			case 1:
				g.For = s.uid()
			default:
				g.Resume = s.uid()
			}
		}
	}
	for i := range s.w.Truth.Nodes {
		if n := &s.w.Truth.Nodes[i]; n.Cordoned && len(n.Holds) == 0 {
			more, n.Cordoned, s.human[n.Name] = true, false, false
		}
	}
	for i := range s.w.Truth.Rollouts {
		for j := range s.w.Truth.Rollouts[i].Targets {
			t := &s.w.Truth.Rollouts[i].Targets[j]
			more, t.Skipped = more || t.Skipped, false
		}
	}
	return more
}

// mend takes away what people and bad luck left in the way.
func (s *storm) mend() {
	s.refit()
	s.derive()
	for i := range s.w.Truth.Nodes {
		n := &s.w.Truth.Nodes[i]
		n.Ready, s.sick[n.Name] = true, 0
		if n.Cordoned && len(n.Holds) == 0 {
			n.Cordoned, s.human[n.Name] = false, false
		}
		s.w.Touch(n.Name)
		s.w.Workloads[n.Name] = slices.DeleteFunc(s.w.Workloads[n.Name], func(p rollout.Pod) bool { return p.Keep != "" })
	}
	for i := range s.w.Truth.Groups {
		g := &s.w.Truth.Groups[i]
		g.Frozen, g.Memory = nil, rollout.Memory{}
		if g.Limit == 0 {
			g.Limit = 1
		}
	}
	for i := range s.w.Truth.Rollouts {
		r := &s.w.Truth.Rollouts[i]
		r.Paused, r.Yields, r.Broken = false, false, nil
		for j := range r.Targets {
			t := &r.Targets[j]
			t.Blocked, t.Skipped = nil, false
			for k := range t.Tasks {
				if task := &t.Tasks[k]; task.Bounded {
					task.Attempts, task.Noted = 0, 0
				}
			}
		}
	}
	for name := range s.absent {
		s.absent[name] = 100
	}
}

// progress lets everything that runs end, and everybody who leaves go.
func (s *storm) progress() bool {
	moved := false
	for i := range s.w.Truth.Nodes {
		n := &s.w.Truth.Nodes[i]
		if s.sick[n.Name] > 0 {
			s.sick[n.Name], moved = 0, true
			n.Ready, n.ReadyAt = true, s.w.Truth.Now
			s.w.Touch(n.Name)
		}
		for _, p := range slices.Clone(s.w.Workloads[n.Name]) {
			if p.Leaving || p.Wait {
				s.w.Gone(n.Name, p.UID)
				moved = true
			}
		}
	}
	for i := range s.w.Truth.Rollouts {
		for j := range s.w.Truth.Rollouts[i].Targets {
			moved = s.progressOn(&s.w.Truth.Rollouts[i].Targets[j]) || moved
		}
	}
	return moved
}

func (s *storm) progressOn(t *rollout.Target) bool {
	n, moved := s.w.Node(t.Node), len(t.Going) > 0
	if n == nil || n.UID != t.UID {
		t.Gone = true
		return false
	}
	t.Going = nil
	for i := range t.Tasks {
		k := &t.Tasks[i]
		switch {
		case k.Object != "" && k.Leaving:
			sim.Vanish(k)
			moved = true
		case k.Object != "" && (k.State == rollout.StateRunning || k.State == rollout.StateFailing && !k.Dead):
			s.endOrFail(t, n, k)
			moved = true
		}
	}
	return moved
}

// checkRest: everything is finished, nobody holds anything, and nothing is left to write.
func (s *storm) checkRest(plan rollout.Plan) {
	for i := range s.w.Truth.Nodes {
		if n := &s.w.Truth.Nodes[i]; len(n.Holds) > 0 || n.Cordoned && !s.human[n.Name] {
			s.broken("%s is still held by %v, cordoned %v", n.Name, n.Holds, n.Cordoned)
		}
	}
	for _, r := range plan.Reports {
		for _, v := range r.Verdicts {
			if v.Phase != rollout.PhaseFinished && v.Why.Reason != rollout.ReasonGiveUp {
				s.broken("at rest: %s", s.describe(plan))
			}
		}
	}
	for i := range s.w.Truth.Rollouts {
		for j := range s.w.Truth.Rollouts[i].Targets {
			t := &s.w.Truth.Rollouts[i].Targets[j]
			if n := s.w.Node(t.Node); t.Admitted && n != nil && n.UID == t.UID {
				s.broken("%s is still in flight on %s", s.w.Truth.Rollouts[i].Ref, t.Node)
			}
		}
	}
}

func (s *storm) describe(p rollout.Plan) string {
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
