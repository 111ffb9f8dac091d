// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"fmt"
	"slices"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/sim"
)

// checkBefore says which promise an action would break, done to the world as it is now. What an operator cannot know
// (a node that fails after it looked) is judged by what it saw.
func (s *storm) checkBefore(v sim.View, a rollout.Action) string {
	t, seen := s.w.Target(a.Rollout, a.Node), s.seen(v, a)
	if a.Verb == rollout.VerbRelease && t == nil {
		return ""
	}
	if t == nil || seen == nil || s.w.Node(a.Node) == nil {
		return ""
	}
	r := s.rolloutSeen(v, a.Rollout)
	stands := r.Broken != nil || r.Paused && !seen.Leaving
	switch a.Verb {
	case rollout.VerbAdmit, rollout.VerbHold, rollout.VerbRun, rollout.VerbEvict:
		if stands {
			return "the rollout stands still"
		}
		if seen.Blocked != nil {
			return "the target is blocked"
		}
	}
	switch a.Verb {
	case rollout.VerbAdmit:
		return s.checkAdmit(v, a, t, seen, r)
	case rollout.VerbHold:
		return s.checkHold(v, a, t)
	case rollout.VerbRun:
		return s.checkRun(v, a, t, seen, r)
	case rollout.VerbRecord:
		return s.checkRecord(a, t, seen)
	case rollout.VerbSweep:
		return s.checkSweep(a, t, seen)
	case rollout.VerbEvict:
		return s.checkEvict(v, a, t, r)
	case rollout.VerbRetire:
		return s.checkRetire(a, s.asSeen(t, seen), r)
	case rollout.VerbTaint:
		if nodeSeen(v, a.Node).Known {
			return "the node is not new"
		}
	case rollout.VerbUntaint:
		return s.checkUntaint(v, a)
	}
	return ""
}

func (s *storm) seen(v sim.View, a rollout.Action) *rollout.Target {
	if r := s.rolloutSeen(v, a.Rollout); r != nil {
		for i := range r.Targets {
			if r.Targets[i].Node == a.Node {
				return &r.Targets[i]
			}
		}
	}
	return nil
}

func (s *storm) rolloutSeen(v sim.View, name rollout.Ref) *rollout.Rollout {
	for i := range v.Rollouts {
		if v.Rollouts[i].Ref == name {
			return &v.Rollouts[i]
		}
	}
	return nil
}

func groupSeen(v sim.View, name rollout.GroupRef) *rollout.Group {
	for i := range v.Groups {
		if v.Groups[i].Ref == name {
			return &v.Groups[i]
		}
	}
	return nil
}

func nodeSeen(v sim.View, name string) *rollout.Node {
	for i := range v.Nodes {
		if v.Nodes[i].Name == name {
			return &v.Nodes[i]
		}
	}
	return nil
}

func finallyFailed(t *rollout.Target) bool {
	return slices.ContainsFunc(t.Tasks, func(k rollout.Task) bool {
		limit := k.Retries
		if limit == 0 {
			limit = 3
		}
		return k.State != rollout.StateDone && k.State != rollout.StateSucceeded && k.Attempts >= limit
	})
}

// busy are the nodes that take seats of a group. Who is admitted is as true as can be; who failed and gave the seat away is as the operator saw it.
func (s *storm) busy(v sim.View, g *rollout.Group) map[string]bool {
	out := s.taken(g)
	for i := range s.w.Truth.Rollouts {
		r := &s.w.Truth.Rollouts[i]
		for j := range r.Targets {
			t := &r.Targets[j]
			n := s.w.Node(t.Node)
			if t.Group != g.Ref || !t.Admitted || n == nil || n.UID != t.UID {
				continue
			}
			if was := s.seen(v, rollout.Action{Rollout: r.Ref, Node: t.Node}); was != nil && was.Admitted && finallyFailed(was) {
				if at := nodeSeen(v, t.Node); at != nil && at.Ready && !holdsNode(at, r.Ref) && !holdsNode(n, r.Ref) {
					continue
				}
			}
			out[t.Node] = true
		}
	}
	return out
}

// taken are the nodes that an operator saw disrupted by others, and that still are: its plan may arrive late.
func (s *storm) taken(g *rollout.Group) map[string]bool {
	out := map[string]bool{}
	for _, name := range g.Taken {
		if n := s.w.Node(name); n != nil && astray(n) {
			out[name] = true
		}
	}
	return out
}

