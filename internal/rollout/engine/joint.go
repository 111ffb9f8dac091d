// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// maxJoint limits how many tasks one object runs.
const maxJoint = 24

// joinFollowing has the object of a task that is being started also run the tasks that follow it without a decision in between: those
// that wait for it, and for nothing else that is not done.
func (s starter) joinFollowing(k *boardTask, a *rollout.Action) {
	if !k.Joins {
		return
	}
	joint := []*boardTask{k}
	for len(joint) < maxJoint {
		next := s.findJoining(joint)
		if next == nil {
			return
		}
		next.planned, next.isBusy = rollout.StateRunning, true
		joint, a.Then = append(joint, next), append(a.Then, next.ID)
	}
}

// findJoining returns the first task that may run after others in their object; nil if there is none.
func (s starter) findJoining(joint []*boardTask) *boardTask {
	first := joint[0]
	return s.find(func(k *boardTask) bool {
		isNew := k.planned == rollout.StatePending && k.Recorded == rollout.StatePending && k.Object.Name == "" && k.failures == 0
		needIsMet := k.Need == rollout.NeedNothing || first.Need == rollout.NeedDrained
		mayPull := k.Exclusive == "" || k.Exclusive == first.Exclusive
		return k.Joins && isNew && !k.isInterrupt() && !k.Object.Leaving && !k.isHopeless && needIsMet && mayPull && s.follows(k, joint)
	})
}

// follows reports whether a task waits for nothing but the tasks of an object, or could run beside them as one of several that began
// to be ready together. Beside a task that is being repeated no other one waits.
func (s starter) follows(k *boardTask, joint []*boardTask) bool {
	isJoint := func(i int) bool {
		return slices.ContainsFunc(joint, func(j *boardTask) bool { return j.index == i })
	}
	waitsForThem := false
	for _, i := range s.dependenciesOf(k) {
		switch {
		case isJoint(i):
			waitsForThem = true
		case s.tasks[i].isPending():
			return false
		}
	}
	first := joint[0]
	return waitsForThem || k.JoinsSiblings && first.JoinsSiblings && first.failures == 0
}

// isShared reports whether the object of a task runs another one that is not done.
func (b *taskBoard) isShared(k *boardTask) bool {
	return b.find(func(o *boardTask) bool { return o.index != k.index && o.Object.Name == k.Object.Name && o.isPending() }) != nil
}

// hasReadyBehind reports whether a task that waits for nothing else waits in the object of this one.
func (b *taskBoard) hasReadyBehind(k *boardTask) bool {
	return b.find(func(o *boardTask) bool { return o.Object.Queued && o.Object.Name == k.Object.Name && b.isReady(o) }) != nil
}

// isGoingOn reports whether an object on the node of the target will begin with another task by itself.
func (b *taskBoard) isGoingOn() bool { return len(b.target.target.Objects.Queues) > 0 }

// endingVerdict reports that everything is done, and that an object goes on: the node is given back when that has ended.
func (b *taskBoard) endingVerdict() rollout.Verdict {
	object := b.target.target.Objects.Queues[0].Object
	why := rollout.Why{Reason: rollout.ReasonReplaced, Text: rollout.Shorten("all work is done; the node is given back when " + object + " has ended, before its next task"), About: object}
	return rollout.Verdict{Phase: rollout.PhaseInFlight, Why: why}
}

// recallQueued tells objects to end before their next task: it is not wanted any more, or the target does not continue.
func (a advancer) recallQueued(t *targetState, continues bool) {
	for _, q := range t.target.Objects.Queues {
		if q.Recalled || continues && !q.Unwanted || a.plan.hasSweep(t, q.Object) {
			continue
		}
		why := rollout.Why{Reason: rollout.ReasonReplaced, Text: "what comes next in " + q.Object + " changed", About: q.Object}
		if !continues {
			why.Text = "nothing more begins on the node now"
		}
		a.plan.addAction(t, rollout.VerbRecall, why).Object = q.Object
	}
}
