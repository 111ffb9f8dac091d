// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/sim"
)

// checkAction returns the invariant that an action would violate in the current state. What an operator cannot know (a
// node that fails after it was read) is checked in the state that it has read.
func (s *faultTest) checkAction(v sim.View, a rollout.Action) string {
	t, seen := s.cluster.FindTarget(a.Rollout, a.Node), s.findObservedTarget(v, a)
	if a.Verb == rollout.VerbRelease && t == nil {
		return ""
	}
	if t == nil || seen == nil || s.cluster.FindNode(a.Node) == nil {
		return ""
	}
	r := s.findObservedRollout(v, a.Rollout)
	stands := r.Broken != nil || r.Paused && !seen.Leaving
	switch a.Verb {
	case rollout.VerbAdmit, rollout.VerbHold, rollout.VerbRun, rollout.VerbEvict, rollout.VerbPull:
		if stands {
			return "the rollout is paused"
		}
		if seen.Blocked != nil {
			return "the target is blocked"
		}
	}
	switch a.Verb {
	case rollout.VerbAdmit:
		if isStoppedByRollback(v, seen, r) {
			return "another target goes or went back"
		}
		return cmp.Or(checkPulled(v, a, seen, r), s.checkWait(v, a, seen, r), s.checkAdmit(v, a, t, seen, r))
	case rollout.VerbHold:
		return cmp.Or(s.checkWait(v, a, seen, r), s.checkHold(v, a, t))
	case rollout.VerbRun:
		return cmp.Or(s.checkRun(v, a, t, seen, r), s.checkTurn(a, r))
	case rollout.VerbJoin:
		return s.checkJoin(v, a, s.mergeObserved(t, seen), r)
	case rollout.VerbRecord:
		return s.checkRecord(a, t, seen)
	case rollout.VerbSweep:
		return s.checkSweep(a, t)
	case rollout.VerbEvict:
		return s.checkEvict(v, a, r)
	case rollout.VerbRelease:
		return checkProof(v, a, seen, r)
	case rollout.VerbRetire:
		if problem := checkProof(v, a, seen, r); problem != "" {
			return problem
		}
		return s.checkRetire(a, s.mergeObserved(t, seen), r)
	case rollout.VerbRollback:
		return s.checkRollback(v, a, seen, t)
	case rollout.VerbVerify:
		return s.checkVerify(v, a, seen, r)
	case rollout.VerbPull:
		return s.checkPull(v, seen, r)
	case rollout.VerbTaint:
		if findObservedNode(v, a.Node).Known {
			return "the node is not new"
		}
	case rollout.VerbUntaint:
		return s.checkUntaint(v, a)
	}
	return ""
}

func (s *faultTest) findObservedTarget(v sim.View, a rollout.Action) *rollout.Target {
	if r := s.findObservedRollout(v, a.Rollout); r != nil {
		for i := range r.Targets {
			if r.Targets[i].Node == a.Node {
				return r.Targets[i]
			}
		}
	}
	return nil
}

func (s *faultTest) findObservedRollout(v sim.View, name rollout.Ref) *rollout.Rollout {
	for i := range v.Rollouts {
		if v.Rollouts[i].Ref == name {
			return &v.Rollouts[i]
		}
	}
	return nil
}

func findObservedGroup(v sim.View, name rollout.GroupRef) *rollout.Group {
	for i := range v.Groups {
		if v.Groups[i].Ref == name {
			return &v.Groups[i]
		}
	}
	return nil
}

func findObservedNode(v sim.View, name string) *rollout.Node {
	for i := range v.Nodes {
		if v.Nodes[i].Name == name {
			return &v.Nodes[i]
		}
	}
	return nil
}

func hasFinallyFailed(t *rollout.Target) bool {
	return slices.ContainsFunc(t.Tasks, func(k rollout.Task) bool {
		limit := k.Retries
		if limit == 0 {
			limit = 3
		}
		return k.State != rollout.StateDone && k.State != rollout.StateSucceeded && k.Attempts.Failed >= limit
	})
}

