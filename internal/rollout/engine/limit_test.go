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

// TestRolloutLimit checks a rollout with a limit of two targets in groups that allow more. Its own targets in flight
// and reservations count, those of other rollouts do not.
func TestRolloutLimit(t *testing.T) {
	s := rollout.Snapshot{Now: time.Unix(1000, 0), Ledgers: []rollout.Ledger{{Owner: rollout.ParseRef("l")}}}
	q := rollout.Rollout{Ref: rollout.ParseRef("NodeOp/default/up"), Limit: 2}
	for i := range 6 {
		name := fmt.Sprintf("n%d", i)
		s.Nodes = append(s.Nodes, rollout.Node{Name: name, Ready: true})
		q.Targets = append(q.Targets, &rollout.Target{Node: name, Group: rollout.GroupRef{Compartment: []string{"a", "b"}[i%2]}, Tasks: []rollout.Task{{ID: "command", State: rollout.StatePending}}})
	}
	for _, g := range []string{"a", "b"} {
		s.Groups = append(s.Groups, rollout.Group{Ref: rollout.ParseGroupRef(g), Ledger: rollout.ParseRef("l"), Limit: 3, Pace: rollout.Pace{Kind: rollout.PaceWindow}})
	}
	admits := func() int {
		s.Rollouts = []rollout.Rollout{q, {Ref: rollout.ParseRef("NodeOp/default/other"), Targets: []*rollout.Target{{Node: "n5", Group: rollout.ParseGroupRef("a"), Visit: rollout.Visit{Admitted: true}, Tasks: q.Targets[5].Tasks}}}}
		n := 0
		for _, a := range engine.Decide(s).Actions {
			if a.Verb == rollout.VerbAdmit {
				n++
			}
		}
		return n
	}
	if n := admits(); n != 2 {
		t.Errorf("%d nodes are admitted, want 2", n)
	}
	q.Targets[0].Visit.Admitted = true
	if n := admits(); n != 1 {
		t.Errorf("with one target in flight %d nodes are admitted, want 1", n)
	}
	s.Ledgers[0] = rollout.Ledger{Owner: rollout.ParseRef("l"), Epoch: 1, Admitting: []rollout.Reservation{{Rollout: q.Ref, Node: "n1", Group: rollout.ParseGroupRef("b"), Batch: 1, Since: s.Now}}}
	if n := admits(); n != 1 { // the reserved one only
		t.Errorf("with one target in flight and one reserved %d nodes are admitted, want 1", n)
	}
	q.Limit = 0
	if n := admits(); n < 3 {
		t.Errorf("without a limit %d nodes are admitted, want at least 3", n)
	}
}
