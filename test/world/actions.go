// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/sim"
)

// acting is an action with what it is about: its rollout and target as they were read, and its node and target after the actions before it.
type acting struct {
	rollout.Action
	rollout *rollout.Rollout
	group   *rollout.Group
	was     *rollout.Node
	seen    *rollout.Target
	node    *rollout.Node
	target  *rollout.Target
}

// checkAction returns why an action must not be planned; empty if it may.
func (c *planCheck) checkAction(action rollout.Action) string {
	a := acting{Action: action, rollout: findRollout(c.seen, action.Rollout), was: findNode(c.seen, action.Node),
		node: c.cluster.FindNode(action.Node), target: c.cluster.FindTarget(action.Rollout, action.Node)}
	if a.was == nil || a.was.Sending {
		return "the node does not exist, or is written to"
	}
	if a.rollout == nil || a.target == nil {
		return map[bool]string{false: "the target does not exist"}[a.Verb == rollout.VerbRelease || a.Verb == rollout.VerbUntaint && c.checkUntaint(a) == ""]
	}
	a.seen = findTarget(a.rollout, a.was)
	if a.seen == nil {
		return "the target is of another node of that name"
	}
	a.group = findGroup(c.seen, a.seen.Group)
	switch a.Verb {
	case rollout.VerbAdmit, rollout.VerbHold, rollout.VerbAsk, rollout.VerbRun, rollout.VerbEvict, rollout.VerbPull:
		if a.rollout.Broken != nil || a.rollout.Paused && !a.seen.Leaving {
			return "the rollout is paused"
		}
		if a.seen.Blocked != nil {
			return "the target is blocked"
		}
	}
	return c.checkVerb(a)
}

func (c *planCheck) checkVerb(a acting) string {
	switch a.Verb {
	case rollout.VerbAdmit:
		return cmp.Or(c.checkBegin(a), c.checkAsked(a), c.checkPulled(a), c.checkWait(a), c.checkAdmit(a))
	case rollout.VerbHold:
		return cmp.Or(c.checkWait(a), c.checkHold(a))
	case rollout.VerbRun:
		return cmp.Or(c.checkRun(a), c.checkTurn(a), c.checkHandedOver(a))
	case rollout.VerbAsk:
		return c.checkAsk(a)
	case rollout.VerbJoin:
		return checkJoin(a)
	case rollout.VerbRecord:
		return c.checkRecord(a)
	case rollout.VerbSweep:
		return c.checkSweep(a)
	case rollout.VerbEvict:
		return cmp.Or(c.checkEvict(a), c.checkHandedOver(a))
	case rollout.VerbRelease:
		return c.checkProof(a)
	case rollout.VerbRetire:
		return cmp.Or(c.checkProof(a), checkRetire(a))
	case rollout.VerbRollback:
		return c.checkRollback(a)
	case rollout.VerbVerify:
		return c.checkVerify(a)
	case rollout.VerbPull:
		return c.checkPull(a)
	case rollout.VerbUntaint:
		return c.checkUntaint(a)
	case rollout.VerbTaint:
		return map[bool]string{true: "the node is not new"}[a.was.Known]
	}
	return ""
}

func findNode(s rollout.Snapshot, name string) *rollout.Node {
	at := slices.IndexFunc(s.Nodes, func(n rollout.Node) bool { return n.Name == name })
	if at < 0 {
		return nil
	}
	return &s.Nodes[at]
}

// nodeOf is the node of a target; nil if it is gone.
func nodeOf(s rollout.Snapshot, t *rollout.Target) *rollout.Node {
	if n := findNode(s, t.Node); n != nil && n.UID == t.UID {
		return n
	}
	return nil
}

func findGroup(s rollout.Snapshot, ref rollout.GroupRef) *rollout.Group {
	at := slices.IndexFunc(s.Groups, func(g rollout.Group) bool { return g.Ref == ref })
	if at < 0 {
		return &rollout.Group{Ref: ref, Limit: rollout.Unlimited}
	}
	return &s.Groups[at]
}

