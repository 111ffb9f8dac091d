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

// ApplyAction applies one action that was planned for a view. Applying it twice changes nothing the second time. A
// write to a node is refused if the node has changed since the view, except by writes based on the same view.
func (c *Cluster) ApplyAction(v View, a rollout.Action) error {
	n, t := c.FindNode(a.Node), c.FindTarget(a.Rollout, a.Node)
	if err := checkAction(n, t, a); err != nil {
		return err
	}
	w := actionWriter{Cluster: c, action: a, node: n, target: t, now: v.Now}
	switch a.Verb {
	case rollout.VerbSweep:
		w.sweep()
		return nil
	case rollout.VerbEvict:
		w.evict()
		return nil
	case rollout.VerbRecall:
		w.recall()
		return nil
	}
	if c.hasNodeChanged(v, a.Node) {
		return ErrConflict
	}
	c.revisions[a.Node]++
	v.revisions[a.Node]++
	return w.patchNode()
}

// checkAction checks that the node and the target of an action exist.
func checkAction(n *rollout.Node, t *rollout.Target, a rollout.Action) error {
	if n == nil {
		return errors.New("the node does not exist")
	}
	if t == nil {
		if a.Verb == rollout.VerbRelease || a.Verb == rollout.VerbUntaint {
			return nil
		}
		return errors.New("the target does not exist")
	}
	if t.UID != "" && n.UID != t.UID {
		return errors.New("it is another node of that name")
	}
	return nil
}

// actionWriter applies one action.
type actionWriter struct {
	*Cluster
	action rollout.Action
	node   *rollout.Node
	target *rollout.Target // nil for the release of a hold, or the end of a taint, without a target
	now    time.Time       // by the clock of the operator: the time that it records
}

// patchNode applies an action that writes to the node.
func (w actionWriter) patchNode() error {
	switch w.action.Verb {
	case rollout.VerbTaint:
		w.node.Tainted, w.node.OwnTaint, w.node.Known = true, true, true
	case rollout.VerbUntaint:
		w.node.Tainted = false
		if w.action.Cordon {
			w.node.Cordoned, w.node.Kept = true, true
		}
	case rollout.VerbHold:
		w.placeHold()
	case rollout.VerbRelease:
		w.releaseHold()
	case rollout.VerbAdmit:
		w.admit()
	case rollout.VerbRetire:
		w.retire()
	case rollout.VerbCover:
		return w.changeTask(func(k *rollout.Task) { k.CoveredBy = w.action.By })
	case rollout.VerbRecord:
		w.endProof()
		return w.changeTask(w.record)
	case rollout.VerbCount:
		w.target.Drain.PodsRecorded = w.action.Pods
	case rollout.VerbJoin:
		w.target.Reboot = rollout.NewSharedReboot(w.node.BootID, w.action.Covers)
	case rollout.VerbRun:
		if w.action.Drained {
			w.target.Drain.PodsRecorded = 0
		}
		w.run()
	case rollout.VerbAsk:
		w.ask()
	case rollout.VerbProve:
		w.startProof()
	case rollout.VerbRollback:
		w.rollBack()
	case rollout.VerbPull:
		w.startPull()
	case rollout.VerbVerify, rollout.VerbNote:
		w.checkDrift()
	default:
		return fmt.Errorf("verb %s is unknown", w.action.Verb)
	}
	return nil
}

func (w actionWriter) changeTask(change func(*rollout.Task)) error {
	k := FindTask(w.target, w.action.Task)
	if k == nil {
		return fmt.Errorf("task %s does not exist", w.action.Task)
	}
	change(k)
	return nil
}

func (w actionWriter) placeHold() {
	w.setCordon(w.cordon().Place(w.action.Rollout, w.now))
	if w.target.Drain.HeldAt.IsZero() {
		w.target.Drain.HeldAt = w.now
	}
}

func (w actionWriter) releaseHold() {
	w.setCordon(w.cordon().Release(w.action.Rollout))
	if w.target != nil {
		w.target.Drain.HeldAt, w.target.Drain.PodsRecorded, w.target.Handover = time.Time{}, 0, nil
	}
}

func (w actionWriter) cordon() hold.Cordon {
	return hold.Cordon{Unschedulable: w.node.Cordoned, Kept: w.node.Kept, Holds: w.node.Holds}
}

func (w actionWriter) setCordon(after hold.Cordon) {
	w.node.Cordoned, w.node.Kept, w.node.Holds = after.Unschedulable, after.Kept, after.Holds
}

// startProof records since when a proof is waited for.
func (w actionWriter) startProof() {
	if p := w.target.Proof; p != nil && p.Since.IsZero() {
		w.setProofStart(w.now)
	}
}