// checkProof: a node is given back only after all its work was recorded, then its proof was waited for, and everything was true; or the
// proof was late and allows it.
func checkProof(v sim.View, a rollout.Action, seen *rollout.Target, r *rollout.Rollout) string {
	isAsked := seen.Proof != nil && seen.Visit.Admitted && !seen.Leaving && !r.Deleting
	switch {
	case !isAsked:
	case a.Why.Reason == rollout.ReasonProofFailed && !(seen.Proof.Release && isProofLate(v, seen)):
		return "the proof is not late, or the node must stay"
	case a.Why.Reason != rollout.ReasonFinished:
	case seen.Proof.Since.IsZero() || seen.Proof.Missing != nil:
		return "the node is not proven"
	case slices.ContainsFunc(seen.Tasks, func(k rollout.Task) bool { return k.State != rollout.StateDone }):
		return "the node was proven before its work was recorded"
	}
	return ""
}

// isProofLate reports whether all work of a target is done, and its proof is not complete in time. Whether the work is done is unknown
// while the record of the node cannot be read.
func isProofLate(v sim.View, t *rollout.Target) bool {
	p := t.Proof
	isWaitedFor := p != nil && p.Missing != nil && p.Timeout > 0 && !p.Since.IsZero()
	isUnreadable := t.Blocked != nil && t.Blocked.Reason == rollout.ReasonStateUnreadable
	hasWork := isUnreadable || slices.ContainsFunc(t.Tasks, func(k rollout.Task) bool { return k.State != rollout.StateDone })
	if !isWaitedFor || hasWork {
		return false
	}
	since := p.Observed
	if since.IsZero() {
		since = p.Since
	}
	return !v.Now.Before(since.Add(p.Timeout))
}

// rollsBack reports whether a target that failed rolls back, or is about to.
func rollsBack(v sim.View, t *rollout.Target) bool {
	if t.Rollback.Refused != "" {
		return false
	}
	isAbout := t.Rollback.IfFailed && hasFinallyFailed(t) || t.Rollback.IfUnproven && isProofLate(v, t)
	return t.Rollback.Cause != nil || isAbout && !t.Visit.Skipped
}

// isStoppedByRollback reports whether a target must not begin, because another one rolls or rolled back, or is about to.
func isStoppedByRollback(v sim.View, t *rollout.Target, r *rollout.Rollout) bool {
	if !r.Rollback.Together || r.Deleting || t.Rollback.Cause != nil {
		return false
	}
	for _, o := range r.Targets {
		n := findObservedNode(v, o.Node)
		if n != nil && n.UID == o.UID && !o.Leaving && o.Node != t.Node && rollsBack(v, o) {
			return true
		}
	}
	return false
}

// checkRollback: a node rolls back when its work failed for good or its proof is late, if it may, when nothing runs there any more, and
// once for each set of packages.
func (s *faultTest) checkRollback(v sim.View, a rollout.Action, seen, t *rollout.Target) string {
	isUnproven := seen.Rollback.IfUnproven && isProofLate(v, seen)
	rollsBackWithOthers := seen.Rollback.IfOthers && isStoppedByRollback(v, seen, s.findObservedRollout(v, a.Rollout))
	switch {
	case seen.Rollback.Cause != nil:
		return "it went back already"
	case seen.Rollback.Refused != "":
		return "its packages refuse that"
	case !(seen.Rollback.IfFailed && hasFinallyFailed(seen)) && !isUnproven && !rollsBackWithOthers:
		return "nothing failed for good, or it may not go back"
	case slices.ContainsFunc(seen.Tasks, func(k rollout.Task) bool { return k.Object.Name != "" && k.State == rollout.StateRunning }):
		return "something runs on the node"
	}
	for _, w := range s.desired {
		if w.name != a.Rollout {
			continue
		}
		w.rollbacks[t.UID+fmt.Sprint(w.packages)]++
		if n := w.rollbacks[t.UID+fmt.Sprint(w.packages)]; n > 1 && t.Rollback.Cause != nil {
			return fmt.Sprintf("it goes back from the same packages for the %d. time", n)
		}
	}
	return ""
}

