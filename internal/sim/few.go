// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"slices"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// field is a world whose nodes are mostly still: nothing is under way there, and nobody can begin there before somebody
// else has begun or ended. Those are left out of what is decided about, but for a few that stand for the rest: the next
// in line of each rollout and group. When the last of these is refused because of its group, all behind it would be, too.
// When it is not, more of them are looked at. So what is decided is the same as for all nodes, and costs what is under way.
type field struct {
	w      *World
	whole  bool // leave nothing out
	fewest int  // of each line that are looked at first
	spots  []spot
	byName map[string]int
	groups map[rollout.GroupRef]int
	lively []int // the spots that are not still, in their order
	kept   []int // the spots that are decided about now
	lines  []line
	froms  []int64 // of each group: its Memory.From when the spots were looked at
	unseen []seats // of each ledger
	drawn  drawing
	seen   int // targets that were decided about
}

// spot is a node: the targets on it, earlier rollouts first.
type spot struct {
	posts  []post
	taken  bool // somebody else disrupts it
	lively bool // it is not still
	kept   bool // it is decided about now
}

// post is a target, and where it stands in its line.
type post struct {
	place
	line, at int
}

// line are the targets of one rollout in one group, in their turn.
type line struct {
	rollout, group int
	posts          []turn
	from           int // nothing is owed before
	head           int // nobody stands for admission before
}

type turn struct {
	spot, target int
	next         bool // its spot is still, and it stands for admission there
}

// guard is a target that stands for all behind it in its line.
type guard struct {
	rollout, group int
	node           string
}

// newField sorts a world. A world in which something is odd is looked at as a whole.
func newField(w *World) *field {
	f := &field{w: w, fewest: fewest, byName: map[string]int{}, groups: map[rollout.GroupRef]int{}}
	s := &w.Truth
	f.spots = make([]spot, len(s.Nodes))
	for i := range s.Nodes {
		f.byName[s.Nodes[i].Name] = i
	}
	for i := range s.Groups {
		for _, name := range s.Groups[i].Taken {
			if at, known := f.byName[name]; known {
				f.spots[at].taken = true
			}
		}
	}
	for i := range s.Groups {
		f.groups[s.Groups[i].Ref] = i
		f.froms = append(f.froms, s.Groups[i].Memory.From)
	}
	f.whole = len(f.byName) != len(s.Nodes) || len(f.groups) != len(s.Groups) || len(w.places) != targets(s)
	order := make([]int, len(s.Rollouts))
	for i := range order {
		order[i] = i
		f.whole = f.whole || s.Rollouts[i].Deleting
	}
	slices.SortFunc(order, func(a, b int) int {
		x, y := &s.Rollouts[a], &s.Rollouts[b]
		return cmp.Or(cmp.Compare(x.Priority, y.Priority), x.Ref.Compare(y.Ref))
	})
	for _, r := range order {
		f.lineUp(r)
	}
	f.reset()
	return f
}

func targets(s *rollout.Snapshot) int {
	n := 0
	for i := range s.Rollouts {
		n += len(s.Rollouts[i].Targets)
	}
	return n
}

// lineUp adds a rollout, after all earlier ones.
func (f *field) lineUp(r int) {
	s := &f.w.Truth
	first := len(f.lines)
	for i := range s.Rollouts[r].Targets {
		t := &s.Rollouts[r].Targets[i]
		at, known := f.byName[t.Node]
		g, grouped := f.groups[t.Group]
		if !known || !grouped {
			f.whole = true
			return
		}
		in := slices.IndexFunc(f.lines[first:], func(l line) bool { return l.group == g })
		if in < 0 {
			in = len(f.lines) - first
			f.lines = append(f.lines, line{rollout: r, group: g})
		}
		l := &f.lines[first+in]
		l.posts = append(l.posts, turn{spot: at, target: i})
	}
	for i := first; i < len(f.lines); i++ {
		slices.SortStableFunc(f.lines[i].posts, func(a, b turn) int {
			n, o := &s.Nodes[a.spot], &s.Nodes[b.spot]
			return cmp.Or(cmp.Compare(f.target(r, a).Class, f.target(r, b).Class), boolean(n.Self)-boolean(o.Self),
				n.Created.Compare(o.Created), cmp.Compare(n.Name, o.Name))
		})
		for at, t := range f.lines[i].posts {
			sp := &f.spots[t.spot]
			sp.posts = append(sp.posts, post{place: place{r, t.target}, line: i, at: at})
		}
	}
}

