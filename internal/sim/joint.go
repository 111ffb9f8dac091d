// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"slices"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// queueTasks adds tasks that the object of another one runs afterwards.
func (w actionWriter) queueTasks(object string) {
	var queued []string
	for _, id := range w.action.Then {
		k := FindTask(w.target, id)
		isFree := k != nil && k.Object.Name == "" && k.State == rollout.StatePending
		if !isFree {
			break // the operator that planned it does not know that; the object ends there
		}
		k.Object.Name, k.State, k.Object.Queued, k.Lost, k.Why = object, rollout.StateRunning, true, false, nil
		queued = append(queued, id)
	}
	if len(queued) == 0 {
		return
	}
	if w.joint == nil {
		w.joint = map[string][]string{}
	}
	w.joint[object] = queued
	w.target.Objects.Queues = append(w.target.Objects.Queues, rollout.Queue{Object: object})
}

// recall tells an object to end before its next task.
func (w actionWriter) recall() {
	for i := range w.target.Objects.Queues {
		if q := &w.target.Objects.Queues[i]; q.Object == w.action.Object {
			q.Recalled = true
		}
	}
}

// GoOn lets an object whose present task ended well go on with the next one, and records that as operators do; or ends it there, if it
// was told to. It reports whether the object goes on.
func (c *Cluster) GoOn(t *rollout.Target, k *rollout.Task) bool {
	at := slices.IndexFunc(t.Objects.Queues, func(q rollout.Queue) bool { return q.Object == k.Object.Name })
	if at < 0 {
		return false
	}
	object := k.Object.Name
	if t.Objects.Queues[at].Recalled {
		c.releaseQueued(t, object)
		return false
	}
	next := c.takeNext(t, object)
	if next == nil {
		c.releaseQueued(t, object)
		return false
	}
	k.State, k.Recorded, k.Object.Name, k.Why, k.Object.Unpulled = rollout.StateDone, rollout.StateDone, "", nil, false
	k.Attempts.Failed, k.Attempts.Noted = 0, 0
	next.Object.Queued, next.Recorded, next.Attempts.Started = false, rollout.StateRunning, c.State.Now
	if len(c.joint[object]) == 0 {
		t.Objects.Queues = slices.Delete(t.Objects.Queues, at, at+1)
	}
	c.TouchNode(t.Node)
	return true
}

// takeNext returns the next task of an object; nil if there is none, or if it is not needed any more.
func (c *Cluster) takeNext(t *rollout.Target, object string) *rollout.Task {
	if len(c.joint[object]) == 0 {
		return nil
	}
	id := c.joint[object][0]
	c.joint[object] = c.joint[object][1:]
	if k := FindTask(t, id); k != nil && k.Object.Queued && k.Object.Name == object {
		return k
	}
	return nil
}

// LoseObject removes the object of a task, and with it the tasks that it has not begun with.
func (c *Cluster) LoseObject(t *rollout.Target, k *rollout.Task) {
	c.releaseQueued(t, k.Object.Name)
	RemoveObject(k)
}

// releaseQueued takes the tasks that have not begun out of an object, which ends or is deleted.
func (c *Cluster) releaseQueued(t *rollout.Target, object string) {
	for i := range t.Tasks {
		if k := &t.Tasks[i]; k.Object.Queued && k.Object.Name == object {
			RemoveObject(k)
		}
	}
	delete(c.joint, object)
	t.Objects.Queues = slices.DeleteFunc(t.Objects.Queues, func(q rollout.Queue) bool { return q.Object == object })
}