func findRollout(s rollout.Snapshot, ref rollout.Ref) *rollout.Rollout {
	at := slices.IndexFunc(s.Rollouts, func(r rollout.Rollout) bool { return r.Ref == ref })
	if at < 0 {
		return nil
	}
	return &s.Rollouts[at]
}

// findTarget is the target of a rollout on a node; nil if there is none.
func findTarget(r *rollout.Rollout, n *rollout.Node) *rollout.Target {
	at := slices.IndexFunc(r.Targets, func(t *rollout.Target) bool { return t.Node == n.Name && t.UID == n.UID })
	if at < 0 {
		return nil
	}
	return r.Targets[at]
}

func holdsNode(n *rollout.Node, owner rollout.Ref) bool {
	return slices.ContainsFunc(n.Holds, func(h rollout.Hold) bool { return h.Owner == owner })
}

// hasFailedForGood reports whether a task is not tried again in this admission without somebody else beginning first.
func hasFailedForGood(k *rollout.Task) bool {
	limit := k.Retries
	if limit == 0 {
		limit = finalFailures
	}
	return k.State != rollout.StateDone && k.State != rollout.StateSucceeded && k.Attempts.Failed >= limit
}

func hasFinallyFailed(t *rollout.Target) bool {
	return slices.ContainsFunc(t.Tasks, func(k rollout.Task) bool { return hasFailedForGood(&k) })
}

func hasWork(t *rollout.Target) bool {
	return slices.ContainsFunc(t.Tasks, func(k rollout.Task) bool { return k.State != rollout.StateDone })
}

// isWorking reports whether the object of a task may do something on its node.
func isWorking(k rollout.Task) bool {
	return k.Object.Name != "" && (k.State == rollout.StateRunning || k.State == rollout.StateFailing)
}

// mayBeWorking reports whether a target has objects on its node that may do something there.
func mayBeWorking(t *rollout.Target) bool {
	return len(t.Objects.Orphans)+len(t.Objects.Going) > 0 || slices.ContainsFunc(t.Tasks, isWorking)
}

// isOfBatch reports whether a target is in the open batch of a group.
func isOfBatch(t *rollout.Target, g *rollout.Group) bool {
	isOfGroup := t.Visit.BatchOf.IsZero() || t.Visit.BatchOf == g.Ref
	return t.Visit.Admitted && isOfGroup && t.Visit.Batch >= g.Memory.From
}

// checkProof: a node is given back only after all its work was recorded, then its proof was waited for, and everything was true; or the
// proof was late and allows it.
func (c *planCheck) checkProof(a acting) string {
	isAsked := a.seen.Proof != nil && a.seen.Visit.Admitted && !a.seen.Leaving && !a.rollout.Deleting
	switch {
	case !isAsked:
	case a.Why.Reason == rollout.ReasonProofFailed && !(a.seen.Proof.Release && isProofLate(c.seen, a.seen)):
		return "the proof is not late, or the node must stay"
	case a.Why.Reason != rollout.ReasonFinished:
	case a.seen.Proof.Since.IsZero() || a.seen.Proof.Missing != nil:
		return "the node is not proven"
	case hasWork(a.seen):
		return "the node was proven before its work was recorded"
	}
	return ""
}

// isProofLate reports whether all work of a target is done, and its proof is not complete in time. Whether the work is done is unknown
// while the record of the node cannot be read.
func isProofLate(s rollout.Snapshot, t *rollout.Target) bool {
	p := t.Proof
	isWaitedFor := p != nil && p.Missing != nil && p.Timeout > 0 && !p.Since.IsZero()
	isUnreadable := t.Blocked != nil && t.Blocked.Reason == rollout.ReasonStateUnreadable
	if !isWaitedFor || isUnreadable || hasWork(t) {
		return false
	}
	since := p.Observed
	if since.IsZero() {
		since = p.Since
	}
	return !s.Now.Before(since.Add(p.Timeout))
}

