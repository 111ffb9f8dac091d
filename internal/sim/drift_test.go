// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"reflect"
	"slices"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/sim"
)

// checkDriftChangesNothing: without the checks for drift the plan is the same. No more nodes of a rollout are checked at the same time
// than its limit.
func (s *faultTest) checkDriftChangesNothing(snap rollout.Snapshot, plan rollout.Plan) {
	checks := map[rollout.Ref]int{}
	objects, running := map[string]bool{}, map[string]bool{}
	without := sim.Clone(snap)
	for i := range without.Rollouts {
		r := &without.Rollouts[i]
		for j := range r.Targets {
			if drift := r.Targets[j].Drift; drift != nil {
				isGone := !slices.ContainsFunc(snap.Nodes, func(n rollout.Node) bool { return n.Name == r.Targets[j].Node && n.UID == r.Targets[j].UID })
				if drift.Object != "" && !drift.Ended && !isGone {
					checks[r.Ref]++
					running[drift.Object] = true
				}
				objects[drift.Object] = true
				for _, o := range drift.Old {
					objects[o] = true
				}
			}
			r.Targets[j].Drift = nil
		}
		r.DriftLimit = 0
	}
	isOfDrift := func(a rollout.Action) bool {
		return a.Verb == rollout.VerbVerify || a.Verb == rollout.VerbNote || a.Verb == rollout.VerbSweep && objects[a.Object]
	}
	for _, a := range plan.Actions {
		switch {
		case a.Verb == rollout.VerbVerify:
			checks[a.Rollout]++
		case (a.Verb == rollout.VerbSweep || a.Verb == rollout.VerbNote) && running[a.Object]: // the node is worked on, or the check takes too long
			checks[a.Rollout]--
			delete(running, a.Object)
		}
	}
	for i := range snap.Rollouts {
		r := &snap.Rollouts[i]
		startsAny := slices.ContainsFunc(plan.Actions, func(a rollout.Action) bool { return a.Verb == rollout.VerbVerify && a.Rollout == r.Ref })
		if startsAny && checks[r.Ref] > r.DriftLimit {
			s.failf("%s checks %d nodes for drift, at most %d may be", r.Ref, checks[r.Ref], r.DriftLimit)
		}
	}
	plan.Actions = slices.DeleteFunc(slices.Clone(plan.Actions), isOfDrift)
	one, two := sortPlan(plan), sortPlan(rollout.Decide(without))
	one.Next, two.Next = snap.Now, snap.Now
	if len(one.Actions) == 0 {
		one.Actions = two.Actions[:min(len(two.Actions), 0)]
	}
	if !reflect.DeepEqual(one, two) {
		s.failf("checks for drift change the plan:\n%+v\n%+v", one, two)
	}
}

// limitDrift bounds the times of checks that an operator with another clock recorded.
func limitDrift(s *rollout.Snapshot) {
	latest := s.Now.Add(10 * time.Minute)
	for i := range s.Rollouts {
		for j := range s.Rollouts[i].Targets {
			if t := &s.Rollouts[i].Targets[j]; t.Drift != nil && t.Drift.Due.After(latest) {
				drift := *t.Drift
				drift.Due, t.Drift = latest, &drift
			}
		}
	}
}

// checkVerify: a node is checked for drift only when everything is done there, and nobody works on it or holds it.
func (s *faultTest) checkVerify(v sim.View, a rollout.Action, seen *rollout.Target, r *rollout.Rollout) string {
	n := findObservedNode(v, a.Node)
	hasWork := slices.ContainsFunc(seen.Tasks, func(k rollout.Task) bool { return k.State != rollout.StateDone })
	switch {
	case r.Paused || r.Deleting || r.Broken != nil:
		return "the rollout is paused or deleted"
	case seen.Admitted || seen.Leaving || hasWork || seen.RolledBack != nil || seen.Blocked != nil:
		return "the target is not finished"
	case n.Cordoned || len(n.Holds) > 0 || !n.Ready || n.Sending:
		return "the node is held, not ready, or in use"
	case seen.Drift == nil || seen.Drift.Object != "" || seen.Drift.Due.After(v.Now):
		return "no check is due"
	}
	for i := range v.Snapshot.Rollouts {
		for _, t := range v.Snapshot.Rollouts[i].Targets {
			if t.Node == a.Node && t.Admitted && t.UID == n.UID {
				return "another rollout works on the node"
			}
		}
	}
	return ""
}