func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (f *field) target(r int, t turn) *rollout.Target {
	return &f.w.Truth.Rollouts[r].Targets[t.target]
}

// reset looks at every spot again.
func (f *field) reset() {
	f.lively = f.lively[:0]
	for i := range f.spots {
		f.spots[i].lively = true
		f.lively = append(f.lively, i)
	}
	for i := range f.lines {
		l := &f.lines[i]
		l.from, l.head = 0, len(l.posts)
		for j := range l.posts {
			l.posts[j].next = false
		}
	}
}

// stir notes that a plan does something on these nodes.
func (f *field) stir(actions []rollout.Action) {
	for i := range actions {
		at, known := f.byName[actions[i].Node]
		if !known || f.spots[at].lively {
			continue
		}
		sp := &f.spots[at]
		sp.lively = true
		in, _ := slices.BinarySearch(f.lively, at)
		f.lively = slices.Insert(f.lively, in, at)
		for _, p := range sp.posts {
			f.lines[p.line].posts[p.at].next = false
		}
	}
}

// calm finds out which spots have become still.
func (f *field) calm() {
	for i := range f.w.Truth.Groups {
		if from := f.w.Truth.Groups[i].Memory.From; from != f.froms[i] {
			f.froms[i] = from
			f.reset() // other targets are members of the open batch now
		}
	}
	f.lively = slices.DeleteFunc(f.lively, func(at int) bool {
		sp := &f.spots[at]
		if sp.taken || !f.still(at) {
			return false
		}
		sp.lively = false
		for _, p := range sp.posts {
			if l := &f.lines[p.line]; f.stands(sp, p.place) {
				l.posts[p.at].next, l.head = true, min(l.head, p.at)
			}
		}
		return true
	})
}

// stands says that a target on a still node stands for admission. That stays so as long as the node is still.
func (f *field) stands(sp *spot, p place) bool {
	r := &f.w.Truth.Rollouts[p.rollout]
	t := &r.Targets[p.target]
	return !r.Paused && r.Broken == nil && t.Blocked == nil && owes(t) && !f.behind(sp, p.rollout)
}

// still says that nothing is under way on a node and nobody is there who counts for anything but himself.
func (f *field) still(at int) bool {
	n := &f.w.Truth.Nodes[at]
	if !n.Ready || n.Sending || n.Tainted || len(n.Holds) > 0 {
		return false
	}
	for _, p := range f.w.Workloads[n.Name] {
		if p.Leaving {
			return false
		}
	}
	for _, p := range f.spots[at].posts {
		r := &f.w.Truth.Rollouts[p.rollout]
		t := &r.Targets[p.target]
		if r.Required && r.Autotaint && !n.Known || t.UID != "" && n.UID != "" && t.UID != n.UID || !idle(t) {
			return false
		}
		g := &f.w.Truth.Groups[f.lines[p.line].group]
		if g.Soak > 0 && !t.FinishedAt.IsZero() && !owes(t) && f.w.Truth.Now.Before(later(t.FinishedAt, n.ReadyAt).Add(g.Soak)) {
			return false
		}
		if batches(g) && t.Batch >= max(1, g.Memory.From) { // it may be a member of the open batch
			return false
		}
	}
	return true
}

// idle says that a target is not in flight and has left nothing behind.
func idle(t *rollout.Target) bool {
	if t.Admitted || t.Leaving || t.Gone || t.Skipped || t.Unproven != nil || !t.HeldAt.IsZero() || len(t.Strays)+len(t.Going) > 0 {
		return false
	}
	for i := range t.Tasks {
		k := &t.Tasks[i]
		if k.State != rollout.StateDone && k.State != rollout.StatePending || k.Object != "" || k.Leaving {
			return false
		}
	}
	return true
}

func owes(t *rollout.Target) bool {
	if t.Blocked != nil && t.Blocked.Reason == rollout.ReasonStateUnreadable {
		return true
	}
	for i := range t.Tasks {
		if t.Tasks[i].State != rollout.StateDone {
			return true
		}
	}
	return false
}

func batches(g *rollout.Group) bool { return g.Pace.Kind != rollout.PaceWindow && !g.Ledger.IsZero() }
