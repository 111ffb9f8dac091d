// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/rollout/engine"
)

// newSendingSnapshot returns a rollout on four nodes in a group with a limit of two.
func newSendingSnapshot() rollout.Snapshot {
	s := rollout.Snapshot{Now: time.Unix(1000, 0), Ledgers: []rollout.Ledger{{Owner: rollout.ParseRef("l"), Epoch: 7}}}
	s.Groups = []rollout.Group{{Ref: rollout.ParseGroupRef("g"), Ledger: rollout.ParseRef("l"), Limit: 2, Pace: rollout.Pace{Kind: rollout.PaceWindow}}}
	q := rollout.Rollout{Ref: rollout.ParseRef("Skyhook/demo")}
	for i := range 4 {
		name := fmt.Sprintf("n%d", i)
		s.Nodes = append(s.Nodes, rollout.Node{Name: name, Ready: true, Created: time.Unix(int64(i), 0)})
		q.Targets = append(q.Targets, &rollout.Target{Node: name, Group: rollout.ParseGroupRef("g"), Tasks: []rollout.Task{{ID: "apply", State: rollout.StatePending}}})
	}
	s.Rollouts = []rollout.Rollout{q}
	return s
}

// listAdmitted returns the orders of the admissions of a plan, by node.
func listAdmitted(t *testing.T, s rollout.Snapshot, p rollout.Plan) map[string]int {
	t.Helper()
	out := map[string]int{}
	for _, a := range p.Actions {
		for _, n := range s.Nodes {
			if n.Name == a.Node && n.Sending {
				t.Errorf("%s of %s is planned while an earlier plan is applied to the node", a.Verb, a.Node)
			}
		}
		if a.Verb == rollout.VerbAdmit {
			out[a.Node] = a.Order
		}
	}
	return out
}

// TestSendingAdmission checks an admission that is being sent to its node: it counts against the limit, the node gets no
// other actions, and other nodes continue. The ledger is not written again for it, and its reservation is unchanged.
func TestSendingAdmission(t *testing.T) {
	s := newSendingSnapshot()
	first := engine.Decide(s)
	if got := listAdmitted(t, s, first); len(got) != 2 || len(first.Ledgers) != 1 {
		t.Fatalf("admitted %v with ledgers %v, want two nodes and one ledger", got, first.Ledgers)
	}
	s.Ledgers = first.Ledgers
	s.Nodes[0].Sending, s.Nodes[1].Sending = true, true
	next := engine.Decide(s)
	if len(next.Actions) > 0 || len(next.Ledgers) > 0 || next.Reports[0].NextOrder != s.Rollouts[0].Numbering.Next {
		t.Errorf("with both admissions being sent there are actions %v, ledgers %v and next order %d", next.Actions, next.Ledgers, next.Reports[0].NextOrder)
	}
	for _, v := range next.Reports[0].Verdicts[:2] {
		if v.Phase != rollout.PhaseInFlight {
			t.Errorf("%s is %s (%s), want in flight", v.Node, v.Phase, v.Why.Text)
		}
	}
	s.Groups[0].Limit = 3
	next = engine.Decide(s)
	got := listAdmitted(t, s, next)
	if len(got) != 1 || got["n2"] < 2 || len(next.Ledgers) != 1 {
		t.Fatalf("with a limit of three %v are admitted with ledgers %v, want n2 with an order of its own", got, next.Ledgers)
	}
	for _, reservation := range next.Ledgers[0].Admitting[:2] {
		if reservation.Batch != first.Ledgers[0].Epoch {
			t.Errorf("the reservation of %s has epoch %d", reservation.Node, reservation.Batch)
		}
	}
}

// TestSendingAdmissionWithoutLedger checks that an admission that is being sent counts against the limit of its rollout.
func TestSendingAdmissionWithoutLedger(t *testing.T) {
	s := newSendingSnapshot()
	s.Groups[0] = rollout.Group{Ref: rollout.ParseGroupRef("g"), Limit: rollout.Unlimited, Pace: rollout.Pace{Kind: rollout.PaceWindow}}
	s.Ledgers, s.Rollouts[0].Limit = nil, 1
	if got := listAdmitted(t, s, engine.Decide(s)); len(got) != 1 {
		t.Fatalf("admitted %v, want one node", got)
	}
	s.Nodes[0].Sending = true
	if got := listAdmitted(t, s, engine.Decide(s)); len(got) != 0 {
		t.Errorf("beside an admission that is being sent %v are admitted", got)
	}
	s.Nodes[0].Ready = false
	if got := listAdmitted(t, s, engine.Decide(s)); len(got) != 0 {
		t.Errorf("beside an admission that is being sent to a node that became not ready %v are admitted", got)
	}
	s.Nodes[0].Ready, s.Rollouts[0].Limit, s.Rollouts[0].Numbering.OnTheirWay = true, 2, 1
	if got := listAdmitted(t, s, engine.Decide(s)); len(got) != 1 || got["n1"] == 0 {
		t.Errorf("with a limit of two %v are admitted, want n1 with an order of its own", got)
	}
}

