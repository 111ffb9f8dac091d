// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"strconv"
	"time"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// findStep returns the compiled step of a task.
func (r Recorder) findStep(id string) (*plan.Step, error) {
	return r.Target.FindStep(id)
}

// recordRun records that a step runs, with everything its pod is made from, so that a lost pod can be recreated
// unchanged.
func (r Recorder) recordRun(a rollout.Action, n *node.Node) (node.Edit, error) {
	st, err := r.findStep(a.Task)
	if err != nil {
		return node.Edit{}, err
	}
	status := v1alpha1.StatusInProgress
	e := EditRecord(r.Facts, n, func(state v1alpha1.NodeState, rec *node.SkyhookRecord) {
		r.inheritAdmission(rec)
		rec.Proving, rec.Reboot = nil, rec.Reboot.AfterRun() // what is true counts after the last outcome only
		if a.Drained && rec.Held != nil {
			rec.Held.Pods = 0
		}
		queue := node.Queue{}
		if len(a.Then) > 0 {
			queue = node.Queue{ID: r.newQueueID(n, rec, st), Begun: 1, Of: st.Key}
		}
		rec.SetQueue(st.ID, queue)
		p := r.Facts.BeginStage(st, state, rec, n)
		p.Unbegun = p.Unbegun && !r.isLost(st)
		if st.IsInterrupt() {
			r.beginInterrupt(a, st, state, rec, n, p)
		}
		if st.Goal == node.GoalUninstall {
			r.parkPackage(st, state, rec)
		}
		status = StatusDuring(state)
	})
	e.SetSkyhookStatus(n, r.Facts.Skyhook.Name, status)
	return e, nil
}

// isLost reports whether the pod of a step is gone, so that nobody knows whether it began. One that is replaced because of an edit, or because
// several stages could not start in it, had not.
func (r Recorder) isLost(st *plan.Step) bool {
	rec := &r.Target.Record
	e := plan.NewEntry(st.Key, r.Target.On.State[st.Key], rec.Packages[st.Key])
	isReplaced := e.Record != nil && plan.WasEdited(st, e.Record) || rec.Apart && rec.Queues[st.ID].ID != ""
	return e.Stage == st.Stage && e.IsUnderWay() && !isReplaced && plan.FindPod(r.Target.Pods.Work, e) == nil
}

// StatusDuring returns the status of an admitted node: erroring while a stage has failed and not succeeded since.
func StatusDuring(state v1alpha1.NodeState) v1alpha1.Status {
	for _, e := range state {
		if e.State == v1alpha1.StateErroring {
			return v1alpha1.StatusErroring
		}
	}
	return v1alpha1.StatusInProgress
}

// beginInterrupt freezes what the interrupt does, under its own id. A retry keeps the id and the covered interrupts, unless an
// edit changed the interrupt. The id contains when the stage began: after an interrupt that failed, an edit can lead to another one
// of the same package, which the host must not take for the first.
func (r Recorder) beginInterrupt(a rollout.Action, st *plan.Step, state v1alpha1.NodeState, rec *node.SkyhookRecord, n *node.Node, p *node.PackageRecord) {
	covered := r.coverableSteps(a.Covers)
	if p.Interrupt == "" {
		all := []*v1alpha1.Interrupt{st.Effect}
		for _, other := range covered {
			all = append(all, other.Effect)
		}
		for _, other := range rec.Packages {
			if other.By == st.ID {
				all = append(all, other.Effect)
			}
		}
		p.Payload, p.Boot = plan.MergeInterrupts(all...), n.BootID
		p.Interrupt = plan.HashID(string(r.Facts.Skyhook.UID), n.UID, strconv.Itoa(rec.Admission), strconv.Itoa(rec.Interrupts), p.Run,
			p.Since.Format(time.RFC3339), node.EncodeJSON(p.Payload))
	}
	for _, other := range covered {
		if plan.CoversInterrupt(p.Payload, other.Effect) {
			r.Facts.SkipStage(other, st.ID, state, rec, n)
		}
	}
}

func (r Recorder) coverableSteps(ids []string) []*plan.Step {
	var out []*plan.Step
	for _, id := range ids {
		if st, err := r.findStep(id); err == nil && st.IsInterrupt() {
			out = append(out, st)
		}
	}
	return out
}

// recordCover records that the interrupt of another task covers this one, if the running interrupt includes it.
func (r Recorder) recordCover(a rollout.Action, n *node.Node) (node.Edit, error) {
	st, err := r.findStep(a.Task)
	if err != nil {
		return node.Edit{}, err
	}
	by, _, _, _ := plan.SplitTaskID(a.By)
	return EditRecord(r.Facts, n, func(state v1alpha1.NodeState, rec *node.SkyhookRecord) {
		runs := rec.Packages[by]
		if runs == nil || runs.Interrupt == "" || !plan.CoversInterrupt(runs.Payload, st.Effect) {
			return
		}
		if p := rec.Packages[st.Key]; p != nil && p.By == a.By && state[st.Key].State == v1alpha1.StateSkipped {
			return
		}
		r.Facts.SkipStage(st, a.By, state, rec, n)
	}), nil
}