// isOccupied reports whether a node is not given back though no admission is recorded: the rollout holds it, or has an
// object there.
func isOccupied(r *rollout.Rollout, t *rollout.Target, n *rollout.Node) bool {
	isGivenUp := t.Visit.Skipped && r.KeepHeld && !r.Deleting
	return mayBeWorking(t) || holdsNode(n, r.Ref) && !isGivenUp
}

// mayBeWorking reports whether a target has objects on its node that may do something there.
func mayBeWorking(t *rollout.Target) bool {
	isThere := func(k rollout.Task) bool {
		return k.Object.Name != "" && (k.State == rollout.StateRunning || k.State == rollout.StateFailing)
	}
	return len(t.Objects.Orphans)+len(t.Objects.Going) > 0 || slices.ContainsFunc(t.Tasks, isThere)
}

// busyNodes returns the nodes that count against the limit of a group: by the current admissions, by what is on nodes that
// are not given back, and by the failures that the operator has read.
func (s *faultTest) busyNodes(v sim.View, g *rollout.Group) map[string]bool {
	out := s.takenNodes(g)
	for i := range s.cluster.State.Rollouts {
		r := &s.cluster.State.Rollouts[i]
		for j := range r.Targets {
			t := r.Targets[j]
			n := s.cluster.FindNode(t.Node)
			if t.Group != g.Ref || n == nil || n.UID != t.UID || s.isMoved(v, r, t) {
				continue
			}
			if !t.Visit.Admitted && !isOccupied(r, t, n) {
				continue
			}
			was := s.findObservedTarget(v, rollout.Action{Rollout: r.Ref, Node: t.Node})
			if was != nil && was.Visit.Skipped && r.KeepHeld && !t.Visit.Admitted && !mayBeWorking(t) {
				continue // it was given up, and its rollout was edited since
			}
			if was != nil && was.Visit.Admitted && !rollsBack(v, was) && (hasFinallyFailed(was) || isProofLate(v, was)) {
				if at := findObservedNode(v, t.Node); at != nil && at.Ready && !holdsNode(at, r.Ref) && !holdsNode(n, r.Ref) {
					continue
				}
			}
			out[t.Node] = true
		}
	}
	return out
}

// addAwaited adds the nodes whose admissions the operator has read in any ledger and that may still be written, though the
// targets have changed their group since.
func (s *faultTest) addAwaited(busy map[string]bool, v sim.View, g *rollout.Group) {
	for _, l := range v.Ledgers {
		for _, r := range l.Admitting {
			t, n := s.cluster.FindTarget(r.Rollout, r.Node), s.cluster.FindNode(r.Node)
			isExpired := !v.Now.Before(r.CountsFrom().Add(rollout.ReservationTerm))
			if isExpired || t == nil || n == nil || n.UID != t.UID {
				continue
			}
			was, group := s.findObservedTarget(v, rollout.Action{Rollout: r.Rollout, Node: r.Node}), t.Group
			if was == nil {
				group = r.Group // it does not know that the target is another one, in another group
			}
			if group != g.Ref {
				continue
			}
			isPending := func(k rollout.Task) bool { return k.State != rollout.StateDone }
			if t.Visit.FinishedAt.After(r.CountsFrom()) || !slices.ContainsFunc(t.Tasks, isPending) {
				continue
			}
			if was != nil && (was.Visit.Admitted || hasBatch(was, r)) {
				continue // it was written, and perhaps reset since
			}
			if !hasBatch(t, r) {
				busy[r.Node] = true
			}
		}
	}
}

// hasBatch reports whether the admission of a reservation was written to its node.
func hasBatch(t *rollout.Target, r rollout.Reservation) bool {
	isOfGroup := t.Visit.BatchOf.IsZero() || t.Visit.BatchOf == r.Group
	return isOfGroup && t.Visit.Batch >= r.Batch
}

