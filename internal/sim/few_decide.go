// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"maps"
	"slices"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// So many of each line are looked at first, and so many times more next when these are not enough.
const (
	fewest = 8
	more   = 4
)

// decide asks the engine what to do next. The reports of what is left out are missing.
func (f *field) decide() (View, rollout.Plan) {
	for most := f.fewest; !f.whole; most *= more {
		f.calm()
		guards, ok := f.choose(most)
		if !ok {
			break
		}
		v := f.view()
		f.seen += targets(&v.Snapshot)
		plan := rollout.Decide(v.Snapshot)
		if f.stands(plan, guards) {
			return v, plan
		}
	}
	v := f.w.View()
	f.seen += targets(&v.Snapshot)
	return v, rollout.Decide(v.Snapshot)
}

// choose marks the nodes that are decided about; false when nothing may be left out.
func (f *field) choose(most int) ([]guard, bool) {
	for i := range f.spots {
		f.spots[i].kept = false
	}
	for at := range f.lively {
		f.spots[at].kept = true
	}
	f.keepPromised()
	doors := f.doors()
	var guards []guard
	for i := range f.lines {
		l := &f.lines[i]
		if doors[l.group] == shut || doors[l.group] == quiet && f.anyStands(l) {
			return nil, false
		}
		if g, omits := f.chooseFrom(l, most); omits {
			guards = append(guards, g)
		}
	}
	return guards, len(f.lines) > 0
}

// keepPromised keeps the nodes whose admission is written in a ledger and not seen yet.
func (f *field) keepPromised() {
	for i := range f.w.Truth.Ledgers {
		for _, s := range f.w.Truth.Ledgers[i].Admitting {
			at, known := f.byName[s.Node]
			if known && !f.saw(s) {
				f.spots[at].kept = true
			}
		}
	}
}

// saw says that an admission is seen on its node.
func (f *field) saw(s rollout.Seat) bool {
	t := f.w.Target(s.Rollout, s.Node)
	return t != nil && (t.Admitted || t.Batch >= s.Batch && (t.BatchOf == "" || t.BatchOf == s.Group))
}

// door says for which groups it counts how many of its targets are finished: there all are looked at.
type door int

const (
	shut  door = iota // it learns from them now
	quiet             // it learns nothing as long as nobody stands for admission
	open              // it learns nothing, or nothing now, because somebody is at work in its open batch
)

func (f *field) doors() []door {
	s := &f.w.Truth
	crew := make([]crew, len(s.Groups))
	for at := range f.lively {
		for _, p := range f.spots[at].posts {
			t := &s.Rollouts[p.rollout].Targets[p.target]
			crew[f.groups[t.Group]].add(f, at, p)
		}
	}
	out := make([]door, len(s.Groups))
	for i := range s.Groups {
		g, c := &s.Groups[i], &crew[i]
		switch {
		case !batches(g) && (g.Pace.StopAfter == 0 || !c.failing), batches(g) && c.working:
			out[i] = open
		case batches(g) && !c.member && (!c.stands || g.Memory.Stopped && (g.Resume == "" || g.Resume == g.Memory.Resumed)):
			out[i] = quiet
			if g.Memory.Stopped {
				out[i] = open
			}
		}
	}
	return out
}

// crew is who is lively in a group.
type crew struct {
	working bool // somebody is at work in the open batch, and nothing of his failed
	member  bool // somebody is in flight, or counts for the open batch
	failing bool
	stands  bool // somebody stands for admission
}

func (c *crew) add(f *field, at int, p place) {
	s := &f.w.Truth
	r := &s.Rollouts[p.rollout]
	t := &r.Targets[p.target]
	g := &s.Groups[f.groups[t.Group]]
	failed := t.Skipped || slices.ContainsFunc(t.Tasks, func(k rollout.Task) bool { return k.Attempts > 0 || k.State == rollout.Failing })
	c.failing = c.failing || failed
	c.member = c.member || t.Admitted || t.Batch >= max(1, g.Memory.From)
	ours := g.Memory.From > 0 && t.Batch >= g.Memory.From && (t.BatchOf == "" || t.BatchOf == g.Name)
	works := r.Broken == nil && !r.Paused && t.Blocked == nil
	there := !t.Gone && (t.UID == "" || t.UID == s.Nodes[at].UID)
	c.working = c.working || t.Admitted && ours && !failed && owes(t) && works && there && !t.Leaving
	c.stands = c.stands || !t.Admitted && owes(t) && works && s.Nodes[at].Ready && !f.behind(&f.spots[at], p.rollout) && !f.occupied(at)
}

// occupied says that somebody is in flight on a node.
func (f *field) occupied(at int) bool {
	return slices.ContainsFunc(f.spots[at].posts, func(p place) bool {
		return f.w.Truth.Rollouts[p.rollout].Targets[p.target].Admitted
	})
}