// rollsBack reports whether a target that failed rolls back, or is about to.
func rollsBack(s rollout.Snapshot, t *rollout.Target) bool {
	if t.Rollback.Refused != "" {
		return false
	}
	isAbout := t.Rollback.IfFailed && hasFinallyFailed(t) || t.Rollback.IfUnproven && isProofLate(s, t)
	return t.Rollback.Cause != nil || isAbout && !t.Visit.Skipped
}

// isStoppedByRollback reports whether a target must not begin, because another one rolls or rolled back, or is about to.
func (c *planCheck) isStoppedByRollback(r *rollout.Rollout, t *rollout.Target) bool {
	if !r.Rollback.Together || r.Deleting || t.Rollback.Cause != nil {
		return false
	}
	return slices.ContainsFunc(r.Targets, func(o *rollout.Target) bool {
		return nodeOf(c.seen, o) != nil && !o.Leaving && o.Node != t.Node && rollsBack(c.seen, o)
	})
}

// checkRollback: a node rolls back when its work failed for good or its proof is late, if it may, and when nothing runs there any more.
func (c *planCheck) checkRollback(a acting) string {
	t := a.seen
	isUnproven := t.Rollback.IfUnproven && isProofLate(c.seen, t)
	isWithOthers := t.Rollback.IfOthers && (a.rollout.Rollback.Cause != nil || c.isStoppedByRollback(a.rollout, t))
	switch {
	case t.Rollback.Cause != nil:
		return "it went back already"
	case t.Rollback.Refused != "":
		return "its packages refuse that"
	case !(t.Rollback.IfFailed && hasFinallyFailed(t)) && !isUnproven && !isWithOthers:
		return "nothing failed for good, or it may not go back"
	case slices.ContainsFunc(t.Tasks, func(k rollout.Task) bool { return k.Object.Name != "" && k.State == rollout.StateRunning }):
		return "something runs on the node"
	}
	return ""
}

// busyNodes returns the nodes that count against the limit of a group: those that are admitted, those that are not given back, and those
// whose admission may still arrive.
func (c *planCheck) busyNodes(g *rollout.Group) map[string]bool {
	out := map[string]bool{}
	for _, name := range g.Taken {
		out[name] = true
	}
	for i := range c.cluster.State.Rollouts {
		r := &c.cluster.State.Rollouts[i]
		for _, t := range r.Targets {
			n := nodeOf(c.cluster.State, t)
			if n == nil || t.Group != g.Ref {
				continue
			}
			isHeld := holdsNode(n, r.Ref)
			isOccupied := mayBeWorking(t) || isHeld && !(t.Visit.Skipped && r.KeepHeld && !r.Deleting)
			hasGivenUp := t.Visit.Admitted && n.Ready && !isHeld && c.hasSeenFailure(r.Ref, t)
			if (t.Visit.Admitted || isOccupied) && !hasGivenUp {
				out[t.Node] = true
			}
		}
	}
	for _, l := range c.seen.Ledgers {
		for _, s := range l.Admitting {
			if c.isAwaited(s) && s.Group == g.Ref {
				out[s.Node] = true
			}
		}
	}
	return out
}

// hasSeenFailure reports whether a target failed for good when it was read, and stays as it is.
func (c *planCheck) hasSeenFailure(of rollout.Ref, t *rollout.Target) bool {
	was := findTarget(findRollout(c.seen, of), nodeOf(c.seen, t))
	return was != nil && was.Visit.Admitted && !rollsBack(c.seen, was) && (hasFinallyFailed(was) || isProofLate(c.seen, was))
}

