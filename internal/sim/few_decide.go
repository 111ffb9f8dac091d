// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"slices"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// So many of each line are looked at first, and so many times more next when these are not enough.
const (
	fewest = 1
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
		if f.holds(plan, guards) {
			return v, plan
		}
	}
	v := f.w.View()
	f.seen += targets(&v.Snapshot)
	return v, rollout.Decide(v.Snapshot)
}

// choose marks the nodes that are decided about; false when nothing may be left out.
func (f *field) choose(most int) ([]guard, bool) {
	for _, at := range f.kept {
		f.spots[at].kept = false
	}
	f.kept = f.kept[:0]
	for _, at := range f.lively {
		f.keep(at)
	}
	f.keepPromised()
	doors := f.doors()
	var guards []guard
	for i := range f.lines {
		l := &f.lines[i]
		for l.head < len(l.posts) && !l.posts[l.head].next {
			l.head++
		}
		if doors[l.group] == shut || doors[l.group] == quiet && l.head < len(l.posts) {
			return nil, false
		}
		if g, omits := f.chooseFrom(l, most); omits {
			guards = append(guards, g)
		}
	}
	slices.Sort(f.kept)
	return guards, len(f.lines) > 0
}

func (f *field) keep(at int) {
	if sp := &f.spots[at]; !sp.kept {
		sp.kept = true
		f.kept = append(f.kept, at)
	}
}

// seats are the admissions of one version of a ledger that are not seen yet.
type seats struct {
	owner rollout.Ref
	epoch int64
	left  []rollout.Seat
}

// keepPromised keeps the nodes whose admission is written in a ledger and not seen yet.
func (f *field) keepPromised() {
	all := f.w.Truth.Ledgers
	for i := range all {
		if i == len(f.unseen) {
			f.unseen = append(f.unseen, seats{})
		}
		u := &f.unseen[i]
		if u.owner != all[i].Owner || u.epoch != all[i].Epoch || u.left == nil {
			*u = seats{all[i].Owner, all[i].Epoch, append([]rollout.Seat{}, all[i].Admitting...)}
		}
		u.left = slices.DeleteFunc(u.left, f.saw)
		for _, s := range u.left {
			if at, known := f.byName[s.Node]; known {
				f.keep(at)
			}
		}
	}
}