// isMoved reports whether a target changed its group since an operator has read it.
func (s *faultTest) isMoved(v sim.View, r *rollout.Rollout, t *rollout.Target) bool {
	was := s.findObservedTarget(v, rollout.Action{Rollout: r.Ref, Node: t.Node})
	return was != nil && was.Group != t.Group
}

// takenNodes returns the nodes that the operator has read as unavailable and that still are.
func (s *faultTest) takenNodes(g *rollout.Group) map[string]bool {
	out := map[string]bool{}
	for _, name := range g.Taken {
		if n := s.cluster.FindNode(name); n != nil && isUnavailable(n) {
			out[name] = true
		}
	}
	return out
}

// highestLimit returns the limit of a group as an operator has read it, or as it is now if it was raised since: others may have been
// admitted by the new one.
func (s *faultTest) highestLimit(g *rollout.Group) int {
	limit := g.Limit
	for i := range s.cluster.State.Groups {
		if now := &s.cluster.State.Groups[i]; now.Ref == g.Ref && limit != rollout.Unlimited && (now.Limit == rollout.Unlimited || now.Limit > limit) {
			limit = now.Limit
		}
	}
	if limit == rollout.Unlimited {
		return math.MaxInt
	}
	return limit
}

func (s *faultTest) checkAdmit(v sim.View, a rollout.Action, t, seen *rollout.Target, r *rollout.Rollout) string {
	g := findObservedGroup(v, seen.Group)
	busy := s.busyNodes(v, g)
	s.addAwaited(busy, v, g)
	delete(busy, a.Node) // it is counted once, whatever else counts there
	if limit := s.highestLimit(g); len(busy) >= limit && !t.Visit.Admitted {
		return fmt.Sprintf("%d of %d slots are used: %v", len(busy), limit, busy)
	}
	n := findObservedNode(v, a.Node)
	switch {
	case !n.Ready:
		return "the node is not ready"
	case seen.Visit.Skipped && !r.Deleting:
		return "the target was given up"
	case g.Frozen != nil && !(seen.Rollback.WithOthers && g.Frozen.Reason == rollout.ReasonHealthGate):
		return "the group is frozen"
	case g.Memory.Stopped && !r.Deleting && !seen.Rollback.WithOthers:
		return "the group stopped"
	case g.Closing != nil && v.Now.Add(g.Closing.Margin).After(g.Closing.At):
		return "the window closes too soon"
	case g.Failed != nil && !r.Deleting && !seen.Rollback.WithOthers:
		return "a health gate that stops the group is false"
	case checkWave(v, g, r, seen) != "":
		return checkWave(v, g, r, seen)
	case a.Ledger.IsZero() || a.Batch == 0:
		return "the ledger is not written"
	}
	for i := range r.Targets {
		if o := r.Targets[i]; o.Visit.Admitted && isOnItsNode(v, o) && (o.Visit.Order == a.Order || o.Visit.Order > a.Order && !isReserved(v, a)) {
			return fmt.Sprintf("order %d belongs to %s", o.Visit.Order, o.Node)
		}
	}
	if g.Spread.Limit > 0 {
		near := 0
		for name := range busy {
			if name != a.Node && zoneOf(name) == seen.Place && isInGroup(v, name, g.Ref) {
				near++
			}
		}
		if near >= g.Spread.Limit {
			return "the limit of its zone is reached"
		}
	}
	for i := range s.cluster.State.Rollouts {
		if o := s.cluster.FindTarget(s.cluster.State.Rollouts[i].Ref, a.Node); o != nil && o != t && o.Visit.Admitted && o.UID == t.UID && !s.isShared(v, a, r, o) {
			return "another rollout is in progress on the node"
		}
	}
	if why := s.checkBatch(v, a, g, t); why != "" {
		return why
	}
	return s.checkOrder(v, a, r)
}

// isOnItsNode reports whether the node of a target exists and is the one for which it was compiled.
func isOnItsNode(v sim.View, t *rollout.Target) bool {
	n := findObservedNode(v, t.Node)
	return n != nil && n.UID == t.UID
}

