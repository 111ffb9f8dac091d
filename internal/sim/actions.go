// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/node/hold"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// ApplyAction carries out one action, decided on what v shows. Doing it twice changes nothing the second time. Every write to a
// node is refused when the node has changed since v, except by writes made through v itself.
func (w *Cluster) ApplyAction(v View, a rollout.Action) error {
	n := w.FindNode(a.Node)
	if n == nil {
		return errors.New("there is no such node")
	}
	t := w.FindTarget(a.Rollout, a.Node)
	if t == nil && a.Verb != rollout.VerbRelease {
		return errors.New("there is no such target")
	}
	if t != nil && t.UID != "" && n.UID != t.UID {
		return errors.New("it is another node of that name")
	}
	w.WriteCount[a.Node]++
	switch a.Verb {
	case rollout.VerbSweep:
		w.sweep(t, a)
		return nil
	case rollout.VerbEvict:
		w.evict(a)
		return nil
	}
	if w.revisions[a.Node] != v.revisions[a.Node] {
		return ErrConflict
	}
	w.revisions[a.Node]++
	v.revisions[a.Node]++
	return w.patch(n, t, a)
}

// patch is what an action writes to the node.
func (w *Cluster) patch(n *rollout.Node, t *rollout.Target, a rollout.Action) error {
	switch a.Verb {
	case rollout.VerbTaint:
		n.Tainted, n.Known = true, true
	case rollout.VerbUntaint:
		n.Tainted = false
	case rollout.VerbHold:
		placeHold(n, t, a.Rollout, w.State.Now)
	case rollout.VerbRelease:
		releaseHold(n, a.Rollout)
		if t != nil {
			t.HeldAt = zero
		}
	case rollout.VerbAdmit:
		w.admit(n, t, a)
	case rollout.VerbRetire:
		w.retire(t, a)
	case rollout.VerbCover:
		return w.changeTask(t, a, func(k *rollout.Task) { k.CoveredBy = a.By })
	case rollout.VerbRecord:
		return w.changeTask(t, a, func(k *rollout.Task) { w.record(k, a) })
	case rollout.VerbRun:
		w.run(t, a)
	default:
		return fmt.Errorf("verb %s is unknown", a.Verb)
	}
	return nil
}

func (w *Cluster) changeTask(t *rollout.Target, a rollout.Action, do func(*rollout.Task)) error {
	k := FindTask(t, a.Task)
	if k == nil {
		return errors.New("there is no such task: " + a.Task)
	}
	do(k)
	return nil
}

func placeHold(n *rollout.Node, t *rollout.Target, owner rollout.Ref, now time.Time) {
	after := hold.Cordon{Unschedulable: n.Cordoned, Holds: n.Holds}.Place(owner, now)
	n.Cordoned, n.Holds = after.Unschedulable, after.Holds
	if t.HeldAt.IsZero() {
		t.HeldAt = now
	}
}

func releaseHold(n *rollout.Node, owner rollout.Ref) {
	after := hold.Cordon{Unschedulable: n.Cordoned, Holds: n.Holds}.Release(owner)
	n.Cordoned, n.Holds = after.Unschedulable, after.Holds
}

func (w *Cluster) admit(n *rollout.Node, t *rollout.Target, a rollout.Action) {
	if t.Admitted {
		return
	}
	n.Known = true
	t.Admitted, t.Admission, t.AdmittedAt = true, t.Admission+1, w.State.Now
	t.Order, t.Batch, t.BatchOf, t.Skipped = a.Order, a.Batch, a.Group, false
	for i := range t.Tasks {
		t.Tasks[i].Attempts, t.Tasks[i].Noted = 0, 0
	}
}

func (w *Cluster) retire(t *rollout.Target, a rollout.Action) {
	t.Admitted, t.Skipped = false, t.Skipped || a.Skip
	if !a.Skip {
		t.FinishedAt = w.State.Now
	}
	if !a.Wipe {
		return
	}
	r := w.FindRollout(a.Rollout)
	r.Targets = slices.DeleteFunc(r.Targets, func(o rollout.Target) bool { return o.Node == t.Node })
	w.Reindex()
}

