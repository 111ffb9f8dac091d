// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"slices"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/sim"
)

// isShared reports whether a target may be admitted to a node on which another one is in progress: both share their reboots, and the
// other one awaits its own.
func (s *faultTest) isShared(v sim.View, a rollout.Action, r *rollout.Rollout, other *rollout.Target) bool {
	n, owes := findObservedNode(v, a.Node), false
	for _, k := range s.findObservedTarget(v, a).Tasks {
		owes = owes || k.Reboot && k.State != rollout.StateDone
	}
	return r.SharesReboots && owes && isAwaiting(other, n.BootID)
}

func isAwaiting(t *rollout.Target, boot string) bool {
	return t.Reboot != nil && t.Reboot.Boot == boot && len(t.Reboot.Tasks) > 0
}

// isSharedInBatch reports whether a target of the open batch awaits a reboot on the node of another target. When the admission of the
// other one is written already, the target may have finished since.
func (s *faultTest) isSharedInBatch(g *rollout.Group, t *rollout.Target, isReserved bool) bool {
	for i := range s.cluster.State.Rollouts {
		o := s.cluster.FindTarget(s.cluster.State.Rollouts[i].Ref, t.Node)
		isHere := o != nil && o != t && o.UID == t.UID && o.Group == g.Ref
		if isHere && (isOfBatch(o, g) || isReserved && o.Visit.BatchOf == g.Ref && o.Visit.Batch >= g.Memory.From) {
			return true
		}
	}
	return false
}

// checkTurn: of the targets on a node that share their reboots, one at a time has objects there.
func (s *faultTest) checkTurn(a rollout.Action, r *rollout.Rollout) string {
	n := s.cluster.FindNode(a.Node)
	for i := range s.cluster.State.Rollouts {
		other := &s.cluster.State.Rollouts[i]
		o := s.cluster.FindTarget(other.Ref, a.Node)
		isInProgress := o != nil && other.Ref != r.Ref && o.UID == n.UID && o.Visit.Admitted && r.SharesReboots && other.SharesReboots
		if isInProgress && mayBeWorking(o) {
			return "another rollout that shares its reboot works on the node"
		}
	}
	return ""
}

// checkJoin: a target awaits a reboot only when everything that comes before its interrupts is recorded, and nothing of it runs.
func (s *faultTest) checkJoin(v sim.View, a rollout.Action, t *rollout.Target, r *rollout.Rollout) string {
	n := findObservedNode(v, a.Node)
	switch {
	case !r.SharesReboots:
		return "it does not share its reboots"
	case !holdsNode(n, a.Rollout):
		return "the node is not held"
	case mayBeWorking(t):
		return "something of it runs on the node"
	}
	for _, id := range a.Covers {
		k := sim.FindTask(t, id)
		if k == nil {
			continue // it is not needed any more
		}
		if k.Need != rollout.NeedAlone || !areDone(t, k.After) || k.Recorded == rollout.StateRunning {
			return id + " is not ready for a reboot"
		}
	}
	if !slices.ContainsFunc(a.Covers, func(id string) bool { k := sim.FindTask(t, id); return k == nil || k.Reboot }) {
		return "none of its tasks reboots the node"
	}
	return ""
}