// saw says that an admission is seen on its node for good: it stays written there when the target is retired.
func (f *field) saw(s rollout.Seat) bool {
	t := f.w.Target(s.Rollout, s.Node)
	return t != nil && t.Batch >= s.Batch && (t.BatchOf.IsZero() || t.BatchOf == s.Group)
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
	for _, at := range f.lively {
		for _, p := range f.spots[at].posts {
			crew[f.lines[p.line].group].add(f, at, p)
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

func (c *crew) add(f *field, at int, p post) {
	s := &f.w.Truth
	r := &s.Rollouts[p.rollout]
	t := &r.Targets[p.target]
	g := &s.Groups[f.lines[p.line].group]
	failed := t.Skipped || slices.ContainsFunc(t.Tasks, func(k rollout.Task) bool { return k.Attempts > 0 || k.State == rollout.StateFailing })
	c.failing = c.failing || failed
	c.member = c.member || t.Admitted || t.Batch >= max(1, g.Memory.From)
	ours := g.Memory.From > 0 && t.Batch >= g.Memory.From && (t.BatchOf.IsZero() || t.BatchOf == g.Ref)
	works := r.Broken == nil && !r.Paused && t.Blocked == nil
	there := !t.Gone && (t.UID == "" || t.UID == s.Nodes[at].UID)
	c.working = c.working || t.Admitted && ours && !failed && owes(t) && works && there && !t.Leaving
	c.stands = c.stands || !t.Admitted && owes(t) && works && s.Nodes[at].Ready && !f.behind(&f.spots[at], p.rollout) && !f.occupied(at)
}

// occupied says that somebody is in flight on a node.
func (f *field) occupied(at int) bool {
	return slices.ContainsFunc(f.spots[at].posts, func(p post) bool {
		return f.w.Truth.Rollouts[p.rollout].Targets[p.target].Admitted
	})
}

// chooseFrom keeps the next in line, and one that owes something, so that the line is not taken for finished. Who is
// behind the guard is left out.
func (f *field) chooseFrom(l *line, most int) (g guard, omits bool) {
	if len(l.posts) > 0 {
		f.keep(l.posts[0].spot)
	}
	f.keepOwing(l)
	kept := 0
	for i := l.head; i < len(l.posts); i++ {
		post := l.posts[i]
		if !post.next {
			continue
		}
		if kept == most {
			return g, true
		}
		kept++
		f.keep(post.spot)
		g = guard{l.rollout, l.group, f.target(l.rollout, post).Node}
	}
	return guard{}, false
}

// keepOwing keeps the first of a line that owes something and is not in flight.
func (f *field) keepOwing(l *line) {
	for i := l.from; i < len(l.posts); i++ {
		post := l.posts[i]
		t := f.target(l.rollout, post)
		switch {
		case !owes(t):
			if i == l.from && !f.spots[post.spot].lively {
				l.from++
			}
		case !t.Admitted:
			f.keep(post.spot)
			return
		}
	}
}

// behind says that an earlier rollout of the kind owes the node something.
func (f *field) behind(sp *spot, r int) bool {
	for _, p := range sp.posts {
		if p.rollout == r {
			return false
		}
		e := &f.w.Truth.Rollouts[p.rollout]
		if e.Sequence == f.w.Truth.Rollouts[r].Sequence && owes(&e.Targets[p.target]) && !(e.Paused && e.Yields) && e.Broken == nil {
			return true
		}
	}
	return false
}

// drawing is what a view was drawn into. The next one is drawn over it.
type drawing struct {
	nodes    []rollout.Node
	rollouts []rollout.Rollout
	targets  [][]rollout.Target // by rollout
	chosen   [][]int            // by rollout
	groups   []rollout.Group
	ledgers  []rollout.Ledger
	rev      map[string]int
}

// view is what an operator sees of the nodes that were chosen, until the next view.
func (f *field) view() View {
	s, d := f.w.Truth, &f.drawn
	if d.rev == nil {
		d.rev, d.targets, d.chosen = map[string]int{}, make([][]rollout.Target, len(s.Rollouts)), make([][]int, len(s.Rollouts))
	}
	clear(d.rev)
	d.nodes = d.nodes[:0]
	d.groups, d.rollouts, d.ledgers = append(d.groups[:0], s.Groups...), append(d.rollouts[:0], s.Rollouts...), append(d.ledgers[:0], s.Ledgers...)
	for i := range d.chosen {
		d.chosen[i] = d.chosen[i][:0]
	}
	for _, at := range f.kept {
		n := &s.Nodes[at]
		d.nodes = append(d.nodes, *n)
		d.rev[n.Name] = f.w.rev[n.Name]
		for _, p := range f.spots[at].posts {
			d.chosen[p.rollout] = append(d.chosen[p.rollout], p.target)
		}
	}
	for i := range d.rollouts {
		d.rollouts[i].Targets = f.drawTargets(i)
	}
	for i := range d.ledgers { // what was seen counts for nothing
		d.ledgers[i].Admitting = f.unseen[i].left
	}
	v := View{Snapshot: s, rev: d.rev}
	v.Nodes, v.Groups, v.Rollouts, v.Ledgers = d.nodes, d.groups, d.rollouts, d.ledgers
	return v
}

func (f *field) drawTargets(r int) []rollout.Target {
	from, out := &f.w.Truth.Rollouts[r], f.drawn.targets[r][:0]
	slices.Sort(f.drawn.chosen[r])
	for _, at := range f.drawn.chosen[r] {
		out = append(out, from.Targets[at])
		t := &out[len(out)-1]
		n := &f.w.Truth.Nodes[f.byName[t.Node]]
		if slices.ContainsFunc(n.Holds, func(h rollout.Hold) bool { return h.Owner == from.Ref }) {
			t.Pods, t.PodsSeen = slices.Clone(f.w.Workloads[t.Node]), true
		}
	}
	f.drawn.targets[r] = out
	return out
}

// holds says that nobody who was left out would have been admitted: each guard was refused for what holds for all behind it.
func (f *field) holds(plan rollout.Plan, guards []guard) bool {
	for _, g := range guards {
		verdicts := plan.Reports[g.rollout].Verdicts
		at := slices.IndexFunc(verdicts, func(v rollout.Verdict) bool { return v.Node == g.node })
		if at < 0 || verdicts[at].Phase != rollout.PhaseWaiting {
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