// ask records which step of the handover is asked. The answer is yes, unless Handover.Missing is set afterwards.
func (w actionWriter) ask() {
	asked := rollout.Handover{Step: w.action.Object, Since: w.now, Done: w.action.Object == ""}
	if h := w.target.Handover; h != nil && h.Step == asked.Step && !asked.Done { // its object was gone
		asked = *h
		asked.Absent = false
	}
	w.target.Handover = &asked
}

// driftInterval is the time from one check of a node to the next.
const driftInterval = 5 * time.Minute

// checkDrift creates the object that checks the node, or notes what it found: nothing.
func (w actionWriter) checkDrift() {
	if w.target.Check == nil {
		return
	}
	drift := *w.target.Check
	switch {
	case w.action.Verb == rollout.VerbVerify:
		drift.Object, drift.Created, drift.Ended = w.newObjectName(), w.now, false
	case drift.Object == w.action.Object:
		drift.Old, drift.Object, drift.Going = append(slices.Clone(drift.Old), drift.Object), "", !drift.Ended
		drift.Due = w.now.Add(driftInterval)
	}
	w.target.Check = &drift
}

// sweepDrift deletes an object that checks the node, or checked it. It reports whether there was one. With SlowDeletion, one that has not
// ended stays until Drift.Going is reset.
func (w actionWriter) sweepDrift(object string) bool {
	if w.target.Check == nil || w.target.Check.Object != object && !slices.Contains(w.target.Check.Old, object) {
		return false
	}
	drift := *w.target.Check
	if drift.Object == object {
		drift.Object, drift.Going = "", !drift.Ended
	}
	drift.Going = drift.Going && w.SlowDeletion
	drift.Old = slices.DeleteFunc(slices.Clone(drift.Old), func(o string) bool { return o == object })
	w.target.Check = &drift
	return true
}

// endProof forgets since when a proof is waited for.
func (w actionWriter) endProof() { w.setProofStart(time.Time{}) }

func (w actionWriter) setProofStart(at time.Time) {
	if w.target.Proof == nil {
		return
	}
	proof := *w.target.Proof // views share the old one
	proof.Since = at
	w.target.Proof = &proof
}

// rollBack records that the target rolls back. Which tasks lead there is for the caller to say.
func (w actionWriter) rollBack() {
	t, why := w.target, w.action.Why
	why.Reason = rollout.ReasonRolledBack
	t.Rollback.WithOthers = w.action.Why.Reason == rollout.ReasonRolledBack
	t.Reboot = nil
	t.Rollback.Cause, t.Rollback.IfFailed, t.Rollback.IfUnproven, t.Rollback.IfOthers = &why, false, false, false
	w.endProof()
}

func (w actionWriter) admit() {
	t, a := w.target, w.action
	if t.Visit.Admitted {
		return
	}
	w.node.Known = true
	t.Visit.Admitted, t.Visit.Admission, t.Visit.AdmittedAt, t.Visit.LastAdmittedAt = true, t.Visit.Admission+1, w.now, w.now
	t.Reboot = nil
	t.Visit.Order, t.Visit.Batch, t.Visit.BatchOf, t.Visit.Skipped = a.Order, a.Batch, a.Group, false
	w.endProof()
	w.endPull()
	for i := range t.Tasks {
		t.Tasks[i].Attempts.Failed, t.Tasks[i].Attempts.Noted = 0, 0
	}
}

func (w actionWriter) retire() {
	t := w.target
	t.Visit.Admitted, t.Reboot = false, nil
	w.endProof()
	switch {
	case w.action.Skip:
		t.Visit.Skipped = true
	case !w.action.Postpone:
		t.Visit.FinishedAt = w.now
		if !t.Visit.AdmittedAt.IsZero() {
			t.Visit.Took = w.now.Sub(t.Visit.AdmittedAt)
		}
	}
	if w.action.Wipe {
		w.wipe()
	}
}

// wipe removes the record of a deleted rollout. Its target disappears when no object is left on the node.
func (w actionWriter) wipe() {
	t := w.target
	for i := range t.Tasks {
		if k := &t.Tasks[i]; k.Object.Name != "" {
			t.Objects.Going = append(t.Objects.Going, k.Object.Name)
		}
	}
	t.Tasks, t.Wiped = nil, true
	if len(t.Objects.Going)+len(t.Objects.Orphans)+len(t.Objects.Ended) > 0 {
		return
	}
	r := w.FindRollout(w.action.Rollout)
	r.Targets = slices.DeleteFunc(r.Targets, func(o *rollout.Target) bool { return o.Node == w.action.Node })
	w.Reindex()
}

func (w actionWriter) record(k *rollout.Task) {
	k.Recorded = w.action.State
	switch w.action.State {
	case rollout.StateDone:
		k.State, k.CoveredBy = rollout.StateDone, ""
	case rollout.StateFailing:
		w.recordFailure(k)
	}
}