// isAwaited reports whether an admission may still be written to its node.
func (c *planCheck) isAwaited(s rollout.Reservation) bool {
	r := findRollout(c.seen, s.Rollout)
	if isExpired := !c.seen.Now.Before(s.CountsFrom().Add(rollout.ReservationTerm)); r == nil || isExpired || s.Ended {
		return false
	}
	at := slices.IndexFunc(r.Targets, func(t *rollout.Target) bool { return t.Node == s.Node && nodeOf(c.seen, t) != nil })
	if at < 0 {
		return false
	}
	t := r.Targets[at]
	if nodeOf(c.seen, t).Refused {
		return false
	}
	isObserved := (t.Visit.BatchOf.IsZero() || t.Visit.BatchOf == s.Group) && t.Visit.Batch >= s.Batch
	return !t.Visit.Admitted && !isObserved && hasWork(t) && t.Group == s.Group && !t.Visit.FinishedAt.After(s.CountsFrom())
}

// checkBegin: nothing new begins while another target rolls back, on a node that is not ready or that others care for, or in a group that
// begins nothing.
func (c *planCheck) checkBegin(a acting) string {
	g, isExempt := a.group, a.rollout.Deleting || a.seen.Rollback.WithOthers
	switch {
	case c.isStoppedByRollback(a.rollout, a.seen):
		return "another target goes or went back"
	case !a.was.Ready:
		return "the node is not ready"
	case a.seen.Avoided != nil || a.was.Cordoned && len(a.was.Holds) == 0 && !a.was.Kept && a.rollout.Defaults[rollout.ReasonInOthersCare] != "":
		return "the node is in the care of others"
	case a.seen.Visit.Skipped && !a.rollout.Deleting:
		return "the target was given up"
	case g.Frozen != nil && !(a.seen.Rollback.WithOthers && g.Frozen.Reason == rollout.ReasonHealthGate):
		return "the group is frozen"
	case g.Closing != nil && c.seen.Now.Add(g.Closing.Margin).After(g.Closing.At):
		return "the window closes too soon"
	case (g.Memory.Stopped || g.Failed != nil) && !isExempt:
		return "the group stopped"
	}
	return c.checkWave(a)
}

func (c *planCheck) checkAdmit(a acting) string {
	busy := c.busyNodes(a.group)
	delete(busy, a.Node) // it is counted once, whatever else counts there
	if len(busy) >= limitOf(a.group) && !a.target.Visit.Admitted {
		return fmt.Sprintf("%d of %d slots are used: %v", len(busy), limitOf(a.group), busy)
	}
	isStored := c.isReserved(a) || slices.ContainsFunc(c.plan.Ledgers, func(l rollout.Ledger) bool { return l.Owner == a.Ledger })
	if a.Ledger.IsZero() || a.Batch == 0 || !isStored {
		return "the ledger is not written"
	}
	for _, o := range a.rollout.Targets {
		isTaken := o.Visit.Order == a.Order || o.Visit.Order > a.Order && !c.isReserved(a)
		if a.rollout.Numbering.Stored && o.Visit.Admitted && nodeOf(c.seen, o) != nil && isTaken {
			return fmt.Sprintf("order %d belongs to %s", o.Visit.Order, o.Node)
		}
	}
	for i := range c.cluster.State.Rollouts {
		o := c.cluster.FindTarget(c.cluster.State.Rollouts[i].Ref, a.Node)
		isOther := o != nil && o != a.target && o.UID == a.was.UID
		if isOther && o.Visit.Admitted && !sharesReboot(a, o) {
			return "another rollout is in progress on the node"
		}
	}
	return cmp.Or(c.checkSpread(a, busy), c.checkBatch(a), c.checkOrder(a))
}

// limitOf is how many nodes of a group may be busy.
func limitOf(g *rollout.Group) int {
	if g.Limit == rollout.Unlimited {
		return math.MaxInt
	}
	return g.Limit
}

func (c *planCheck) isReserved(a acting) bool {
	return slices.ContainsFunc(c.seen.Ledgers, func(l rollout.Ledger) bool {
		return slices.ContainsFunc(l.Admitting, func(s rollout.Reservation) bool { return s.Rollout == a.Rollout && s.Node == a.Node })
	})
}