// isInGroup reports whether a node has a target of a group. The zones of other nodes are unknown.
func isInGroup(v sim.View, node string, group rollout.GroupRef) bool {
	for _, r := range v.Rollouts {
		if slices.ContainsFunc(r.Targets, func(t *rollout.Target) bool { return t.Node == node && t.Group == group && isOnItsNode(v, t) }) {
			return true
		}
	}
	return false
}

func isReserved(v sim.View, a rollout.Action) bool {
	for _, l := range v.Ledgers {
		if slices.ContainsFunc(l.Admitting, func(s rollout.Reservation) bool { return s.Rollout == a.Rollout && s.Node == a.Node }) {
			return true
		}
	}
	return false
}

func zoneOf(node string) string { return "z" + fmt.Sprint(int(node[len(node)-1])%3) }

// checkBatch checks that the open batch is not larger than planned.
func (s *faultTest) checkBatch(v sim.View, a rollout.Action, g *rollout.Group, t *rollout.Target) string {
	if g.Pace.Kind == rollout.PaceWindow {
		return ""
	}
	if g.Memory.Open == 0 || g.Memory.From == 0 {
		return "no batch is open"
	}
	members := 0
	for i := range v.Rollouts {
		for j := range s.cluster.State.Rollouts {
			if s.cluster.State.Rollouts[j].Ref == v.Rollouts[i].Ref {
				for k := range s.cluster.State.Rollouts[j].Targets {
					o := s.cluster.State.Rollouts[j].Targets[k]
					n := s.cluster.FindNode(o.Node) // a target whose node is gone does not count
					if n != nil && n.UID == o.UID && o.Group == g.Ref && isOfBatch(o, g) && o != t {
						members++
					}
				}
			}
		}
	}
	if members >= g.Memory.Open && !s.isSharedInBatch(g, t, isReserved(v, a)) {
		return fmt.Sprintf("the batch has %d members of %d", members, g.Memory.Open)
	}
	return ""
}

// isOfBatch reports whether a target is in the open batch of a group.
func isOfBatch(t *rollout.Target, g *rollout.Group) bool {
	isOfGroup := t.Visit.BatchOf.IsZero() || t.Visit.BatchOf == g.Ref
	return t.Visit.Admitted && isOfGroup && t.Visit.Batch >= g.Memory.From
}

// checkOrder checks that earlier rollouts of the kind come first.
func (s *faultTest) checkOrder(v sim.View, a rollout.Action, r *rollout.Rollout) string {
	for i := range v.Rollouts {
		e := &v.Rollouts[i]
		earlier := e.Priority < r.Priority || e.Priority == r.Priority && e.Ref.Compare(r.Ref) < 0
		if !earlier || e.Sequence != r.Sequence || e.Paused && e.Yields || e.Broken != nil {
			continue
		}
		for j := range e.Targets {
			t := e.Targets[j]
			n := findObservedNode(v, t.Node)
			if n == nil || n.UID != t.UID || t.Gone || t.Leaving && !t.Visit.Admitted || e.Once && t.Visit.Skipped {
				continue
			}
			hasWork := t.Visit.Admitted || slices.ContainsFunc(t.Tasks, func(k rollout.Task) bool { return k.State != rollout.StateDone })
			isShared := t.Node == a.Node && t.Visit.Admitted && s.isShared(v, a, r, t)
			if hasWork && (t.Node == a.Node && !isShared || e.Barrier) {
				return e.Ref.String() + " goes first on " + t.Node
			}
		}
	}
	return ""
}

