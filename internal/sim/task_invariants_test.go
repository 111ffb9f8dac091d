// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"fmt"
	"slices"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/sim"
)

func (s *faultTest) checkRun(_ sim.View, a rollout.Action, t, seen *rollout.Target, r *rollout.Rollout) string {
	if sim.FindTask(t, a.Task) == nil || sim.FindTask(t, a.Task).Object.Name != "" {
		return ""
	}
	if !t.Visit.Admitted {
		return "the target is not admitted"
	}
	t = s.mergeObserved(t, seen)
	if problem := checkThen(a, t); problem != "" {
		return problem
	}
	k := sim.FindTask(t, a.Task)
	for _, id := range k.After {
		if sim.FindTask(t, id).Recorded != rollout.StateDone {
			return id + " is not recorded"
		}
	}
	n := s.cluster.FindNode(a.Node)
	if k.Need != rollout.NeedNothing {
		switch {
		case !holdsNode(n, a.Rollout) || !n.Cordoned:
			return "the node is not held"
		case !seen.Drain.PodsSeen || s.hasPodLeft(a.Node, r):
			return fmt.Sprintf("pods are left: %v", s.cluster.Workloads[a.Node])
		}
	}
	working, alone := s.countObjects(a.Node)
	switch {
	case !n.Ready:
		return "the node is not ready"
	case alone > 0:
		return "an interrupt is running"
	case k.Need == rollout.NeedAlone && working > 0:
		return "something else runs on the node"
	case r.Serial && s.countWorking(t) > 0:
		return "another task runs"
	}
	for i := range t.Tasks {
		if o := &t.Tasks[i]; o != k && o.Need == rollout.NeedAlone && (o.Recorded == rollout.StateRunning || o.Recorded == rollout.StateFailing) && !hasFinallyFailed(&rollout.Target{Tasks: []rollout.Task{*o}}) {
			return o.ID + " was begun and has not ended"
		}
	}
	if k.Need == rollout.NeedAlone {
		return s.checkInterrupt(a, t, k)
	}
	return ""
}

// mergeObserved returns a target with the tasks that an operator has read, and their current records: the desired state
// may have changed since.
func (s *faultTest) mergeObserved(t, seen *rollout.Target) *rollout.Target {
	out := *t
	out.Tasks = nil
	for _, k := range seen.Tasks {
		if now := sim.FindTask(t, k.ID); now != nil {
			k.Recorded, k.State, k.Object.Name, k.Attempts.Failed, k.CoveredBy = now.Recorded, now.State, now.Object.Name, now.Attempts.Failed, now.CoveredBy
			k.Object.Leaving, k.Attempts.FailedAt = now.Object.Leaving, now.Attempts.FailedAt
		} else if k.Object.Name = ""; s.hasRun(t, &k) || k.State == rollout.StateSucceeded { // otherwise it is not needed any more
			k.Recorded, k.State = rollout.StateDone, rollout.StateDone
		}
		out.Tasks = append(out.Tasks, k)
	}
	return &out
}

// hasRun reports whether a task, or the one that covers it, was recorded as done in the current admission.
func (s *faultTest) hasRun(t *rollout.Target, k *rollout.Task) bool {
	return t.Visit.Admission > 0 && (s.done[t.UID+k.ID] == t.Visit.Admission || k.CoveredBy != "" && s.done[t.UID+k.CoveredBy] == t.Visit.Admission)
}

// checkInterrupt checks that every outcome is recorded, and no other task can continue without the interrupt.
func (s *faultTest) checkInterrupt(a rollout.Action, t *rollout.Target, k *rollout.Task) string {
	begun := k.Recorded == rollout.StateRunning || k.Recorded == rollout.StateFailing
	for _, id := range a.Covers {
		if o := sim.FindTask(t, id); begun && o != nil && o.CoveredBy != k.ID {
			return "it was started without " + id
		}
	}
	if k.CoveredBy != "" && s.done[t.UID+k.CoveredBy] == t.Visit.Admission && t.Visit.Admission > 0 {
		return k.CoveredBy + " did its work"
	}
	for i := range t.Tasks {
		o := &t.Tasks[i]
		if o.State == rollout.StateSucceeded && o.Recorded != rollout.StateDone {
			return o.ID + " ended and is not recorded"
		}
		hopeless := hasFinallyFailed(&rollout.Target{Tasks: []rollout.Task{*o}}) // it delays nothing
		if o.Need == rollout.NeedAlone && o.Strength > k.Strength && len(o.After) > 0 && areDone(t, o.After) && o.Recorded != rollout.StateDone && !begun && !hopeless {
			return o.ID + " is stronger"
		}
		if !begun && o.Need != rollout.NeedAlone && o.Recorded != rollout.StateDone && isRunnable(t, o) {
			return o.ID + " can go on without it"
		}
	}
	return ""
}

func areDone(t *rollout.Target, ids []string) bool {
	return !slices.ContainsFunc(ids, func(id string) bool { return sim.FindTask(t, id).Recorded != rollout.StateDone })
}

