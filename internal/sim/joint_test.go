// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"slices"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/sim"
)

// settleQueues does what a front end does with objects that go on by themselves: a task that is not what the object would begin, or that
// waits for something else, is not queued there any more, and nothing else begins until the object has ended.
func settleQueues(t *rollout.Target) {
	for again := true; again; {
		again = false
		for i := range t.Tasks {
			if k := &t.Tasks[i]; k.Object.Queued && (k.Object.Stale || !mayFollow(t, k)) {
				for j := range t.Objects.Queues {
					t.Objects.Queues[j].Unwanted = t.Objects.Queues[j].Unwanted || t.Objects.Queues[j].Object == k.Object.Name
				}
				k.State, k.Object.Name, k.Object.Queued, k.Object.Stale = rollout.StatePending, "", false, false
				again = true
			}
		}
	}
	isEnding := slices.ContainsFunc(t.Objects.Queues, func(q rollout.Queue) bool { return q.Unwanted })
	for i := range t.Tasks {
		if k := &t.Tasks[i]; k.Object.Name == "" && k.State == rollout.StatePending {
			k.Object.Leaving = isEnding
		}
	}
}

// mayFollow reports whether what a task waits for is done, or runs before it in the same object.
func mayFollow(t *rollout.Target, k *rollout.Task) bool {
	return !slices.ContainsFunc(k.After, func(id string) bool {
		before := sim.FindTask(t, id)
		return before != nil && before.State != rollout.StateDone && before.Object.Name != k.Object.Name
	})
}

// checkThen checks the tasks that an object runs after the first one.
func checkThen(a rollout.Action, t *rollout.Target) string {
	before := []string{a.Task}
	first := sim.FindTask(t, a.Task)
	for _, id := range a.Then {
		k := sim.FindTask(t, id)
		if k == nil {
			return ""
		}
		for _, after := range k.After {
			if o := sim.FindTask(t, after); o != nil && o.Recorded != rollout.StateDone && !slices.Contains(before, after) {
				return id + " does not wait for " + after
			}
		}
		switch {
		case !k.Joins || !first.Joins || k.Need == rollout.NeedAlone:
			return id + " may not share an object"
		case k.Need == rollout.NeedDrained && first.Need != rollout.NeedDrained:
			return id + " needs a drained node"
		}
		before = append(before, id)
	}
	return ""
}