// checkSpread: no more nodes of one zone are busy than may be.
func (c *planCheck) checkSpread(a acting, busy map[string]bool) string {
	near, zones := map[string]bool{}, map[string]bool{}
	for _, r := range c.seen.Rollouts {
		for _, t := range r.Targets {
			isBusy := busy[t.Node] && t.Group == a.group.Ref && nodeOf(c.seen, t) != nil
			if isBusy && t.Place == a.seen.Place {
				near[t.Node] = true
			}
			if isBusy {
				zones[t.Place] = true
			}
		}
	}
	if a.group.Spread.Limit > 0 && len(near) >= a.group.Spread.Limit {
		return "the limit of its zone is reached"
	}
	if a.group.Spread.Zones > 0 && !zones[a.seen.Place] && len(zones) >= a.group.Spread.Zones {
		return "another zone is busy"
	}
	return ""
}

// checkBatch checks that the open batch is not larger than planned.
func (c *planCheck) checkBatch(a acting) string {
	g, members, isShared := a.group, 0, false
	if g.Pace.Kind == rollout.PaceWindow {
		return ""
	}
	if g.Memory.Open == 0 || g.Memory.From == 0 {
		return "no batch is open"
	}
	for i := range c.cluster.State.Rollouts {
		for _, o := range c.cluster.State.Rollouts[i].Targets {
			if o != a.target && nodeOf(c.seen, o) != nil && o.Group == g.Ref && isOfBatch(o, g) {
				members++
				isShared = isShared || o.Node == a.Node
			}
		}
	}
	if members >= g.Memory.Open && !isShared {
		return fmt.Sprintf("the batch has %d members of %d", members, g.Memory.Open)
	}
	return ""
}

// checkOrder checks that earlier rollouts of the kind come first.
func (c *planCheck) checkOrder(a acting) string {
	for i := range c.seen.Rollouts {
		e := &c.seen.Rollouts[i]
		isEarlier := cmp.Or(cmp.Compare(e.Priority, a.rollout.Priority), e.Ref.Compare(a.Rollout)) < 0
		if !isEarlier || e.Sequence != a.rollout.Sequence || e.Paused && e.Yields || e.Broken != nil {
			continue
		}
		for _, t := range e.Targets {
			isOut := nodeOf(c.seen, t) == nil || t.Gone || t.Leaving && !t.Visit.Admitted || e.Once && t.Visit.Skipped
			isShared := t.Node == a.Node && t.Visit.Admitted && sharesReboot(a, t)
			isFirst := t.Node == a.Node && !isShared || e.Barrier
			if !isOut && isFirst && (t.Visit.Admitted || hasWork(t)) {
				return e.Ref.String() + " goes first on " + t.Node
			}
		}
	}
	return ""
}

// checkWave: a target begins when every target of the groups before its own is complete, and a person approved what its rollout begins.
// What rolls back because another node did does not wait for that node.
func (c *planCheck) checkWave(a acting) string {
	if a.rollout.Deleting || a.rollout.Rollback.Together && a.seen.Rollback.Cause != nil {
		return ""
	}
	for i := range c.seen.Rollouts {
		o := &c.seen.Rollouts[i]
		if o.Deleting || o.Broken != nil || o.Paused && o.Yields || o.Ref != a.Rollout && c.waitsForOther(o, a.group.After) {
			continue
		}
		for _, t := range o.Targets {
			if slices.Contains(a.group.After, t.Group) && c.isOpen(t) {
				return fmt.Sprintf("%s of %s comes before, and is not complete", t.Node, o.Ref)
			}
		}
	}
	if a.group.Approval.Required && !isApproved(a) {
		return "nobody approved what begins"
	}
	return ""
}

