// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"slices"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// number is one that was given: to which node, and in which look at the world.
type number struct {
	uid  string
	look int
}

// checkNumber: in one rollout numbers begin at 0, grow, and are given once. A node that is gone took its number along.
func (s *storm) checkNumber(by round, a rollout.Action) {
	r, t := s.w.Rollout(a.Rollout), s.w.Target(a.Rollout, a.Node)
	if r == nil || t == nil || !r.Numbered {
		return
	}
	given := s.numbers[r.UID]
	if given == nil {
		given = map[int]number{}
		s.numbers[r.UID] = given
	}
	for n, was := range given {
		if s.there(was.uid) && (n == a.Order || n > a.Order && was.look < by.looked && !promised(by.view, a)) {
			s.broken("%s gives number %d to %s, and %d was given before", r.Ref, a.Order, a.Node, n)
		}
	}
	given[a.Order] = number{t.UID, by.looked}
}

// numbersEnd: when the number that comes next is 0, the rollout has ended, and only who stays in flight has one.
func (s *storm) numbersEnd(o *operator, r *rollout.Rollout) {
	given := map[int]number{}
	for i := range r.Targets {
		if t := &r.Targets[i]; t.Admitted && !o.retires(r.Ref, t.Node) {
			given[t.Order] = number{t.UID, s.numbers[r.UID][t.Order].look}
		}
	}
	s.numbers[r.UID] = given
}

func (o *operator) retires(of rollout.Ref, node string) bool {
	return slices.ContainsFunc(o.plan.Actions, func(a rollout.Action) bool {
		return a.Verb == rollout.VerbRetire && a.Rollout == of && a.Node == node
	})
}

func (s *storm) there(uid string) bool {
	return slices.ContainsFunc(s.w.Truth.Nodes, func(n rollout.Node) bool { return n.UID == uid })
}