// chooseFrom keeps the next in line, and one that owes something, so that the line is not taken for finished. Who is
// behind the guard is left out.
func (f *field) chooseFrom(l *line, most int) (g guard, omits bool) {
	r := &f.w.Truth.Rollouts[l.rollout]
	if len(l.posts) > 0 {
		f.spots[l.posts[0].spot].kept = true
	}
	stands := !r.Paused && r.Broken == nil
	kept, owing := 0, false
	for i := l.from; i < len(l.posts); i++ {
		post := l.posts[i]
		sp, t := &f.spots[post.spot], f.target(l.rollout, post)
		if !owes(t) {
			if i == l.from && !f.lively[post.spot] {
				l.from++
			}
			continue
		}
		if !owing && !t.Admitted {
			owing, sp.kept = true, true
		}
		if owing && !stands {
			break
		}
		if !f.next(l, post) {
			continue
		}
		if kept == most {
			return g, true
		}
		kept++
		sp.kept = true
		g = guard{l.rollout, l.group, t.Node}
	}
	return guard{}, false
}

// next says that a target on a still node stands for admission.
func (f *field) next(l *line, post turn) bool {
	r, t := &f.w.Truth.Rollouts[l.rollout], f.target(l.rollout, post)
	return !f.lively[post.spot] && !r.Paused && r.Broken == nil && t.Blocked == nil && owes(t) && !f.behind(&f.spots[post.spot], l.rollout)
}

func (f *field) anyStands(l *line) bool {
	return slices.ContainsFunc(l.posts[l.from:], func(post turn) bool { return f.next(l, post) })
}

// behind says that an earlier rollout of the kind owes the node something.
func (f *field) behind(sp *spot, r int) bool {
	for _, p := range sp.posts {
		if p.rollout == r {
			return false
		}
		e := &f.w.Truth.Rollouts[p.rollout]
		if e.Kind == f.w.Truth.Rollouts[r].Kind && owes(&e.Targets[p.target]) && !(e.Paused && e.Yields) && e.Broken == nil {
			return true
		}
	}
	return false
}

// view is what an operator sees of the nodes that were chosen.
func (f *field) view() View {
	s := f.w.Truth
	v := View{Snapshot: s, rev: map[string]int{}}
	v.Groups, v.Nodes, v.Ledgers = slices.Clone(s.Groups), nil, slices.Clone(s.Ledgers)
	v.Rollouts = slices.Clone(s.Rollouts)
	chosen := make([][]int, len(s.Rollouts))
	for i := range f.spots {
		if !f.spots[i].kept {
			continue
		}
		v.Nodes = append(v.Nodes, s.Nodes[i])
		v.rev[s.Nodes[i].Name] = f.w.rev[s.Nodes[i].Name]
		for _, p := range f.spots[i].posts {
			chosen[p.rollout] = append(chosen[p.rollout], p.target)
		}
	}
	for i := range v.Rollouts {
		slices.Sort(chosen[i])
		v.Rollouts[i].Targets = make([]rollout.Target, 0, len(chosen[i]))
		for _, at := range chosen[i] {
			t := s.Rollouts[i].Targets[at]
			n := &s.Nodes[f.byName[t.Node]]
			if slices.ContainsFunc(n.Holds, func(h rollout.Hold) bool { return h.Owner == s.Rollouts[i].Name }) {
				t.Pods, t.PodsSeen = slices.Clone(f.w.Workloads[t.Node]), true
			}
			v.Rollouts[i].Targets = append(v.Rollouts[i].Targets, t)
		}
	}
	for i := range v.Ledgers { // what was seen on a node that is left out counts for nothing
		v.Ledgers[i].Admitting = slices.DeleteFunc(slices.Clone(v.Ledgers[i].Admitting), func(s rollout.Seat) bool {
			at, known := f.byName[s.Node]
			return known && !f.spots[at].kept
		})
	}
	return v
}

// stands says that nobody who was left out would have been admitted: each guard was refused for what holds for all behind it.
func (f *field) stands(plan rollout.Plan, guards []guard) bool {
	for _, g := range guards {
		verdicts := plan.Reports[g.rollout].Verdicts
		at := slices.IndexFunc(verdicts, func(v rollout.Verdict) bool { return v.Node == g.node })
		if at < 0 || verdicts[at].Phase != rollout.Waiting {
			return false
		}
		switch verdicts[at].Why.Reason {
		case rollout.ReasonBudget, rollout.ReasonBatch, rollout.ReasonStopped, rollout.ReasonLedger, rollout.ReasonBarrier:
		default:
			if f.w.Truth.Groups[g.group].Frozen == nil {
				return false
			}
		}
	}
	return true
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// livelyNodes are the spots on which something may happen, in their order.
func (f *field) livelyNodes() []int { return slices.Sorted(maps.Keys(f.lively)) }