func (w *Cluster) record(k *rollout.Task, a rollout.Action) {
	k.Recorded = a.State
	switch a.State {
	case rollout.StateDone:
		k.State, k.CoveredBy = rollout.StateDone, ""
	case rollout.StateFailing:
		k.Attempts, k.Noted, k.FailedAt = a.Attempts, a.Attempts, w.State.Now
		if k.Object == "" {
			k.State = rollout.StateFailing
		}
		if k.Why == nil {
			why := a.Why
			k.Why = &why
		}
	}
}

// run records that a task runs, then creates its object. What is no longer wanted is created all the same: whoever
// decided so does not know better, and it becomes a stray.
func (w *Cluster) run(t *rollout.Target, a rollout.Action) {
	k := FindTask(t, a.Task)
	w.objects++
	name := fmt.Sprintf("%s-%s-%s-%d", strings.ReplaceAll(a.Rollout.String(), "/", "-"), a.Node, strings.ReplaceAll(a.Task, "/", "-"), w.objects)
	if k == nil {
		t.Strays = append(t.Strays, name)
		return
	}
	k.Recorded = rollout.StateRunning
	for _, id := range a.Covers {
		if c := FindTask(t, id); c != nil {
			c.CoveredBy = a.Task
		}
	}
	if k.Object == "" {
		k.Object, k.State, k.Started, k.Lost, k.Dead, k.Why = name, rollout.StateRunning, w.State.Now, false, false, nil
	}
}

// sweep deletes an object. One whose work ended well goes at once; others may linger until Vanish.
func (w *Cluster) sweep(t *rollout.Target, a rollout.Action) {
	if i := slices.Index(t.Strays, a.Object); i >= 0 {
		t.Strays = slices.Delete(t.Strays, i, i+1)
		if w.SlowDeletion {
			t.Going = append(t.Going, a.Object)
		}
		return
	}
	for i := range t.Tasks {
		k := &t.Tasks[i]
		switch {
		case k.Object != a.Object:
		case w.SlowDeletion && (k.State == rollout.StateRunning || k.State == rollout.StateFailing):
			k.Leaving = true
		default:
			RemoveObject(k)
		}
	}
}

// RemoveObject takes a task's object away: what is known of the task now is what the node records.
func RemoveObject(k *rollout.Task) {
	if k.Stale { // what is made next has another definition
		k.Attempts, k.Noted = 0, 0
	}
	k.Object, k.Leaving, k.Dead, k.Stale = "", false, false, false
	switch k.Recorded {
	case rollout.StateRunning, rollout.StateFailing:
		k.State, k.Lost = k.Recorded, true
	case rollout.StateDone:
		k.State = rollout.StateDone
	default:
		k.State = rollout.StatePending
	}
	if k.State != rollout.StateFailing {
		k.Why = nil
	}
}

func (w *Cluster) evict(a rollout.Action) {
	pods := w.Workloads[a.Node]
	for i := range pods {
		if pods[i].UID != a.Pod.UID {
			continue
		}
		if w.RefuseEviction != nil && !a.Force && !pods[i].Leaving {
			if why, retry := w.RefuseEviction(a.Node, pods[i]); why != "" {
				pods[i].Refused, pods[i].RetryAt = why, w.State.Now.Add(retry)
				return
			}
		}
		pods[i].Leaving = true
		if a.Force {
			w.RemovePod(a.Node, pods[i].UID)
		}
		return
	}
}

// RemovePod takes a workload off its node.
func (w *Cluster) RemovePod(node, uid string) {
	w.Workloads[node] = slices.DeleteFunc(w.Workloads[node], func(p rollout.Pod) bool { return p.UID == uid })
}