func (s *storm) checkAdmit(v sim.View, a rollout.Action, t, seen *rollout.Target, r *rollout.Rollout) string {
	g := groupSeen(v, seen.Group)
	busy := s.busy(v, g)
	if promised(v, a) {
		delete(busy, a.Node) // its seat has been its own since before
	}
	if g.Limit != rollout.Unlimited && len(busy) >= g.Limit && !t.Admitted {
		return fmt.Sprintf("%d of %d seats are taken: %v", len(busy), g.Limit, busy)
	}
	n := nodeSeen(v, a.Node)
	switch {
	case !n.Ready:
		return "the node is not ready"
	case seen.Skipped && !r.Deleting:
		return "the target was given up"
	case g.Frozen != nil:
		return "the group is frozen"
	case g.Memory.Stopped && !r.Deleting:
		return "the group stopped"
	case a.Ledger.IsZero() || a.Batch == 0:
		return "the admission is not fenced"
	}
	for i := range r.Targets {
		if o := &r.Targets[i]; o.Admitted && there(v, o) && (o.Order == a.Order || o.Order > a.Order && !promised(v, a)) {
			return fmt.Sprintf("order %d was given to %s", o.Order, o.Node)
		}
	}
	if g.Spread.Limit > 0 {
		near := 0
		for name := range busy {
			if name != a.Node && zoneOf(name) == seen.Place && inGroup(v, name, g.Ref) {
				near++
			}
		}
		if near >= g.Spread.Limit {
			return "its zone is crowded"
		}
	}
	for i := range s.w.Truth.Rollouts {
		if o := s.w.Target(s.w.Truth.Rollouts[i].Ref, a.Node); o != nil && o != t && o.Admitted && o.UID == t.UID {
			return "another rollout is at work on the node"
		}
	}
	if why := s.checkBatch(v, g, t); why != "" {
		return why
	}
	return s.checkOrder(v, a, r)
}

// there says that a target's node exists and is the one it was compiled for.
func there(v sim.View, t *rollout.Target) bool {
	n := nodeSeen(v, t.Node)
	return n != nil && n.UID == t.UID
}

// inGroup says that some target of a group is on a node: of other nodes nobody knows the zone.
func inGroup(v sim.View, node string, group rollout.GroupRef) bool {
	for _, r := range v.Rollouts {
		if slices.ContainsFunc(r.Targets, func(t rollout.Target) bool { return t.Node == node && t.Group == group && there(v, &t) }) {
			return true
		}
	}
	return false
}

func promised(v sim.View, a rollout.Action) bool {
	for _, l := range v.Ledgers {
		if slices.ContainsFunc(l.Admitting, func(s rollout.Reservation) bool { return s.Rollout == a.Rollout && s.Node == a.Node }) {
			return true
		}
	}
	return false
}

func zoneOf(node string) string { return "z" + fmt.Sprint(int(node[len(node)-1])%3) }

// checkBatch holds the size of the open batch against what was planned for it.
func (s *storm) checkBatch(v sim.View, g *rollout.Group, t *rollout.Target) string {
	if g.Pace.Kind == rollout.PaceWindow {
		return ""
	}
	if g.Memory.Open == 0 || g.Memory.From == 0 {
		return "no batch is open"
	}
	members := 0
	for i := range v.Rollouts {
		for j := range s.w.Truth.Rollouts {
			if s.w.Truth.Rollouts[j].Ref == v.Rollouts[i].Ref {
				for k := range s.w.Truth.Rollouts[j].Targets {
					o := &s.w.Truth.Rollouts[j].Targets[k]
					n := s.w.Node(o.Node) // who vanished with his node makes room
					if n != nil && n.UID == o.UID && o.Group == g.Ref && o.Admitted && o.Batch >= g.Memory.From && o != t {
						members++
					}
				}
			}
		}
	}
	if members >= g.Memory.Open {
		return fmt.Sprintf("the batch has %d members of %d", members, g.Memory.Open)
	}
	return ""
}

