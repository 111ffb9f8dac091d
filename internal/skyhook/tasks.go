// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/record"
)

// compiledTasks are the tasks of a node.
type compiledTasks struct {
	tasks  []rollout.Task
	steps  map[string]*plan.Step  // by id
	used   map[*podstate.Pod]bool // pods that work for a task
	queues []rollout.Queue
}

// compileAll turns steps into tasks, with the states of their pods and records.
func (c *nodeCompiler) compileAll(w *plan.Diff, steps []*plan.Step) compiledTasks {
	out := compiledTasks{tasks: make([]rollout.Task, 0, len(steps)), steps: make(map[string]*plan.Step, len(steps)), used: map[*podstate.Pod]bool{}}
	queued := map[*podstate.Pod]int{} // parts of pods, to the index of their task
	for i, st := range steps {
		out.steps[st.ID] = st
		c.keepDefinition(st.Definition)
		task := c.compileTask(w, st, out.used)
		isFree := task.State == rollout.StatePending && task.Object.Name == "" && !task.Object.Leaving
		if part := c.findQueued(w, st); part != nil && isFree {
			task.Object.Name, task.State, task.Object.Queued = part.Name, podstate.Running, true
			queued[part], out.used[part.Whole] = i, true
		}
		out.tasks = append(out.tasks, task)
	}
	c.keepApart(w, steps, out.tasks)
	out.queues = c.settleQueues(steps, out.tasks, queued)
	return out
}

// keepApart lets only those stages share a pod that may share the namespaces of one.
func (c *nodeCompiler) keepApart(w *plan.Diff, steps []*plan.Step, tasks []rollout.Task) {
	first := ""
	for i, st := range steps {
		if !tasks[i].Joins {
			continue
		}
		p := c.facts.PrivilegesOf(st, &w.Rec, w.N)
		of := fmt.Sprint(p.IsFull(), p.AskSystemd(), p.Has(pack.PrivilegeSysctl))
		first = cmp.Or(first, of)
		tasks[i].Joins = of == first
	}
}

// deletionGrace is how long a pod that is deleted may take beyond its grace period.
const deletionGrace = time.Minute

// addStrays adds the pods that belong to no task, and those that are being deleted.
func (c *nodeCompiler) addStrays(out *rollout.Target, used map[*podstate.Pod]bool) {
	for _, pod := range c.pods.Work {
		switch {
		case pod.Leaving && pod.State != podstate.Succeeded:
			out.Objects.Going = append(out.Objects.Going, pod.Name)
		case pod.Leaving && c.facts.Deleting:
			out.Objects.Ended = append(out.Objects.Ended, pod.Name)
		case !used[pod] && !pod.Leaving && out.Visit.Admitted && pod.IsBetween():
			// it ends before its next stage, and is deleted then
		case !used[pod] && !pod.Leaving:
			out.Objects.Orphans = append(out.Objects.Orphans, pod.Name)
		}
		if goneBy := pod.Deleted.Add(deletionGrace); pod.Leaving && goneBy.After(out.Objects.GoneBy) {
			out.Objects.GoneBy = goneBy
		}
	}
}

// keepDefinition keeps a definition until the step that uses it has ended.
func (c *nodeCompiler) keepDefinition(d *plan.Definition) {
	if c.facts.ByHash[d.Hash] == nil {
		c.result.definitions = append(c.result.definitions, d)
	}
}

func (c *nodeCompiler) compileTask(w *plan.Diff, st *plan.Step, used map[*podstate.Pod]bool) rollout.Task {
	task := rollout.Task{
		Joins: c.facts.MayJoin(st, w.N, &w.Rec), JoinsSiblings: st.Stage == v1alpha1.StagePostInterrupt,
		ID: st.ID, Label: st.Name + " " + string(st.Stage), After: st.After,
		State: rollout.StatePending, Recorded: rollout.StatePending,
		Limit: c.facts.DeadlineOf(st), Uninstall: st.IsUninstall(), Exclusive: c.facts.ExclusiveKey(st),
	}
	if r := st.Definition.Package.Retries; r != nil {
		task.Retries, task.Bounded = int(*r)+1, true
	}
	switch {
	case st.IsInterrupt():
		task.Need, task.Strength = rollout.NeedAlone, plan.InterruptStrength(st.Payload)
		task.Reboot = st.Payload != nil && st.Payload.Type == v1alpha1.InterruptReboot
	case st.Effect != nil:
		task.Need = rollout.NeedDrained
	}
	e, current := w.FindEntry(st)
	if !current && st.NotYet != nil {
		task.Object.Leaving, task.Why = true, st.NotYet
		return task
	}
	if !current {
		c.waitForName(w, st, &task)
		return task
	}
	if e.Record != nil && !plan.WasEdited(st, e.Record) {
		task.Attempts.Failed, task.Attempts.Noted = e.Record.Attempts, e.Record.Attempts
		if e.Record.FailedAt != nil {
			task.Attempts.FailedAt = *e.Record.FailedAt
		}
		if f := e.Record.Failure; f != nil {
			task.Why = &rollout.Why{Reason: f.Reason.Known(rollout.ReasonStageFailed), Text: node.Truncate(f.Text, 300), Since: task.Attempts.FailedAt}
		}
	}
	if e.Record != nil && e.Record.Payload != nil && e.Record.Payload.Type == v1alpha1.InterruptReboot {
		task.BootID = e.Record.Boot
	}
	c.applyRecord(w, st, e, &task)
	if task.Recorded != rollout.StateRunning && task.Recorded != rollout.StateFailing {
		c.waitForName(w, st, &task)
		return task
	}
	pod := plan.FindPod(c.pods.Work, e)
	if pod == nil {
		task.State, task.Lost = task.Recorded, true
		c.waitForName(w, st, &task)
		c.applyRefusal(&task)
		return task
	}
	used[pod.Outer()] = true
	c.applyPod(w, st, e, pod, &task)
	return task
}