// isApproved reports whether the same of a rollout is approved as is rolled out.
func isApproved(a acting) bool {
	id, _, _ := strings.Cut(string(rollout.NewVersions(a.Rollout, "x")), "=")
	find := func(v rollout.Versions) string {
		entries := strings.Split(string(v), ",")
		at := slices.IndexFunc(entries, func(entry string) bool { return strings.HasPrefix(entry, id+"=") })
		if at < 0 {
			return ""
		}
		return entries[at]
	}
	of := find(a.group.Approval.Of)
	return of != "" && of == find(a.group.Approval.Given)
}

// waitsForOther reports whether an unfinished target of a rollout, in one of these groups, may wait for a rollout that comes first.
func (c *planCheck) waitsForOther(o *rollout.Rollout, groups []rollout.GroupRef) bool {
	for i := range c.seen.Rollouts {
		r := &c.seen.Rollouts[i]
		if o.Ref == r.Ref || o.Sequence != r.Sequence || r.Priority > o.Priority {
			continue
		}
		for _, t := range o.Targets {
			n := nodeOf(c.seen, t)
			if slices.Contains(groups, t.Group) && !t.Visit.Admitted && (r.Barrier || n != nil && findTarget(r, n) != nil) {
				return true
			}
		}
	}
	return false
}

// isOpen reports whether a target is one that later groups wait for.
func (c *planCheck) isOpen(t *rollout.Target) bool {
	n := nodeOf(c.seen, t)
	if n == nil || t.Leaving || t.Blocked != nil && t.Blocked.Reason == rollout.ReasonIgnored {
		return false
	}
	if hasWork(t) || t.Visit.Admitted || t.Rollback.Cause != nil {
		return true
	}
	soak := findGroup(c.seen, t.Group).Soak
	if soak == 0 || t.Visit.FinishedAt.IsZero() {
		return false
	}
	return !n.Ready || c.seen.Now.Before(t.Visit.FinishedAt.Add(soak)) || c.seen.Now.Before(n.ReadyAt.Add(soak))
}

// checkWait: with Drain.WaitFirst a node is not taken while a protected pod runs there.
func (c *planCheck) checkWait(a acting) string {
	switch {
	case !a.rollout.Drain.WaitFirst || !a.seen.NeedsDrain() || holdsNode(a.was, a.Rollout):
	case !a.seen.Drain.PodsSeen:
		return "its pods are not known"
	case a.seen.HasProtectedPod() && !c.mayForceProtected(a):
		return "a protected pod runs there"
	}
	return ""
}

// mayForceProtected reports whether protected pods ran as long as they are waited for.
func (c *planCheck) mayForceProtected(a acting) bool {
	drain, since := a.rollout.Drain, a.seen.Drain.ProtectedSince
	return drain.OnWaitTimeout == rollout.DrainForce && drain.WaitTimeout > 0 && (since.IsZero() || !c.seen.Now.Before(since.Add(drain.WaitTimeout)))
}

func (c *planCheck) checkHold(a acting) string {
	switch {
	case !a.target.Visit.Admitted:
		return "the target is not admitted"
	case holdsNode(a.node, a.Rollout):
		return ""
	case a.group.Held != nil:
		return "the window is closed, and nodes in flight are held"
	}
	held := map[string]bool{}
	for _, name := range a.group.Taken {
		held[name] = true
	}
	for i := range c.cluster.State.Rollouts {
		r := &c.cluster.State.Rollouts[i]
		for _, t := range r.Targets {
			if n := nodeOf(c.cluster.State, t); n != nil && t.Group == a.group.Ref && t.Visit.Admitted && holdsNode(n, r.Ref) {
				held[t.Node] = true
			}
		}
	}
	delete(held, a.Node)
	if len(held) >= limitOf(a.group) {
		return fmt.Sprintf("%d of %d nodes are held already: %v", len(held), limitOf(a.group), held)
	}
	return ""
}

