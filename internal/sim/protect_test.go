// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"slices"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/sim"
)

// noteProtected notes since when a node has protected pods.
func (s *faultTest) noteProtected(node string) {
	hasProtected := slices.ContainsFunc(s.cluster.Workloads[node], func(p rollout.Pod) bool { return p.Wait })
	switch _, isKnown := s.protected[node]; {
	case !hasProtected:
		delete(s.protected, node)
	case !isKnown:
		s.protected[node] = s.cluster.State.Now
	}
}

func (s *faultTest) isProtected(node, pod string) bool {
	return slices.ContainsFunc(s.cluster.Workloads[node], func(p rollout.Pod) bool { return p.UID == pod && p.Wait })
}

// mayForceProtected reports whether protected pods of a node may be evicted, by the clock of the cluster. When the last of them ended after
// the operator decided, nothing tells any more since when there were some, and none can be hurt.
func (s *faultTest) mayForceProtected(node string, r *rollout.Rollout) bool {
	since, isKnown := s.protected[node]
	isLate := r.Drain.WaitTimeout > 0 && (!isKnown || !s.cluster.State.Now.Before(since.Add(r.Drain.WaitTimeout)))
	return r.Drain.OnWaitTimeout == rollout.DrainForce && isLate
}

// checkWait checks that a node whose protected pods are waited for before the cordon is neither admitted nor held while the
// operator has read one there, or does not know its pods.
func (s *faultTest) checkWait(v sim.View, a rollout.Action, seen *rollout.Target, r *rollout.Rollout) string {
	needsDrain := slices.ContainsFunc(seen.Tasks, func(k rollout.Task) bool { return k.State != rollout.StateDone && k.Need != rollout.NeedNothing })
	n := findObservedNode(v, a.Node)
	wasHeld := holdsNode(n, a.Rollout)
	switch {
	case !r.Drain.WaitFirst || !needsDrain || wasHeld:
	case !seen.Drain.PodsSeen:
		return "its pods are not known"
	case slices.ContainsFunc(seen.Drain.Pods, func(p rollout.Pod) bool { return p.Wait }) && !s.mayForceProtected(a.Node, r):
		return "a protected pod runs there"
	}
	return ""
}

// hasLowerPriority reports whether the operator has read a pod on the node whose priority is lower than that of the pod that it evicts.
func (s *faultTest) hasLowerPriority(v sim.View, a rollout.Action) bool {
	t := s.findObservedTarget(v, a)
	return t != nil && slices.ContainsFunc(t.Drain.Pods, func(p rollout.Pod) bool { return !p.Stays && p.Priority < a.Pod.Priority })
}

// hasPodLeft reports whether a pod has to leave the node. A protected one that is waited for no longer may stay.
func (s *faultTest) hasPodLeft(node string, r *rollout.Rollout) bool {
	mayStay := s.mayForceProtected(node, r)
	return slices.ContainsFunc(s.cluster.Workloads[node], func(p rollout.Pod) bool { return !p.Stays || !mayStay })
}
