// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"fmt"
	"slices"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/sim"
)

// compilePull says whether the images of a target are pulled before its turn, and how far that is. A pull ends, fails, is tried again, or
// is lost.
func (s *faultTest) compilePull(w *desiredRollout, r *rollout.Rollout, t *rollout.Target) {
	p := rollout.Pull{}
	if t.Pull != nil {
		p = *t.Pull
	}
	if t.Leaving || r.Deleting {
		t.Objects.Orphans = append(t.Objects.Orphans, p.Old...)
		if p.Object != "" {
			t.Objects.Orphans = append(t.Objects.Orphans, p.Object)
		}
		t.Pull = nil
		return
	}
	hasWork := slices.ContainsFunc(t.Tasks, func(k rollout.Task) bool { return k.State != rollout.StateDone })
	p.Needed = w.pulls && hasWork && !t.Visit.Admitted && t.Rollback.Cause == nil
	switch {
	case !p.Needed && p.Object != "":
		p = rollout.Pull{Old: append(slices.Clone(p.Old), p.Object)}
	case !p.Needed:
		p = rollout.Pull{Old: p.Old}
	case p.Leaving && s.chance(50):
		p.Leaving = false
	case p.Object != "" && !p.Ended && s.chance(40):
		p.Ended, p.Failed = true, nil
	case p.Object != "" && !p.Ended && s.chance(s.rates.pull):
		p.Failed = &rollout.Why{Reason: rollout.ReasonImagePull, Text: "the image cannot be pulled"}
	case p.Object != "" && s.chance(s.rates.reset):
		p.Object, p.Ended, p.Failed, p.Leaving = "", false, nil, s.chance(50)
		s.logf("the pull of %s on %s is lost", r.Ref, t.Node)
	}
	t.Pull = &p
	if !p.Needed && len(p.Old) == 0 {
		t.Pull = nil
	}
}

// finishPull ends the pull of a target, and reports whether there was anything to end.
func finishPull(t *rollout.Target) bool {
	if t.Pull == nil || t.Pull.Object == "" && !t.Pull.Leaving || t.Pull.Ended {
		return false
	}
	p := *t.Pull
	p.Ended, p.Failed, p.Leaving = p.Object != "", nil, false
	t.Pull = &p
	return true
}

// checkPull: images are pulled where the target needs them and may begin, before it is admitted.
func (s *faultTest) checkPull(v sim.View, seen *rollout.Target, r *rollout.Rollout) string {
	n, g := findObservedNode(v, seen.Node), findObservedGroup(v, seen.Group)
	switch {
	case r.Deleting:
		return "the rollout is deleted"
	case seen.Pull == nil || !seen.Pull.Needed || seen.Pull.Object != "" || seen.Pull.Leaving:
		return "no pull is needed"
	case seen.Visit.Admitted || seen.Leaving || !n.Ready || n.Sending:
		return "the target is admitted, or cannot begin"
	case g.Frozen != nil, g.Memory.Stopped, g.Failed != nil:
		return "the group is frozen or stopped"
	case checkWave(v, g, r, seen) != "":
		return checkWave(v, g, r, seen)
	}
	return ""
}

// checkPulled: a target is admitted when its images are on the node.
func checkPulled(v sim.View, a rollout.Action, seen *rollout.Target, r *rollout.Rollout) string {
	isExempt := seen.Rollback.WithOthers || r.Deleting || isReserved(v, a) || holdsNode(findObservedNode(v, a.Node), r.Ref) || hasObjects(seen)
	if p := seen.Pull; p != nil && p.Needed && !p.Ended && !isExempt {
		return "its images are not on the node"
	}
	return ""
}

// checkPullLimit: one plan starts pulls on as many nodes as the group may have busy, and none of those is admitted by it.
func (s *faultTest) checkPullLimit(snap rollout.Snapshot, plan rollout.Plan) {
	started, admitted := map[rollout.GroupRef]int{}, map[string]bool{}
	for _, a := range plan.Actions {
		key := fmt.Sprint(a.Rollout, a.Node)
		switch a.Verb {
		case rollout.VerbAdmit:
			admitted[key] = true
		case rollout.VerbPull:
			if t := s.cluster.FindTarget(a.Rollout, a.Node); t != nil {
				started[t.Group]++
			}
			if admitted[key] {
				s.failf("%s pulls images on %s before its turn, and admits it", a.Rollout, a.Node)
			}
		}
	}
	for _, g := range snap.Groups {
		if g.Limit != rollout.Unlimited && started[g.Ref] > max(g.Limit, 0) {
			s.failf("%s pulls images on %d more nodes at once, and its limit is %d", g.Ref, started[g.Ref], g.Limit)
		}
	}
}
