// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"slices"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// number is an order of an admission: its node, and the decision that gave it.
type number struct {
	uid      string
	decision int
}

// checkNumber checks that the numbers of a rollout start at 0, increase, and are given once.
func (s *faultTest) checkNumber(by observation, a rollout.Action) {
	r, t := s.cluster.FindRollout(a.Rollout), s.cluster.FindTarget(a.Rollout, a.Node)
	if r == nil || t == nil || !r.Numbering.Stored {
		return
	}
	given := s.numbers[r.UID]
	if given == nil {
		given = map[int]number{}
		s.numbers[r.UID] = given
	}
	for n, was := range given {
		if s.hasNode(was.uid) && (n == a.Order || n > a.Order && was.decision < by.decision && !isReserved(by.view, a)) {
			s.failf("%s gives number %d to %s after number %d", r.Ref, a.Order, a.Node, n)
		}
	}
	given[a.Order] = number{t.UID, by.decision}
}

// endNumbers forgets the numbers of a rollout whose next number is 0, except those of targets in flight.
func (s *faultTest) endNumbers(o *operator, r *rollout.Rollout) {
	given := map[int]number{}
	for i := range r.Targets {
		if t := r.Targets[i]; t.Visit.Admitted && !o.isRetiring(r.Ref, t.Node) {
			given[t.Visit.Order] = number{t.UID, s.numbers[r.UID][t.Visit.Order].decision}
		}
	}
	s.numbers[r.UID] = given
}

func (o *operator) isRetiring(of rollout.Ref, node string) bool {
	return slices.ContainsFunc(o.plan.Actions, func(a rollout.Action) bool {
		return a.Verb == rollout.VerbRetire && a.Rollout == of && a.Node == node
	})
}

func (s *faultTest) hasNode(uid string) bool {
	return slices.ContainsFunc(s.cluster.State.Nodes, func(n rollout.Node) bool { return n.UID == uid })
}
