// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"slices"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/sim"
)

// checkRun: a task runs after those that it waits for, and on a node that is as it needs it.
func (c *planCheck) checkRun(a acting) string {
	t, k := a.target, sim.FindTask(a.target, a.Task)
	if k == nil || k.Object.Name != "" {
		return "there is no such task, or it runs"
	}
	if !t.Visit.Admitted {
		return "the target is not admitted"
	}
	if problem := checkThen(a); problem != "" {
		return problem
	}
	if !areDone(t, k.After) {
		return "what it waits for is not recorded"
	}
	if k.Need != rollout.NeedNothing {
		switch {
		case !holdsNode(a.node, a.Rollout) || !a.node.Cordoned:
			return "the node is not held"
		case !a.seen.Drain.PodsSeen || c.hasPodLeft(a):
			return "pods are left"
		}
	}
	working, alone := c.countObjects(a.was)
	switch {
	case !a.was.Ready:
		return "the node is not ready"
	case alone > 0:
		return "an interrupt is running"
	case k.Need == rollout.NeedAlone && working > 0:
		return "something else runs on the node"
	case a.rollout.Serial && slices.ContainsFunc(t.Tasks, isWorking):
		return "another task runs"
	}
	for i := range t.Tasks {
		o := &t.Tasks[i]
		hasBegun := o != k && o.Need == rollout.NeedAlone && (o.Recorded == rollout.StateRunning || o.Recorded == rollout.StateFailing)
		if hasBegun && !hasFailedForGood(o) && areDone(t, o.After) { // unless something before it was edited, and begins anew
			return o.ID + " was begun and has not ended"
		}
	}
	if k.Need == rollout.NeedAlone {
		return checkInterrupt(a, k)
	}
	return ""
}

// hasPodLeft reports whether a pod is left that must leave the node.
func (c *planCheck) hasPodLeft(a acting) bool {
	mayStay := c.mayForceProtected(a)
	if a.Rollout.Kind == Skyhooks.Kind && c.run.hasTurnedAwayPod(a.Node) {
		return true
	}
	return slices.ContainsFunc(a.seen.Drain.Pods, func(p rollout.Pod) bool { return !p.Stays || !mayStay })
}

// checkThen checks the tasks that an object runs after the first one.
func checkThen(a acting) string {
	before, first := []string{a.Task}, sim.FindTask(a.target, a.Task)
	for _, id := range a.Then {
		k := sim.FindTask(a.target, id)
		if k == nil {
			return "there is no task " + id
		}
		for _, after := range k.After {
			if o := sim.FindTask(a.target, after); o != nil && o.Recorded != rollout.StateDone && !slices.Contains(before, after) {
				return id + " does not wait for " + after
			}
		}
		joins := slices.ContainsFunc(k.After, func(after string) bool { return slices.Contains(before, after) }) || first.JoinsSiblings && k.JoinsSiblings
		switch {
		case !k.Joins || !first.Joins || k.Need == rollout.NeedAlone || !joins:
			return id + " may not share an object"
		case k.Need == rollout.NeedDrained && first.Need != rollout.NeedDrained:
			return id + " needs a drained node"
		}
		before = append(before, id)
	}
	return ""
}

// checkInterrupt checks that every outcome is recorded, and no other task can continue without the interrupt.
func checkInterrupt(a acting, k *rollout.Task) string {
	hasBegun := k.Recorded == rollout.StateRunning || k.Recorded == rollout.StateFailing
	for _, id := range a.Covers {
		if o := sim.FindTask(a.target, id); hasBegun && o != nil && o.CoveredBy != k.ID {
			return "it was started without " + id
		}
	}
	for i := range a.target.Tasks {
		o := &a.target.Tasks[i]
		isReady := o.Recorded != rollout.StateDone && !hasBegun
		switch {
		case o.State == rollout.StateSucceeded && o.Recorded != rollout.StateDone:
			return o.ID + " ended and is not recorded"
		case isReady && o.Need == rollout.NeedAlone && o.Strength > k.Strength && len(o.After) > 0 && areDone(a.target, o.After) && !hasFailedForGood(o):
			return o.ID + " is stronger"
		case isReady && o.Need != rollout.NeedAlone && isRunnable(a.target, o):
			return o.ID + " can go on without it"
		}
	}
	return ""
}

// areDone reports whether tasks are recorded as done. Those that are not listed are.
func areDone(t *rollout.Target, ids []string) bool {
	return !slices.ContainsFunc(ids, func(id string) bool {
		k := sim.FindTask(t, id)
		return k != nil && k.Recorded != rollout.StateDone
	})
}

// isRunnable reports whether a task can succeed without any interrupt.
func isRunnable(t *rollout.Target, k *rollout.Task) bool {
	if hasFailedForGood(k) {
		return false
	}
	return !slices.ContainsFunc(k.After, func(id string) bool {
		o := sim.FindTask(t, id)
		return o != nil && o.Recorded != rollout.StateDone && (o.Need == rollout.NeedAlone || !isRunnable(t, o))
	})
}

// countObjects returns how many objects may be running on a node, and how many of them are interrupts.
func (c *planCheck) countObjects(n *rollout.Node) (working, alone int) {
	for i := range c.cluster.State.Rollouts {
		t := findTarget(&c.cluster.State.Rollouts[i], n)
		if t == nil {
			continue
		}
		working += len(t.Objects.Orphans) + len(t.Objects.Going)
		for _, k := range t.Tasks {
			if isWorking(k) {
				working++
				if k.Need == rollout.NeedAlone {
					alone++
				}
			}
		}
	}
	return working, alone
}

// sharesReboot reports whether a target may be admitted beside another one, because both owe a reboot that the other one awaits.
func sharesReboot(a acting, other *rollout.Target) bool {
	owes := slices.ContainsFunc(a.seen.Tasks, func(k rollout.Task) bool { return k.Reboot && k.State != rollout.StateDone })
	isAwaiting := other.Reboot != nil && other.Reboot.Boot == a.was.BootID && len(other.Reboot.Tasks) > 0
	return a.rollout.SharesReboots && owes && isAwaiting
}

// checkTurn: of several rollouts that share a reboot one works on the node at a time.
func (c *planCheck) checkTurn(a acting) string {
	for i := range c.cluster.State.Rollouts {
		other := &c.cluster.State.Rollouts[i]
		o := findTarget(other, a.was)
		isInProgress := o != nil && other.Ref != a.Rollout && o.Visit.Admitted && a.rollout.SharesReboots && other.SharesReboots
		if isInProgress && mayBeWorking(o) {
			return "another rollout that shares its reboot works on the node"
		}
	}
	return ""
}

// checkJoin: a target awaits a reboot when everything before it is done, and nothing of it runs.
func checkJoin(a acting) string {
	switch {
	case !a.rollout.SharesReboots:
		return "it does not share its reboots"
	case !holdsNode(a.was, a.Rollout):
		return "the node is not held"
	case mayBeWorking(a.target):
		return "something of it runs on the node"
	}
	reboots := false
	for _, id := range a.Covers {
		k := sim.FindTask(a.target, id)
		if k == nil || k.Need != rollout.NeedAlone || !areDone(a.target, k.After) || k.Recorded == rollout.StateRunning {
			return id + " is not ready for a reboot"
		}
		reboots = reboots || k.Reboot
	}
	if !reboots {
		return "none of its tasks reboots the node"
	}
	return ""
}