// isRunnable reports whether a task can succeed without any interrupt.
func isRunnable(t *rollout.Target, k *rollout.Task) bool {
	one := rollout.Target{Tasks: []rollout.Task{*k}}
	if hasFinallyFailed(&one) {
		return false
	}
	for _, id := range k.After {
		o := sim.FindTask(t, id)
		if o.Recorded != rollout.StateDone && (o.Need == rollout.NeedAlone || !isRunnable(t, o)) {
			return false
		}
	}
	return true
}

// countObjects returns how many objects may be running on a node, and how many of them are interrupts.
func (s *faultTest) countObjects(node string) (working, alone int) {
	for i := range s.cluster.State.Rollouts {
		t := s.cluster.FindTarget(s.cluster.State.Rollouts[i].Ref, node)
		if n := s.cluster.FindNode(node); t == nil || n.UID != t.UID {
			continue
		}
		working += len(t.Objects.Orphans) + len(t.Objects.Going)
		for j := range t.Tasks {
			if k := &t.Tasks[j]; k.Object.Name != "" && (k.State == rollout.StateRunning || k.State == rollout.StateFailing) {
				working++
				if k.Need == rollout.NeedAlone {
					alone++
				}
			}
		}
	}
	return working, alone
}

func (s *faultTest) countWorking(t *rollout.Target) int {
	n := 0
	for i := range t.Tasks {
		if k := &t.Tasks[i]; k.Object.Name != "" && (k.State == rollout.StateRunning || k.State == rollout.StateFailing) {
			n++
		}
	}
	return n
}

func (s *faultTest) checkRecord(a rollout.Action, t, seen *rollout.Target) string {
	k := sim.FindTask(t, a.Task)
	if k == nil || a.State != rollout.StateDone || k.State == rollout.StateSucceeded || k.State == rollout.StateDone {
		return ""
	}
	if was := sim.FindTask(seen, a.Task); was != nil && was.State == rollout.StateSucceeded {
		return "" // its pod was deleted after it succeeded
	}
	if n := s.cluster.FindNode(a.Node); n.Ready && (t.Reboot.Includes(k.ID, n.BootID) || seen.Reboot.Includes(k.ID, n.BootID)) {
		return "" // another target rebooted the node
	}
	if by := sim.FindTask(t, k.CoveredBy); by != nil && (by.State == rollout.StateSucceeded || by.State == rollout.StateDone) {
		return ""
	}
	if by := sim.FindTask(seen, k.CoveredBy); by != nil && by.State == rollout.StateSucceeded {
		return "" // likewise
	}
	return "it has not finished"
}

func (s *faultTest) checkSweep(a rollout.Action, t *rollout.Target) string {
	for i := range t.Tasks {
		k := &t.Tasks[i]
		if k.Object.Name != a.Object || k.Object.Name == "" || k.Object.Queued {
			continue
		}
		expired := !s.cluster.State.Now.Before(k.Attempts.Started.Add(k.Limit))
		switch {
		case !t.Visit.Admitted && (t.Leaving || t.Visit.Skipped) && k.State != rollout.StateRunning: // it was to be deleted when the node was given back
		case k.State == rollout.StateSucceeded && k.Recorded != rollout.StateDone:
			return "its outcome is not recorded"
		case k.State == rollout.StateRunning && k.Why == nil && !expired && !k.Object.Dead:
			return "it is running"
		}
	}
	return ""
}

func (s *faultTest) checkEvict(v sim.View, a rollout.Action, r *rollout.Rollout) string {
	n := s.cluster.FindNode(a.Node)
	switch {
	case !holdsNode(n, a.Rollout) && !s.cluster.HasNodeChanged(v, a.Node): // an eviction cannot depend on the node's version
		return "the node is not held"
	case s.isProtected(a.Node, a.Pod.UID) && !s.mayForceProtected(a.Node, r):
		return "the pod is protected"
	case r.Drain.ByPriority && r.Drain.OnTimeout != rollout.DrainForce && s.hasLowerPriority(v, a):
		return "a pod of a lower priority is still there"
	case a.Pod.Wait || a.Pod.Keep != "" && !a.Pod.Leaving:
		return "the pod must not be evicted"
	case a.Force && (r.Drain.OnTimeout != rollout.DrainForce):
		return "force is not allowed"
	}
	return ""
}

func (s *faultTest) checkRetire(a rollout.Action, t *rollout.Target, r *rollout.Rollout) string {
	if n := s.cluster.FindNode(a.Node); holdsNode(n, a.Rollout) && !(a.Skip && r.KeepHeld) {
		return "the node is still held"
	}
	for i := range t.Tasks {
		k := &t.Tasks[i]
		if k.Object.Name != "" && k.State == rollout.StateRunning && !k.Object.Leaving {
			return k.ID + " works"
		}
		if k.Recorded != rollout.StateDone && a.Why.Reason == rollout.ReasonFinished {
			return k.ID + " is pending"
		}
	}
	return ""
}