// checkOrder: an earlier rollout of the kind goes first.
func (s *storm) checkOrder(v sim.View, a rollout.Action, r *rollout.Rollout) string {
	for i := range v.Rollouts {
		e := &v.Rollouts[i]
		earlier := e.Priority < r.Priority || e.Priority == r.Priority && e.Ref.Compare(r.Ref) < 0
		if !earlier || e.Sequence != r.Sequence || e.Paused && e.Yields || e.Broken != nil {
			continue
		}
		for j := range e.Targets {
			t := &e.Targets[j]
			n := nodeSeen(v, t.Node)
			if n == nil || n.UID != t.UID || t.Gone || t.Leaving && !t.Admitted || e.Once && t.Skipped {
				continue
			}
			owes := t.Admitted || slices.ContainsFunc(t.Tasks, func(k rollout.Task) bool { return k.State != rollout.StateDone })
			if owes && (t.Node == a.Node || e.Barrier) {
				return e.Ref.String() + " goes first on " + t.Node
			}
		}
	}
	return ""
}

func (s *storm) checkHold(v sim.View, a rollout.Action, t *rollout.Target) string {
	n := s.w.Node(a.Node)
	g := groupSeen(v, t.Group)
	if !t.Admitted {
		return "the target is not admitted"
	}
	if holdsNode(n, a.Rollout) || g.Limit == rollout.Unlimited {
		return ""
	}
	held := s.taken(g)
	for i := range s.w.Truth.Rollouts {
		r := &s.w.Truth.Rollouts[i]
		for j := range r.Targets {
			if o := s.w.Node(r.Targets[j].Node); o != nil && r.Targets[j].Group == g.Ref && r.Targets[j].Admitted && holdsNode(o, r.Ref) {
				held[o.Name] = true
			}
		}
	}
	delete(held, a.Node)
	if len(held) >= g.Limit {
		return fmt.Sprintf("%d of %d nodes are disrupted already: %v", len(held), g.Limit, held)
	}
	return ""
}

// checkUntaint: everything the node requires is recorded as done.
func (s *storm) checkUntaint(v sim.View, a rollout.Action) string {
	for i := range v.Rollouts {
		r := &v.Rollouts[i]
		t, seen := s.w.Target(r.Ref, a.Node), s.seen(v, rollout.Action{Rollout: r.Ref, Node: a.Node})
		if !r.Required || r.Deleting || t == nil || seen == nil || seen.Leaving {
			continue
		}
		for _, k := range s.asSeen(t, seen).Tasks {
			if k.Recorded != rollout.StateDone {
				return r.Ref.String() + " owes " + k.ID
			}
		}
	}
	return ""
}

// checkAfter: a node that no rollout holds any more is as a person left it.
func (s *storm) checkAfter(a rollout.Action) {
	n := s.w.Node(a.Node)
	if a.Verb != rollout.VerbRelease || n == nil || len(n.Holds) > 0 {
		return
	}
	if s.unclear[a.Node] {
		delete(s.unclear, a.Node)
		s.human[a.Node] = n.Cordoned
	}
	if n.Cordoned != s.human[a.Node] {
		s.broken("%s is cordoned: %v; a person wants it cordoned: %v", n.Name, n.Cordoned, s.human[a.Node])
	}
}

// checkBatchEnd: a batch that is closed has no member whose outcome may still change by itself.
func (s *storm) checkBatchEnd(snap rollout.Snapshot, plan rollout.Plan) {
	for i, g := range plan.Groups {
		was := snap.Groups[i].Memory
		if was.From == 0 || g.Memory.From == was.From || g.Memory.Batch == 1 && g.Memory.LastSize == 0 {
			continue
		}
		for _, r := range snap.Rollouts {
			for _, t := range r.Targets {
				n := nodeSeen(sim.View{Snapshot: snap}, t.Node)
				if t.Group != g.Group || !t.Admitted || t.Batch < was.From || n == nil || n.UID != t.UID {
					continue
				}
				if !t.Leaving && t.Blocked == nil && r.Broken == nil && !(r.Paused && r.Yields) && !finallyFailed(&t) {
					s.broken("a batch of %s is closed while %s is under way", g.Group, t.Node)
				}
			}
		}
	}
}

func (s *storm) checkCordons() {
	for i := range s.w.Truth.Nodes {
		n := &s.w.Truth.Nodes[i]
		if len(n.Holds) == 0 && !s.unclear[n.Name] && n.Cordoned != s.human[n.Name] {
			s.broken("nobody holds %s, it is cordoned: %v; a person wants it cordoned: %v", n.Name, n.Cordoned, s.human[n.Name])
		}
	}
}