// applyRefusal sets the task's state from the refusal of its pod, which is a failed attempt.
func (c *nodeCompiler) applyRefusal(task *rollout.Task) {
	refused, isRefused := c.refused[task.ID]
	if !isRefused || task.Recorded != rollout.StateRunning || task.Object.Leaving {
		return
	}
	task.State, task.Lost = rollout.StateFailing, false
	task.Attempts.Failed++
	task.Attempts.FailedAt = refused.At
	task.Why = &rollout.Why{Reason: rollout.ReasonRefused, Text: refused.Text, Since: refused.At}
}

// applyRecord sets the task's state from the node's record.
func (c *nodeCompiler) applyRecord(w *plan.Diff, st *plan.Step, e plan.Entry, task *rollout.Task) {
	switch {
	case e.IsUnderWay():
		task.Recorded = rollout.StateRunning
		if st.Stage == v1alpha1.StageUninstallInterrupt && (e.Record == nil || e.Record.Interrupt == "") {
			task.Recorded = rollout.StatePending // the uninstall ended and moved the entry here; no pod runs yet
		}
	case e.State == v1alpha1.StateErroring:
		task.Recorded = rollout.StateFailing
	case e.State == v1alpha1.StateSkipped:
		if e.Record != nil && c.isInterruptRunning(w, e.Record.By) {
			task.CoveredBy = e.Record.By
		}
	}
	task.State = task.Recorded
}

// isInterruptRunning reports whether a covering interrupt has not ended, so that the covered ones wait for it
// only.
func (c *nodeCompiler) isInterruptRunning(w *plan.Diff, id string) bool {
	key, _, _, stage := plan.SplitTaskID(id)
	e, ok := w.On.State[key]
	return ok && e.Stage == stage && (e.State == v1alpha1.StateInProgress || e.State == v1alpha1.StateErroring)
}

// waitForName keeps a task from starting while a pod of an earlier run has its name.
func (c *nodeCompiler) waitForName(w *plan.Diff, st *plan.Step, task *rollout.Task) {
	if len(c.pods.Work) == 0 {
		return
	}
	names := plan.PodNames(c.facts.Skyhook.Name, st, w.N.Name)
	for _, pod := range c.pods.Work {
		if slices.Contains(names, pod.Name) && (pod.Leaving || pod.Parts != nil || !w.IsCurrentPod(pod)) {
			task.Object.Leaving = true
			task.Why = &rollout.Why{Reason: rollout.ReasonReplaced, Text: "an earlier pod " + pod.Name + " has to go first", About: "Pod " + c.facts.Config.Namespace + "/" + pod.Name}
		}
	}
}

// applyPod sets the task's state from its pod.
func (c *nodeCompiler) applyPod(w *plan.Diff, st *plan.Step, e plan.Entry, pod *podstate.Pod, task *rollout.Task) {
	task.Object.Name, task.State, task.Attempts.Started = pod.Name, pod.State, pod.Created
	if pod.State == podstate.Succeeded && !st.IsInterrupt() { // an interrupt ends when it is proven, and is recorded at once
		task.Attempts.Ended = pod.Ended
	}
	isGoing := pod.Leaving && pod.State != podstate.Succeeded
	switch {
	case isGoing && task.Why != nil: // it failed: that is why the operator deleted it
	case isGoing && c.isOutdated(w, st, e, pod):
		task.Why = &rollout.Why{Reason: rollout.ReasonReplaced, Text: pod.Why.Text, About: pod.Why.About}
	case pod.Why != nil || pod.State == podstate.Succeeded:
		task.Why = pod.Why
	}
	task.Object.Unpulled = pod.CannotPull()
	if pod.Attempts > task.Attempts.Failed {
		task.Attempts.Failed = pod.Attempts
	}
	if pod.FailedAt.After(task.Attempts.FailedAt) {
		task.Attempts.FailedAt = pod.FailedAt
	}
	task.Object.Dead, task.Object.Leaving = pod.Dead, pod.Leaving
	task.Object.Stale = !pod.Healthy && !pod.Leaving && pod.State != podstate.Succeeded && c.isOutdated(w, st, e, pod)
	if task.Why == nil && pod.Healthy && pod.State == podstate.Running && !pod.Leaving && c.wasEditedMeanwhile(st, e) {
		task.Why = &rollout.Why{
			Reason: rollout.ReasonDefinitionChanged, Since: pod.Created, About: "Pod " + c.facts.Config.Namespace + "/" + pod.Name,
			Text: "an edited definition of package " + st.Name + " waits: stage " + string(st.Stage) + " runs with an earlier one",
		}
	}
	if st.IsInterrupt() && pod.State == podstate.Succeeded && e.Record != nil && e.Record.Payload != nil && e.Record.Payload.Type == v1alpha1.InterruptReboot {
		c.proveReboot(w, e.Record, pod, task)
	}
	c.applyImage(w.N, st, pod, task)
}

