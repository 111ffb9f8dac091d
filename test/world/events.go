// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Cause is a kind of event.
type Cause string

// The causes.
const (
	EditSpec        Cause = "a user edits a Skyhook"
	Pause           Cause = "a user pauses or resumes a Skyhook"
	Toggle          Cause = "a user toggles a boolean or an enum of a Skyhook"
	Upgrade         Cause = "a user asks for another version of a package, perhaps with a rollback of the whole rollout"
	Undo            Cause = "a user takes back the last edit of a Skyhook"
	DeleteSkyhook   Cause = "a user deletes a Skyhook"
	DeleteBlocked   Cause = "a user deletes a Skyhook that something keeps from going"
	EditPolicy      Cause = "a user edits the policy"
	ChangeScope     Cause = "a user changes the scope of the policy, or drops it"
	DeletePolicy    Cause = "a user deletes the policy"
	CreateNodeOp    Cause = "a user creates a NodeOp"
	DeleteNodeOp    Cause = "a user deletes a NodeOp"
	Cordon          Cause = "an administrator cordons or uncordons a node"
	Mark            Cause = "an administrator sets or removes marks of nodes that the operator sets too"
	Relabel         Cause = "an administrator changes the label that selects a node"
	ResetNode       Cause = "an administrator resets a node"
	Rerun           Cause = "an administrator runs a package again"
	ReplaceNode     Cause = "a node is deleted, and perhaps another one of its name created"
	ReplaceAll      Cause = "all nodes are replaced"
	Reboot          Cause = "a node reboots by itself"
	BootTwice       Cause = "the next reboot of a node is followed by another one"
	NodeDown        Cause = "a node stops and does not come back by itself"
	CrashCommands   Cause = "nodes crash around commands of NodeOps that share reboots, and report their new boot late"
	StickyPods      Cause = "pods on a node do not end when they are deleted"
	HangPods        Cause = "the next pods on a node hang in their phase until they are deleted"
	HangPulls       Cause = "a pod that pulls images before the turn of a node hangs until it is deleted: in the end by a person"
	RejectPods      Cause = "a kubelet rejects all pods for some turns"
	NewLeader       Cause = "another operator leads: the one before ends after a pass, or before a request"
	LeaderClock     Cause = "another operator leads, with a clock that is hours off"
	LoseRequest     Cause = "a request fails: conflict, throttling or an internal error"
	RefuseEvictions Cause = "evictions are refused by a disruption budget"
	RefuseByRule    Cause = "an admission policy or a quota refuses requests"
	RefusePods      Cause = "a webhook begins to refuse pods, or dry runs of them, and ends"
	ProveTogether   Cause = "nodes are validated when all that works on them is complete, and Skyhooks share reboots"
	Damage          Cause = "annotations of a node are damaged"
	Hostile         Cause = "annotations of a node are changed with intent"
	InvalidObject   Cause = "a user writes an object at the limits of the schema"

	breakRule Cause = "a test breaks a rule"
)

// causes are all causes with how often they occur, relative to each other.
var causes = []struct {
	cause  Cause
	weight int
	happen func(*Run, *rand.Rand)
}{
	{EditSpec, 8, (*Run).editSpec},
	{Pause, 3, (*Run).pause},
	{Toggle, 6, (*Run).toggle},
	{Upgrade, 6, (*Run).upgrade},
	{Undo, 4, (*Run).undo},
	{DeleteSkyhook, 2, deleteOne(Skyhooks)},
	{DeleteBlocked, 3, (*Run).deleteBlocked},
	{EditPolicy, 3, (*Run).editPolicy},
	{ChangeScope, 2, (*Run).changeScope},
	{DeletePolicy, 1, deleteOne(Policies)},
	{CreateNodeOp, 2, (*Run).createNodeOp},
	{DeleteNodeOp, 1, deleteOne(NodeOps)},
	{Cordon, 5, (*Run).cordon},
	{Mark, 6, (*Run).mark},
	{Relabel, 2, (*Run).relabel},
	{ResetNode, 3, (*Run).resetNode},
	{Rerun, 5, (*Run).rerun},
	{ReplaceNode, 2, (*Run).replaceNode},
	{ReplaceAll, 1, (*Run).replaceAll},
	{Reboot, 2, onHost((*Run).rebootNode)},
	{BootTwice, 2, onHost(func(_ *Run, h *host, _ *rand.Rand) { h.again = true })},
	{NodeDown, 2, onHost((*Run).stopNode)},
	{CrashCommands, 3, (*Run).crashCommands},
	{StickyPods, 2, onHost(func(_ *Run, h *host, _ *rand.Rand) { h.stuck = true })},
	{HangPods, 4, onHost(func(_ *Run, h *host, random *rand.Rand) { h.toHang = 1 + random.IntN(2) })},
	{HangPulls, 2, onHost(func(_ *Run, h *host, _ *rand.Rand) { h.pullsToHang = 1 })},
	{RejectPods, 3, onHost(func(r *Run, h *host, random *rand.Rand) { h.rejectsUntil = r.turn + 3 + random.IntN(12) })},
	{NewLeader, 2, (*Run).changeLeader},
	{LeaderClock, 2, (*Run).changeLeaderClock},
	{LoseRequest, 8, (*Run).loseRequest},
	{RefuseEvictions, 2, (*Run).refuseEvictions},
	{RefuseByRule, 3, (*Run).refuseByRule},
	{RefusePods, 4, (*Run).refusePods},
	{ProveTogether, 3, (*Run).proveTogether},
	{Damage, 3, (*Run).damage},
	{Hostile, 3, (*Run).forge},
	{InvalidObject, 2, (*Run).writeExtreme},
	{breakRule, 0, func(r *Run, _ *rand.Rand) { r.violate("a test", "broken on purpose") }},
}

