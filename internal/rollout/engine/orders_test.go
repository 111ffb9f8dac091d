// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"testing"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/rollout/engine"
)

// TestForeignOrder checks that an order that was written to a node by hand changes the order of no other node, and that the node
// is given back.
func TestForeignOrder(t *testing.T) {
	s := newSendingSnapshot()
	q := &s.Rollouts[0]
	q.Numbering.Stored, q.Numbering.Next = true, 4
	q.Targets[0].Visit.Admitted, q.Targets[0].Visit.Batch, q.Targets[0].Visit.Order = true, 7, 1<<40
	q.Targets[0].Tasks[0].State, q.Targets[0].Tasks[0].Recorded = rollout.StateDone, rollout.StateDone
	p := engine.Decide(s)
	if got := p.Reports[0].NextOrder; got > 10 {
		t.Errorf("the next order is %d", got)
	}
	isRetired := false
	for _, a := range p.Actions {
		isRetired = isRetired || a.Verb == rollout.VerbRetire && a.Node == q.Targets[0].Node
	}
	if !isRetired {
		t.Errorf("the node is not given back: %v, %+v", p.Actions, p.Reports[0].Verdicts)
	}
}
