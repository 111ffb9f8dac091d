// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// exclusiveTask is a task that keeps the others with its key from starting.
type exclusiveTask struct {
	target *targetState
	until  time.Time // zero if it is being started: the next pass knows more
}

// checkExclusive has a task wait while one on another node keeps it from starting, and reports whether none does.
func (s starter) checkExclusive(k *boardTask) bool {
	if k.Exclusive == "" {
		return true
	}
	other, waits := s.target.rollout.exclusiveTasks(s.plan.now)[k.Exclusive]
	if !waits || other.target == s.target {
		return true
	}
	s.plan.requestNext(other.until)
	s.reportBehind(rollout.ReasonImageDigest, k.Title()+" waits until node "+other.target.node.Name+" has pulled the image, so that its digest is known")
	return false
}

// exclusiveTasks returns the tasks that keep others from starting, by key.
func (r *rolloutState) exclusiveTasks(now time.Time) map[string]exclusiveTask {
	if r.exclusive != nil {
		return r.exclusive
	}
	r.exclusive = map[string]exclusiveTask{}
	for i := range r.targets {
		t := &r.targets[i]
		if !t.exists || !t.target.Visit.Admitted {
			continue
		}
		for j := range t.target.Tasks {
			k := &t.target.Tasks[j]
			_, isKnown := r.exclusive[k.Exclusive]
			isPulling := k.ExclusiveUntil.After(now)
			if k.Exclusive != "" && !isKnown && (isPulling || t.mayBeStarting(k)) {
				r.exclusive[k.Exclusive] = exclusiveTask{target: t, until: k.ExclusiveUntil}
			}
		}
	}
	r.addExclusivePulls(now)
	return r.exclusive
}

// mayBeStarting reports whether an earlier plan, which is still being applied, may start a task.
func (t *targetState) mayBeStarting(k *rollout.Task) bool {
	return t.node.Sending && !t.target.RequestFailed && k.Object.Name == "" && k.State != rollout.StateDone
}

// reserveExclusive keeps other tasks with the key of a task that is being started from starting. A target whose last request
// failed does not: it would keep all others waiting for as long as its requests fail.
func (s starter) reserveExclusive(k *boardTask) {
	if k.Exclusive != "" && !s.target.target.RequestFailed {
		s.target.rollout.exclusiveTasks(s.plan.now)[k.Exclusive] = exclusiveTask{target: s.target}
	}
}