func (s *faultTest) checkHold(v sim.View, a rollout.Action, t *rollout.Target) string {
	n := s.cluster.FindNode(a.Node)
	g := findObservedGroup(v, t.Group)
	seen := s.findObservedTarget(v, a)
	if isMoved := g == nil || seen != nil && seen.Group != t.Group; isMoved { // to another group since
		return ""
	}
	if !t.Visit.Admitted {
		return "the target is not admitted"
	}
	if holdsNode(n, a.Rollout) {
		return ""
	}
	if g.Held != nil {
		return "the window is closed, and nodes in flight are held"
	}
	held := s.takenNodes(g)
	for i := range s.cluster.State.Rollouts {
		r := &s.cluster.State.Rollouts[i]
		for j := range r.Targets {
			other := r.Targets[j]
			if o := s.cluster.FindNode(other.Node); o != nil && other.Group == g.Ref && !s.isMoved(v, r, other) && other.Visit.Admitted && holdsNode(o, r.Ref) {
				held[o.Name] = true
			}
		}
	}
	delete(held, a.Node)
	if limit := s.highestLimit(g); len(held) >= limit {
		return fmt.Sprintf("%d of %d nodes are held already: %v", len(held), limit, held)
	}
	return ""
}

// checkUntaint checks that everything that is required on the node is recorded as done. A target of a node that another one of its name
// replaced requires nothing there.
func (s *faultTest) checkUntaint(v sim.View, a rollout.Action) string {
	n := findObservedNode(v, a.Node)
	for i := range v.Rollouts {
		r := &v.Rollouts[i]
		t, seen := s.cluster.FindTarget(r.Ref, a.Node), s.findObservedTarget(v, rollout.Action{Rollout: r.Ref, Node: a.Node})
		if !r.Taint.Required || r.Deleting || t == nil || seen == nil || seen.Leaving || n != nil && seen.UID != n.UID {
			continue
		}
		for _, k := range s.mergeObserved(t, seen).Tasks {
			if k.Recorded != rollout.StateDone {
				return r.Ref.String() + " has pending work: " + k.ID
			}
		}
	}
	return ""
}

// checkState checks that a node without holds is cordoned only if a user cordoned it.
func (s *faultTest) checkState(a rollout.Action) {
	n := s.cluster.FindNode(a.Node)
	if a.Verb != rollout.VerbRelease || n == nil || len(n.Holds) > 0 {
		return
	}
	if s.unclear[a.Node] {
		delete(s.unclear, a.Node)
		s.cordoned[a.Node] = n.Cordoned
	}
	if n.Cordoned != s.cordoned[a.Node] {
		s.failf("%s is cordoned: %v; cordoned by a user: %v", n.Name, n.Cordoned, s.cordoned[a.Node])
	}
}

// checkBatchEnd checks that all outcomes of a closed batch are final.
func (s *faultTest) checkBatchEnd(snap rollout.Snapshot, plan rollout.Plan) {
	for i, g := range plan.Groups {
		was := snap.Groups[i].Memory
		if was.From == 0 || g.Memory.From == was.From || g.Memory.Batch == 1 && g.Memory.LastSize == 0 {
			continue
		}
		for _, r := range snap.Rollouts {
			for _, t := range r.Targets {
				n := findObservedNode(sim.View{Snapshot: snap}, t.Node)
				isMember := isOfBatch(t, &rollout.Group{Ref: g.Group, Memory: was})
				if t.Group != g.Group || !isMember || n == nil || n.UID != t.UID {
					continue
				}
				isProofFailed := isProofLate(sim.View{Snapshot: snap}, t) && !t.Proof.Release
				if !t.Leaving && t.Blocked == nil && r.Broken == nil && !(r.Paused && r.Yields) && !hasFinallyFailed(t) && !isProofFailed && t.Rollback.Cause == nil {
					s.failf("a batch of %s is closed while %s is in progress", g.Group, t.Node)
				}
			}
		}
	}
}

func (s *faultTest) checkCordons() {
	for i := range s.cluster.State.Nodes {
		n := &s.cluster.State.Nodes[i]
		if len(n.Holds) == 0 && !s.unclear[n.Name] && n.Cordoned != s.cordoned[n.Name] {
			s.failf("%s has no holds and is cordoned: %v; cordoned by a user: %v", n.Name, n.Cordoned, s.cordoned[n.Name])
		}
	}
}