func (c *planCheck) checkEvict(a acting) string {
	drain := a.rollout.Drain
	isProtected := slices.ContainsFunc(a.seen.Drain.Pods, func(p rollout.Pod) bool { return p.UID == a.Pod.UID && p.Wait })
	hasLower := slices.ContainsFunc(a.seen.Drain.Pods, func(p rollout.Pod) bool { return !p.Stays && p.Priority < a.Pod.Priority })
	isLate := drain.OnTimeout == rollout.DrainForce && !c.seen.Now.Before(a.seen.DrainBegan().Add(drain.Timeout))
	switch {
	case !holdsNode(a.node, a.Rollout):
		return "the node is not held"
	case isProtected && !c.mayForceProtected(a):
		return "the pod is protected"
	case drain.ByPriority && drain.OnTimeout != rollout.DrainForce && hasLower:
		return "a pod of a lower priority is still there"
	case a.Pod.Wait || a.Pod.Keep != "" && !a.Pod.Leaving:
		return "the pod must not be evicted"
	case a.Force && !drain.Delete && !isLate:
		return "it is not time for force"
	case a.Force && !drain.Delete && !a.Pod.Asked && !a.Pod.Leaving:
		return "the pod was never asked to leave"
	}
	return ""
}

// checkUntaint checks that everything that is required on the node is recorded as done.
func (c *planCheck) checkUntaint(a acting) string {
	for i := range c.cluster.State.Rollouts {
		r := &c.cluster.State.Rollouts[i]
		t := findTarget(r, a.was)
		if !r.Taint.Required || r.Deleting || t == nil || t.Leaving {
			continue
		}
		for _, k := range t.Tasks {
			if k.Recorded != rollout.StateDone {
				return r.Ref.String() + " has pending work: " + k.ID
			}
		}
	}
	return ""
}

// checkVerify: a node is checked only when nobody works on it, and after everything is done there only when nobody holds it.
func (c *planCheck) checkVerify(a acting) string {
	t, n := a.seen, a.was
	isBefore := t.Check != nil && t.Check.Before && !t.Visit.Admitted && hasWork(t) && n.Ready
	switch {
	case a.rollout.Paused || a.rollout.Deleting || a.rollout.Broken != nil:
		return "the rollout is paused or deleted"
	case isBefore && !t.Leaving && t.Blocked == nil:
	case t.Visit.Admitted || t.Leaving || hasWork(t) || t.Rollback.Cause != nil || t.Blocked != nil:
		return "the target is not finished"
	case n.Cordoned || len(n.Holds) > 0 || !n.Ready:
		return "the node is held, not ready, or in use"
	}
	switch {
	case t.Check == nil || t.Check.Object != "" || t.Check.Due.After(c.seen.Now):
		return "no check is due"
	}
	for i := range c.seen.Rollouts {
		if o := findTarget(&c.seen.Rollouts[i], n); o != nil && o.Visit.Admitted {
			return "another rollout works on the node"
		}
	}
	return ""
}

// checkPull: images are pulled before the turn of a target that may begin soon.
func (c *planCheck) checkPull(a acting) string {
	t, g := a.seen, a.group
	switch {
	case a.rollout.Deleting:
		return "the rollout is deleted"
	case t.Pull == nil || !t.Pull.Needed || t.Pull.Object != "" || t.Pull.Leaving:
		return "no pull is needed"
	case t.Visit.Admitted || t.Leaving || !a.was.Ready:
		return "the target is admitted, or cannot begin"
	case g.Frozen != nil, g.Memory.Stopped, g.Failed != nil:
		return "the group is frozen or stopped"
	}
	return c.checkWave(a)
}

// checkPulled: a target is admitted when its images are on the node.
func (c *planCheck) checkPulled(a acting) string {
	if p := a.seen.Pull; p != nil && p.Needed && !p.Ended && !c.isBeginning(a) {
		return "its images are not on the node"
	}
	return ""
}