// parkPackage records that a lower version waits until the higher one is uninstalled.
func (r Recorder) parkPackage(st *plan.Step, state v1alpha1.NodeState, rec *node.SkyhookRecord) {
	w := r.Facts.WantedOn(rec)
	want := w.Packages[st.Name]
	if want == nil || r.Facts.IsUninstalled(w, st.Name) || pack.CompareVersions(st.Version, string(want.Package.Version)) <= 0 {
		return
	}
	for key, e := range state { // entries below the higher version are outdated
		if e.Name == st.Name && e.Stage != v1alpha1.StageUninstallInterrupt && pack.CompareVersions(e.Version, st.Version) < 0 {
			delete(state, key)
			delete(rec.Packages, key)
		}
	}
	state[want.Key()] = v1alpha1.PackageStatus{
		Name: st.Name, Version: string(want.Package.Version), Image: want.Package.Image, ContainerSHA: want.Package.ContainerSHA,
		Stage: v1alpha1.StageUninstall, State: v1alpha1.StateSkipped,
	}
}

// recordOutcome records how a step ended.
func (r Recorder) recordOutcome(a rollout.Action, n *node.Node) (node.Edit, error) {
	st, err := r.findStep(a.Task)
	if err != nil {
		return node.Edit{}, err
	}
	status, rebootedFrom := v1alpha1.StatusInProgress, ""
	e := EditRecord(r.Facts, n, func(state v1alpha1.NodeState, rec *node.SkyhookRecord) {
		r.inheritAdmission(rec)
		rec.Proving = nil // what is true counts after the last outcome only
		if entry, ok := state[st.Key]; !ok || entry.Stage != st.Stage || rec.Packages[st.Key] == nil {
			r.Facts.BeginStage(st, state, rec, n)
		}
		entry, p := state[st.Key], rec.Packages[st.Key]
		if pod := plan.FindPod(r.Target.Pods.Work, plan.NewEntry(st.Key, entry, p)); pod != nil {
			p.Unbegun = p.Unbegun && !pod.Begun
			pod.UpdateRecord(p)
		}
		switch a.State {
		case rollout.StateDone:
			if p.Payload == nil && rec.Reboot.Includes(st.ID, n.BootID) {
				p.Payload, p.Boot = st.Effect, rec.Reboot.Boot
			}
			if p.Payload != nil && p.Payload.Type == v1alpha1.InterruptReboot {
				rebootedFrom = p.Boot
			}
			r.Facts.CompleteStage(st, state, rec, n, p)
		case rollout.StateFailing:
			now := node.WholeSeconds(r.Facts.Now)
			entry.State, entry.Restarts = v1alpha1.StateErroring, int32(min(a.Attempts, 1<<30))
			if a.Attempts != p.Attempts || p.FailedAt == nil {
				p.Attempts, p.FailedAt = a.Attempts, &now
			}
			if p.Again, p.Failure = false, nil; a.Why.Reason != "" {
				p.Failure = &node.Failure{Reason: a.Why.Reason, Text: node.Truncate(a.Why.Text, 300)}
			}
			state[st.Key], p.At = entry, node.Position(entry)
			if r.Facts.IsAnswerWrong(r.Target, st) {
				runAgain(st, state, rec)
			}
		default:
			entry.State = v1alpha1.StateInProgress
			state[st.Key], p.At = entry, node.Position(entry)
		}
		status = StatusDuring(state)
	})
	e.SetSkyhookStatus(n, r.Facts.Skyhook.Name, status)
	if rebootedFrom != "" {
		r.shareReboot(&e, n, rebootedFrom)
	}
	return e, nil
}

// recordAwaiting records that only a reboot is missing before the interrupts of some tasks are done, whoever reboots the node.
func (r Recorder) recordAwaiting(a rollout.Action, n *node.Node) node.Edit {
	return EditRecord(r.Facts, n, func(_ v1alpha1.NodeState, rec *node.SkyhookRecord) {
		var ended []string
		for _, st := range r.coverableSteps(a.Covers) {
			if p := rec.Packages[st.Key]; p != nil {
				ended = append(ended, p.Boot)
			}
		}
		rec.Reboot = rollout.NewSharedReboot(n.BootID, a.Covers, ended...)
	})
}

// shareReboot records for the other Skyhooks on the node that the reboot was an interrupt, so that none of them
// applies its packages again because of it.
func (r Recorder) shareReboot(e *node.Edit, n *node.Node, from string) {
	for _, name := range n.Skyhooks() {
		on := n.Skyhook(name)
		if name == r.Facts.Skyhook.Name || on.Problem != "" {
			continue
		}
		rec := on.Record.Clone()
		if plan.MarkRebooted(&rec, from, n.BootID) {
			e.SetAnnotation(n, v1alpha1.PrefixRecord+name, rec.String())
		}
	}
}

// newQueueID returns an id that no other pod of the node has.
func (r Recorder) newQueueID(n *node.Node, rec *node.SkyhookRecord, st *plan.Step) string {
	return plan.HashID("queue", string(r.Facts.Skyhook.UID), n.UID, st.ID, strconv.Itoa(rec.Admission), r.Facts.Now.Format(time.RFC3339Nano))
}