func (w actionWriter) recordFailure(k *rollout.Task) {
	k.Attempts.Failed, k.Attempts.Noted, k.Attempts.FailedAt = w.action.Attempts, w.action.Attempts, w.now
	if k.Object.Name == "" {
		k.State = rollout.StateFailing
	}
	if k.Why == nil {
		why := w.action.Why
		k.Why = &why
	}
}

// run records that a task runs, then creates its object. If the task is not needed any more the object becomes an orphan:
// the operator that planned it does not know that.
func (w actionWriter) run() {
	k := FindTask(w.target, w.action.Task)
	name := w.newObjectName()
	if k == nil {
		w.target.Objects.Orphans = append(w.target.Objects.Orphans, name)
		return
	}
	k.Recorded = rollout.StateRunning
	w.target.Reboot = w.target.Reboot.AfterRun()
	if k.Reboot {
		k.BootID = w.node.BootID
	}
	for _, id := range w.action.Covers {
		if covered := FindTask(w.target, id); covered != nil {
			covered.CoveredBy = w.action.Task
		}
	}
	if k.Object.Name != "" {
		return
	}
	k.Object.Name, k.State, k.Attempts.Started = name, rollout.StateRunning, w.State.Now
	k.Lost, k.Object.Dead, k.Object.Unpulled, k.Why = false, false, false, nil
	w.queueTasks(name)
}

func (w actionWriter) newObjectName() string {
	w.objects++
	of := strings.ReplaceAll(w.action.Rollout.String(), "/", "-")
	task := strings.ReplaceAll(w.action.Task, "/", "-")
	return fmt.Sprintf("%s-%s-%s-%d", of, w.action.Node, task, w.objects)
}

// sweep deletes an object. With SlowDeletion, one that has not finished stays until RemoveObject.
func (w actionWriter) sweep() {
	t, object := w.target, w.action.Object
	if i := slices.Index(t.Objects.Orphans, object); i >= 0 {
		t.Objects.Orphans = slices.Delete(t.Objects.Orphans, i, i+1)
		if w.SlowDeletion {
			t.Objects.Going = append(t.Objects.Going, object)
		}
		w.removeWiped()
		return
	}
	if w.sweepDrift(object) || w.sweepPull(object) {
		return
	}
	w.releaseQueued(t, object)
	for i := range t.Tasks {
		if k := &t.Tasks[i]; k.Object.Name == object {
			w.sweepTask(k)
		}
	}
}

// removeWiped removes the target if its record was removed and no object is left.
func (w actionWriter) removeWiped() {
	if w.target.Wiped {
		w.wipe()
	}
}

func (w actionWriter) sweepTask(k *rollout.Task) {
	hasFinished := k.State != rollout.StateRunning && k.State != rollout.StateFailing
	if w.SlowDeletion && !hasFinished {
		k.Object.Leaving = true
		return
	}
	RemoveObject(k)
}

func (w actionWriter) evict() {
	isPod := func(p *rollout.Pod) bool { return p.UID == w.action.Pod.UID }
	pod := find(w.Workloads[w.action.Node], isPod)
	if pod != nil {
		pod.Asked = true
	}
	switch {
	case pod == nil:
	case w.action.Force:
		w.RemovePod(w.action.Node, pod.UID)
	case !pod.Leaving:
		pod.Leaving = !w.refuseEviction(pod)
	}
}

// refuseEviction stores why an eviction is refused, and reports whether it is.
func (w actionWriter) refuseEviction(pod *rollout.Pod) bool {
	if w.RefuseEviction == nil {
		return false
	}
	why, retry := w.RefuseEviction(w.action.Node, *pod)
	if why == "" {
		return false
	}
	pod.Refused, pod.RetryAt = why, w.State.Now.Add(retry)
	return true
}

// RemovePod removes a workload from its node.
func (c *Cluster) RemovePod(node, uid string) {
	c.Workloads[node] = slices.DeleteFunc(c.Workloads[node], func(p rollout.Pod) bool { return p.UID == uid })
}

// RemoveObject removes the object of a task: then only the record on the node is known.
func RemoveObject(k *rollout.Task) {
	if k.Object.Stale { // the next object has another definition
		k.Attempts.Failed, k.Attempts.Noted = 0, 0
	}
	k.Object.Name, k.Object.Leaving, k.Object.Dead, k.Object.Stale, k.Object.Unpulled, k.Object.Queued = "", false, false, false, false, false
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

// SucceedTask lets the object of a task succeed. A reboot changes the boot of the node.
func (c *Cluster) SucceedTask(t *rollout.Target, k *rollout.Task) {
	if k.Object.Queued || c.GoOn(t, k) {
		return
	}
	k.State, k.Why, k.Object.Unpulled = rollout.StateSucceeded, nil, false
	n := c.FindNode(t.Node)
	if n != nil && k.BootID != "" {
		n.BootID += "'"
	}
}