// isBeginning reports whether a target is admitted whatever is to come before its turn.
func (c *planCheck) isBeginning(a acting) bool {
	of := a.seen.Objects
	hasObjects := len(of.Orphans)+len(of.Going)+len(of.Queues) > 0 || slices.ContainsFunc(a.seen.Tasks, func(k rollout.Task) bool {
		return k.Object.Name != "" || k.Object.Leaving
	})
	return a.seen.Rollback.WithOthers || a.rollout.Deleting || c.isReserved(a) || holdsNode(a.was, a.Rollout) || hasObjects
}

// checkAsked: a target is admitted when it was said a moment ago what its node needs, and nothing speaks against it. One that joins others
// cannot be asked.
func (c *planCheck) checkAsked(a acting) string {
	k := a.seen.Check
	isShared := slices.ContainsFunc(c.seen.Rollouts, func(r rollout.Rollout) bool {
		o := findTarget(&r, a.was)
		return o != nil && o.Visit.Admitted
	})
	switch {
	case k == nil || !k.Before || c.isBeginning(a):
	case k.Refused != nil:
		return "its preflight is against it"
	case !c.seen.Now.Before(k.Due) && !isShared:
		return "it is not known what the node needs"
	}
	return ""
}

// checkRetire: a target ends when nothing of it is left on its node.
func checkRetire(a acting) string {
	if holdsNode(a.node, a.Rollout) && !(a.Skip && a.rollout.KeepHeld) {
		return "the node is still held"
	}
	for _, k := range a.target.Tasks {
		if k.Object.Name != "" && k.State == rollout.StateRunning && !k.Object.Leaving {
			return k.ID + " works"
		}
		if k.Recorded != rollout.StateDone && a.Why.Reason == rollout.ReasonFinished {
			return k.ID + " is pending"
		}
	}
	return ""
}

// checkRecord: what is recorded has happened.
func (c *planCheck) checkRecord(a acting) string {
	k := sim.FindTask(a.seen, a.Task)
	if k == nil {
		return ""
	}
	by := sim.FindTask(a.seen, k.CoveredBy)
	switch a.State {
	case rollout.StateDone:
		hasEnded := func(k *rollout.Task) bool {
			return k != nil && (k.State == rollout.StateSucceeded || k.State == rollout.StateDone)
		}
		if !hasEnded(k) && !hasEnded(by) && !(a.was.Ready && a.seen.Reboot.Includes(k.ID, a.was.BootID)) {
			return "it has not finished"
		}
	case rollout.StateFailing:
		isDeadline := slices.Contains([]rollout.Reason{rollout.ReasonDeadline, rollout.ReasonRebootNotStarted, rollout.ReasonRebootTimeout}, a.Why.Reason)
		since := map[bool]time.Time{true: k.Attempts.Started, false: k.Attempts.Observed}[k.Attempts.Observed.IsZero()]
		if isDeadline && k.Object.Name != "" && c.seen.Now.Before(since.Add(k.Limit)) {
			return "the attempt has not taken that long"
		}
	}
	return ""
}

// checkSweep: an object is deleted when it does nothing, takes too long, or has no future.
func (c *planCheck) checkSweep(a acting) string {
	for _, k := range a.target.Tasks {
		if k.Object.Name != a.Object || k.Object.Name == "" || k.Object.Queued {
			continue
		}
		isGivenBack := !a.target.Visit.Admitted && (a.target.Leaving || a.target.Visit.Skipped) && k.State != rollout.StateRunning
		isExpired := k.Limit > 0 && !c.seen.Now.Before(k.Attempts.Started.Add(k.Limit))
		switch {
		case isGivenBack:
		case k.State == rollout.StateSucceeded && k.Recorded != rollout.StateDone:
			return "its outcome is not recorded"
		case k.State == rollout.StateRunning && k.Why == nil && !isExpired && !k.Object.Dead:
			return "it is running"
		}
	}
	return ""
}