// TestSendingNodeGetsNoActions checks that the next actions of a node wait until the outcome of the last ones is known.
func TestSendingNodeGetsNoActions(t *testing.T) {
	s := newSendingSnapshot()
	target := s.Rollouts[0].Targets[0]
	target.Visit.Admitted, target.Visit.Batch, target.Tasks[0].State, target.Tasks[0].Object.Name = true, 7, rollout.StateSucceeded, "pod"
	if p := engine.Decide(s); len(p.Actions) == 0 || p.Actions[0].Node != "n0" {
		t.Fatalf("the outcome on n0 leads to no action: %v", p.Actions)
	}
	s.Nodes[0].Sending = true
	got := listAdmitted(t, s, engine.Decide(s))
	if len(got) != 1 {
		t.Errorf("beside n0 %v are admitted, want one more", got)
	}
}

// TestSendingHold checks that a hold that is being sent counts like a placed one: while the group is over its limit no
// other node is held, whatever the outcome on the node.
func TestSendingHold(t *testing.T) {
	s := newSendingSnapshot()
	s.Groups[0].Limit = 1
	for i := range 2 { // both were admitted when the limit was two
		target := s.Rollouts[0].Targets[i]
		target.Visit.Admitted, target.Visit.Batch, target.Visit.AdmittedAt, target.Visit.Order = true, 7, time.Unix(int64(i), 0), i
		target.Tasks[0].Need = rollout.NeedDrained
	}
	held := func() (out []string) {
		for _, a := range engine.Decide(s).Actions {
			if a.Verb == rollout.VerbHold {
				out = append(out, a.Node)
			}
		}
		return out
	}
	if got := held(); len(got) != 1 || got[0] != "n0" {
		t.Fatalf("%v are held, want n0, which was admitted first", got)
	}
	s.Nodes[1].Sending = true // an earlier plan, for which n1 was the first, may hold it
	if got := held(); len(got) != 0 {
		t.Errorf("beside a hold that is being sent %v are held", got)
	}
	task := &s.Rollouts[0].Targets[1].Tasks[0]
	task.State, task.Recorded, task.Attempts.Failed = rollout.StateFailing, rollout.StateFailing, 3
	if got := held(); len(got) != 0 {
		t.Errorf("beside a hold that is being sent to a node that failed for good %v are held", got)
	}
	s.Nodes[1].Sending = false
	if got := held(); len(got) != 1 || got[0] != "n0" {
		t.Errorf("%v are held, want n0: a node that failed for good and is not held frees its slot", got)
	}
}

// TestSendingRetirement checks that a rollout is not finished while the retirement of its last node is being sent: until
// then the numbers of its nodes do not start again.
func TestSendingRetirement(t *testing.T) {
	s := newSendingSnapshot()
	q := &s.Rollouts[0]
	q.Targets, q.Numbering.Stored, q.Numbering.Next = q.Targets[:1], true, 4
	q.Targets[0].Visit.Admitted, q.Targets[0].Visit.Batch, q.Targets[0].Visit.Order = true, 7, 3
	q.Targets[0].Tasks[0].State, q.Targets[0].Tasks[0].Recorded = rollout.StateDone, rollout.StateDone
	p := engine.Decide(s)
	if n := len(p.Actions); n == 0 || p.Actions[n-1].Verb != rollout.VerbRetire || p.Reports[0].NextOrder != 0 {
		t.Fatalf("without pending work there are actions %v and next order %d, want a retirement and 0", p.Actions, p.Reports[0].NextOrder)
	}
	s.Nodes[0].Sending = true
	if p = engine.Decide(s); len(p.Actions) > 0 || p.Reports[0].NextOrder != 4 {
		t.Errorf("while the retirement is being sent there are actions %v and next order %d, want none and 4", p.Actions, p.Reports[0].NextOrder)
	}
}
