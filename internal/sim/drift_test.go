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

// checkDriftChangesNothing: without the checks for drift the plan is the same.
func (s *faultTest) checkDriftChangesNothing(snap rollout.Snapshot, plan rollout.Plan) {
	objects := map[string]bool{}
	without := sim.Clone(snap)
	for i := range without.Rollouts {
		r := &without.Rollouts[i]
		for j := range r.Targets {
			if drift := r.Targets[j].Drift; drift != nil {
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

// checkDriftLimit: a check starts only while fewer nodes of its rollout are checked than may be. A check lasts until its object has
// ended or is gone, whatever is planned for it.
func (s *faultTest) checkDriftLimit(snap rollout.Snapshot, plan rollout.Plan) {
	checks, starts := map[rollout.Ref]int{}, map[rollout.Ref]bool{}
	for _, r := range snap.Rollouts {
		for _, t := range r.Targets {
			at := slices.IndexFunc(snap.Nodes, func(n rollout.Node) bool { return n.Name == t.Node && n.UID == t.UID })
			if drift := t.Drift; drift != nil && at >= 0 {
				isGoing := drift.Going && snap.Nodes[at].Ready
				if isGoing || drift.Object != "" && !drift.Ended {
					checks[r.Ref]++
				}
			}
		}
	}
	for _, a := range plan.Actions {
		if a.Verb == rollout.VerbVerify {
			checks[a.Rollout]++
			starts[a.Rollout] = true
		}
	}
	for _, r := range snap.Rollouts {
		if starts[r.Ref] && checks[r.Ref] > r.DriftLimit {
			s.failf("%s checks %d nodes for drift, at most %d may be", r.Ref, checks[r.Ref], r.DriftLimit)
		}
	}
}

// compileDrift has the nodes of a rollout checked for drift. A check ends at some time; that of a node which is no longer selected, or
// of a deleted rollout, belongs to nothing.
func (s *faultTest) compileDrift(r *rollout.Rollout, t *rollout.Target) {
	drift := rollout.Drift{}
	if t.Drift != nil {
		drift = *t.Drift
	}
	if r.DriftLimit == 0 || t.Leaving || r.Deleting {
		t.Strays = append(t.Strays, drift.Old...)
		if drift.Object != "" {
			t.Strays = append(t.Strays, drift.Object)
		}
		t.Drift = nil
		return
	}
	drift.Limit = time.Minute
	if drift.Object != "" && s.chance(30) {
		drift.Ended, drift.Keep = true, s.chance(30)
	}
	if drift.Going && s.chance(40) {
		drift.Going = false
	}
	t.Drift = &drift
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