// Event is something that happens in a run: in a turn, before the pass or before one of its requests.
type Event struct {
	Cause   Cause
	Turn    int
	Request int    // before which request of the operator; below 0 before the pass
	Seed    uint64 // of the details
}

func (e Event) String() string {
	when := fmt.Sprintf("turn %d", e.Turn)
	if e.Request >= 0 {
		when += fmt.Sprintf(", before request %d", e.Request)
	}
	return when + ": " + string(e.Cause)
}

// makeEvents makes the events of a seed. A cause that is not allowed leaves the others as they are.
func makeEvents(seed uint64, allowed func(Cause) bool) []Event {
	random := randomFor(seed, "events")
	total := 0
	for _, c := range causes {
		total += c.weight
	}
	var out []Event
	for range random.IntN(20) {
		at := random.IntN(total)
		var cause Cause
		for _, c := range causes {
			if at -= c.weight; at < 0 {
				cause = c.cause
				break
			}
		}
		e := Event{Cause: cause, Turn: 1 + random.IntN(busyTurns-5), Request: random.IntN(24) - 8, Seed: random.Uint64()}
		if e.Request < 0 {
			e.Request = -1
		}
		if allowed(cause) {
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, func(a, b Event) int { return cmp.Or(cmp.Compare(a.Turn, b.Turn), cmp.Compare(a.Request, b.Request)) })
	return out
}

// fireUpTo lets the events of this turn happen up to a request.
func (r *Run) fireUpTo(request int) {
	for len(r.pending) > 0 && !r.isQuiet {
		e := r.pending[0]
		if e.Turn > r.turn || e.Turn == r.turn && e.Request > request {
			return
		}
		r.pending = r.pending[1:]
		r.tracef("EVENT %s", e.Cause)
		for _, c := range causes {
			if c.cause == e.Cause {
				c.happen(r, randomFor(e.Seed))
			}
		}
	}
}

// intercept is called before every request of the operator: people act, and requests are refused.
func (r *Run) intercept(q Request) error {
	if q.IsWrite() {
		r.fireUpTo(r.requests)
		r.requests++
	}
	if r.truth.requests++; r.truth.isKilled {
		r.truth.refused = true
		return errors.New("the process has ended")
	}
	for i := range r.refusals {
		if f := &r.refusals[i]; f.matches(q) && f.left > 0 {
			f.left--
			err := f.answer(q)
			r.tracef("refused  %s: %v", q, err)
			r.truth.refused = true
			return err
		}
	}
	return nil
}

// refusal is a rule by which requests are refused.
type refusal struct {
	until   int // turn
	left    int
	matches func(Request) bool
	answer  func(Request) error
}

// endEvents ends everything that events began and that nobody would end, as administrators do.
func (r *Run) endEvents() {
	r.isQuiet, r.pending, r.refusals = true, nil, nil
	r.tracef("no further events")
	for _, h := range r.hosts {
		h.stuck, h.again, h.toHang, h.pullsToHang, h.rejectsUntil = false, false, 0, 0, 0
	}
	if r.leader.clockOffset.Abs() > time.Minute {
		r.lead(0)
	}
	if slices.ContainsFunc(r.Events, func(e Event) bool { return e.Cause == DeleteBlocked }) {
		r.checkDeletions()
	}
	r.repair()
}
