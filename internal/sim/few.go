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
	groups map[string]int
	lively map[int]bool // the spots that are not still
	lines  []line
	froms  []int64 // of each group: its Memory.From when the spots were looked at
	seen   int     // targets that were decided about
}

// spot is a node: the targets on it, earlier rollouts first.
type spot struct {
	posts []place
	kept  bool // it is decided about now
}

// line are the targets of one rollout in one group, in their turn.
type line struct {
	rollout, group int
	posts          []turn
	from           int // nothing is owed before
}

type turn struct{ spot, target int }

// guard is a target that stands for all behind it in its line.
type guard struct {
	rollout, group int
	node           string
}

// newField sorts a world. A world in which something is odd is looked at as a whole.
func newField(w *World) *field {
	f := &field{w: w, fewest: fewest, byName: map[string]int{}, groups: map[string]int{}, lively: map[int]bool{}}
	s := &w.Truth
	f.spots = make([]spot, len(s.Nodes))
	for i := range s.Nodes {
		f.byName[s.Nodes[i].Name] = i
	}
	for i := range s.Groups {
		f.groups[s.Groups[i].Name] = i
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
		return cmp.Or(cmp.Compare(x.Priority, y.Priority), cmp.Compare(x.Name, y.Name))
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
		f.spots[at].posts = append(f.spots[at].posts, place{r, i})
		in := slices.IndexFunc(f.lines[first:], func(l line) bool { return l.group == g })
		if in < 0 {
			in = len(f.lines) - first
			f.lines = append(f.lines, line{rollout: r, group: g})
		}
		l := &f.lines[first+in]
		l.posts = append(l.posts, turn{at, i})
	}
	for i := first; i < len(f.lines); i++ {
		slices.SortStableFunc(f.lines[i].posts, func(a, b turn) int {
			n, o := &s.Nodes[a.spot], &s.Nodes[b.spot]
			return cmp.Or(cmp.Compare(f.target(r, a).Class, f.target(r, b).Class), boolean(n.Self)-boolean(o.Self),
				n.Created.Compare(o.Created), cmp.Compare(n.Name, o.Name))
		})
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
	for i := range f.spots {
		f.lively[i] = true
	}
	for i := range f.lines {
		f.lines[i].from = 0
	}
}

// stir notes that a plan does something on these nodes.
func (f *field) stir(actions []rollout.Action) {
	for i := range actions {
		if at, known := f.byName[actions[i].Node]; known {
			f.lively[at] = true
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
	taken := map[string]bool{}
	for i := range f.w.Truth.Groups {
		for _, name := range f.w.Truth.Groups[i].Taken {
			taken[name] = true
		}
	}
	for at := range f.lively {
		if !taken[f.w.Truth.Nodes[at].Name] && f.still(at) {
			delete(f.lively, at)
		}
	}
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
	for _, at := range f.spots[at].posts {
		r := &f.w.Truth.Rollouts[at.rollout]
		t := &r.Targets[at.target]
		if r.Required && r.Autotaint && !n.Known || t.UID != "" && n.UID != "" && t.UID != n.UID || !idle(t) {
			return false
		}
		g := &f.w.Truth.Groups[f.groups[t.Group]]
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
		if k.State != rollout.Done && k.State != rollout.Pending || k.Object != "" || k.Leaving {
			return false
		}
	}
	return true
}

func owes(t *rollout.Target) bool {
	if t.Blocked != nil && t.Blocked.Reason == rollout.ReasonStateUnreadable {
		return true
	}
	return slices.ContainsFunc(t.Tasks, func(k rollout.Task) bool { return k.State != rollout.Done })
}

func batches(g *rollout.Group) bool { return g.Pace.Kind != rollout.Window && g.Ledger != "" }