// wasEditedMeanwhile reports whether the package was edited, in a way that affects its pods, after its stage began.
func (c *nodeCompiler) wasEditedMeanwhile(st *plan.Step, e plan.Entry) bool {
	if st.IsInterrupt() || e.Record == nil || e.Record.Hash == "" || e.Record.Hash == st.Definition.Hash {
		return false
	}
	return c.facts.Edits(e.Record.Hash, st.Definition)
}

// isOutdated reports whether the pod was made from other inputs than a new one would be.
func (c *nodeCompiler) isOutdated(w *plan.Diff, st *plan.Step, e plan.Entry, pod *podstate.Pod) bool {
	isCompact := c.facts.IsCompactStep(st, w.N, &w.Rec)
	if st.IsInterrupt() && e.Record != nil && e.Record.Payload != nil {
		return !plan.SameInterrupt(e.Record.Effect, st.Effect) || pod.Content != c.render.ContentOf(st, e.Record.Payload, pod.Whole != nil)
	}
	if c.facts.HasPulledRecorded(st, pod) {
		return pod.Content != c.render.ContentFor(st, st.Payload, "", isCompact)
	}
	isApartNow := w.Rec.Apart && pod.Whole != nil && len(pod.Whole.Parts) > 1 && pod.Part.Index == 0 && !pod.Begun
	return isApartNow || pod.Content != c.render.ContentOf(st, st.Payload, isCompact)
}

// proveReboot defers the success of a reboot until the node is ready in a later boot than the one before it. That may be
// another boot than the agent saw: the node can boot again before the success is recorded.
func (c *nodeCompiler) proveReboot(w *plan.Diff, rec *node.PackageRecord, pod *podstate.Pod, task *rollout.Task) {
	n := w.N
	wait := func(reason rollout.Reason, text string) {
		task.State, task.Why = rollout.StateRunning, &rollout.Why{Reason: reason, Text: text, About: "Node " + n.Name}
	}
	switch {
	case c.facts.Config.TrustAgentReboots:
	case pod.Reboot != nil && !pod.Reboot.IsProvenBy(n.BootID, bootsBefore(w, rec)...):
		wait(rollout.ReasonRebootTimeout, fmt.Sprintf("the agent saw the reboot, and the node has not reported boot %s yet", node.Truncate(pod.Reboot.To, 40)))
	case pod.Reboot == nil && rec.Boot != "" && n.BootID == rec.Boot:
		wait(rollout.ReasonRebootNotStarted, "the interrupt ended, and the node still reports the boot from before it")
	case !n.Ready:
		wait(rollout.ReasonNodeNotReady, "the node booted again and is not ready yet")
	}
}

// bootsBefore lists the boots that were recorded before a reboot: the one that it ends, and those in which packages finished whose last
// stage began before it. A later one may have finished in the boot that this reboot led to, when what the agent said of it was lost.
func bootsBefore(w *plan.Diff, rec *node.PackageRecord) []string {
	boots := []string{rec.Boot}
	for _, p := range w.Rec.Packages {
		isLater := rec.Since != nil && len(p.Done) > 0 && !p.Done[len(p.Done)-1].At.Before(*rec.Since)
		if p.Goal == "" && !isLater {
			boots = append(boots, p.Boot)
		}
	}
	return boots
}

// markStale adds the edits that need no task: records of packages that a predecessor finished, or that have begun, and removal of entries
// with nothing left to do.
func (c *nodeCompiler) markStale(t *plan.Target, d *targetTasks) {
	adopt, forget := d.adopt, d.forget
	if c.facts.Standing || c.facts.Deleting {
		forget = nil
	}
	if c.facts.Deleting {
		adopt = nil
	}
	if len(adopt)+len(forget)+len(d.begun) == 0 {
		return
	}
	e := record.EditRecord(c.facts, t.Node, func(state v1alpha1.NodeState, rec *node.SkyhookRecord) {
		for _, key := range adopt {
			want := t.Wanted.Packages[state[key].Name]
			rec.Packages[key] = &node.PackageRecord{At: node.Position(state[key]), Hash: want.Hash, Config: want.Config, Boot: t.Node.BootID}
		}
		for _, key := range d.begun {
			rec.Packages[key].Unbegun = false
		}
		for _, key := range forget {
			delete(state, key)
			delete(rec.Packages, key)
		}
	})
	if !e.Empty() {
		c.edit(node.NamedEdit{Node: t.Node.Name, Edit: e})
	}
}
