// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/rollout/engine"
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
	one, two := sortPlan(plan), sortPlan(engine.Decide(without))
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

// hostDrift is what changed on hosts after the work of a rollout was done there, what checks found of it, and what was repaired.
// What changed is toConfigure or toApply, by package.
type hostDrift struct {
	isRepaired bool
	changed    map[string]map[string]int // by node UID
	found      map[string]map[string]int // by object that checked the node
	repairs    map[string][]time.Time    // when they were asked for, by node UID and package
}

// undo notes that a package was installed or configured.
func (d *hostDrift) undo(uid, name, kind string) {
	if kind != "config" || d.changed[uid][name] == toConfigure {
		delete(d.changed[uid], name)
	}
}

// A package is repaired three times a day on a node.
const mostRepairs = 3

func (d *hostDrift) mayRepair(uid, name string, now time.Time) bool {
	recent := 0
	for _, at := range d.repairs[uid+name] {
		if now.Sub(at) < 24*time.Hour {
			recent++
		}
	}
	return recent < mostRepairs
}

// injectDrift changes a package on a host behind the back of the rollout.
func (s *faultTest) injectDrift() {
	w := s.desired[s.random.Intn(len(s.desired))]
	for _, uid := range slices.Sorted(maps.Keys(w.kept)) {
		for _, name := range slices.Sorted(maps.Keys(w.kept[uid])) {
			if s.chance(s.rates.drift) {
				if w.drift.changed[uid] == nil {
					w.drift.changed[uid] = map[string]int{}
				}
				w.drift.changed[uid][name] = []int{toConfigure, toApply}[s.random.Intn(2)]
				s.logf("%s drifts on %s", name, uid)
			}
		}
	}
}

// noteDrift asks for the repair of what a check found, as the front end does with the note: what is installed has to be configured or
// applied again. On a node that rolled back nothing is repaired.
func (s *faultTest) noteDrift(a rollout.Action) {
	at := slices.IndexFunc(s.desired, func(w *desiredRollout) bool { return w.name == a.Rollout })
	t := s.cluster.FindTarget(a.Rollout, a.Node)
	if at < 0 || t == nil {
		return
	}
	w := s.desired[at]
	found := w.drift.found[a.Object]
	delete(w.drift.found, a.Object)
	for _, name := range slices.Sorted(maps.Keys(found)) {
		is, isThere := w.kept[t.UID][name]
		if _, hasWork := w.goals[t.UID][name]; !isThere || hasWork || !w.drift.isRepaired || t.Rollback.Cause != nil || !w.drift.mayRepair(t.UID, name, s.cluster.State.Now) {
			continue
		}
		if t.Visit.Admitted {
			s.failf("a check of %s ended in a repair, and %s works there", a.Node, a.Rollout)
		}
		s.logf("%s is repaired on %s", name, a.Node)
		w.kept[t.UID][name] = installedPackage{is.version, found[name]}
		w.drift.repairs[t.UID+name] = append(w.drift.repairs[t.UID+name], s.cluster.State.Now)
	}
}

// findUnrepaired returns a package that drifted and is still to be repaired; empty if there is none. What changed too often is not.
func (s *faultTest) findUnrepaired() string {
	for _, w := range s.desired {
		r := s.cluster.FindRollout(w.name)
		if r == nil || r.Deleting || r.DriftLimit == 0 || !w.drift.isRepaired {
			continue
		}
		for _, t := range r.Targets {
			n := s.cluster.FindNode(t.Node)
			isToBeRepaired := n != nil && n.UID == t.UID && !t.Leaving && !t.Wiped
			for _, name := range slices.Sorted(maps.Keys(w.drift.changed[t.UID])) {
				if _, isThere := w.kept[t.UID][name]; isThere && isToBeRepaired && w.drift.mayRepair(t.UID, name, s.cluster.State.Now) {
					return fmt.Sprintf("%s of %s on %s", name, w.name, t.Node)
				}
			}
		}
	}
	return ""
}

// latestRepair is the pass without faults until which everything that drifted is repaired.
const latestRepair = 450

// checkRepairs ends the checks for drift when everything is repaired. They would go on for ever.
func (s *faultTest) checkRepairs(pass int) {
	left := s.findUnrepaired()
	switch {
	case left == "":
		for i := range s.cluster.State.Rollouts {
			s.cluster.State.Rollouts[i].DriftLimit = 0
		}
	case pass == latestRepair:
		s.failf("without faults it is not repaired: %s", left)
	case pass%50 == 49: // it waits for what was given up
		s.retrySkipped()
	}
}

// compileDrift has the nodes of a rollout checked for drift. A check ends at some time; that of a node which is no longer selected, or
// of a deleted rollout, belongs to nothing.
func (s *faultTest) compileDrift(w *desiredRollout, r *rollout.Rollout, t *rollout.Target) {
	drift := rollout.Drift{}
	if t.Drift != nil {
		drift = *t.Drift
	}
	if r.DriftLimit == 0 || t.Leaving || r.Deleting {
		t.Objects.Orphans = append(t.Objects.Orphans, drift.Old...)
		if drift.Object != "" {
			t.Objects.Orphans = append(t.Objects.Orphans, drift.Object)
		}
		t.Drift = nil
		return
	}
	drift.Limit = time.Minute
	if drift.Object != "" && !drift.Ended && s.chance(30) {
		drift.Ended, drift.Keep = true, len(w.drift.changed[t.UID]) > 0
		w.drift.found[drift.Object] = maps.Clone(w.drift.changed[t.UID])
	}
	if drift.Going && s.chance(40) {
		drift.Going = false
	}
	t.Drift = &drift
}

// ignoreFutureChecks lets a node be checked now when another operator, with another clock, noted a check in the future.
func ignoreFutureChecks(s *rollout.Snapshot) {
	latest := s.Now.Add(10 * time.Minute)
	for i := range s.Rollouts {
		for j := range s.Rollouts[i].Targets {
			if t := s.Rollouts[i].Targets[j]; t.Drift != nil && t.Drift.Due.After(latest) {
				drift := *t.Drift
				drift.Due, t.Drift = time.Time{}, &drift
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
	case seen.Visit.Admitted || seen.Leaving || hasWork || seen.Rollback.Cause != nil || seen.Blocked != nil:
		return "the target is not finished"
	case n.Cordoned || len(n.Holds) > 0 || !n.Ready || n.Sending:
		return "the node is held, not ready, or in use"
	case seen.Drift == nil || seen.Drift.Object != "" || seen.Drift.Due.After(v.Now):
		return "no check is due"
	}
	for i := range v.Snapshot.Rollouts {
		for _, t := range v.Snapshot.Rollouts[i].Targets {
			if t.Node == a.Node && t.Visit.Admitted && t.UID == n.UID {
				return "another rollout works on the node"
			}
		}
	}
	return ""
}
