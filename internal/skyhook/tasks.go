// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

func sortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func cutKey(key string) (name, version string, ok bool) { return strings.Cut(key, "|") }

// compiledTasks are the tasks of a node.
type compiledTasks struct {
	tasks  []rollout.Task
	steps  map[string]*step  // by id
	used   map[*podInfo]bool // pods that work for a task
	queues []rollout.Queue
}

// compileAll turns steps into tasks, with the states of their pods and records.
func (c *nodeCompiler) compileAll(w *packageDiff, steps []*step) compiledTasks {
	out := compiledTasks{tasks: make([]rollout.Task, 0, len(steps)), steps: make(map[string]*step, len(steps)), used: map[*podInfo]bool{}}
	queued := map[*podInfo]int{} // parts of pods, to the index of their task
	for i, st := range steps {
		out.steps[st.id] = st
		c.keepDefinition(st.def)
		task := c.compileTask(w, st, out.used)
		isFree := task.State == rollout.StatePending && task.Object.Name == "" && !task.Object.Leaving
		if part := c.findQueued(w, st); part != nil && isFree {
			task.Object.Name, task.State, task.Object.Queued = part.name, running, true
			queued[part], out.used[part.whole] = i, true
		}
		out.tasks = append(out.tasks, task)
	}
	out.queues = c.settleQueues(w, steps, out.tasks, queued)
	return out
}

// deletionGrace is how long a pod that is deleted may take beyond its grace period.
const deletionGrace = time.Minute

// addStrays adds the pods that belong to no task, and those that are being deleted.
func (c *nodeCompiler) addStrays(t *target, out *rollout.Target, used map[*podInfo]bool) {
	for _, pod := range c.pods.work {
		switch {
		case pod.leaving && pod.state != succeeded:
			out.Objects.Going = append(out.Objects.Going, pod.name)
		case pod.leaving && c.facts.Deleting:
			out.Objects.Ended = append(out.Objects.Ended, pod.name)
		case !used[pod] && !pod.leaving && out.Visit.Admitted && pod.isBetween():
			// it ends before its next stage, and is deleted then
		case !used[pod] && !pod.leaving:
			out.Objects.Orphans = append(out.Objects.Orphans, pod.name)
		}
		if goneBy := pod.deleted.Add(deletionGrace); pod.leaving && goneBy.After(out.Objects.GoneBy) {
			out.Objects.GoneBy = goneBy
		}
	}
}

// keepDefinition keeps a definition until the step that uses it has ended.
func (c *nodeCompiler) keepDefinition(d *Definition) {
	if c.facts.byHash[d.Hash] != nil || c.facts.Frozen[d.Hash] != nil {
		return
	}
	c.result.definitions = append(c.result.definitions, d)
}

func (c *nodeCompiler) compileTask(w *packageDiff, st *step, used map[*podInfo]bool) rollout.Task {
	task := rollout.Task{
		Joins: c.facts.mayJoin(st, w.n, &w.rec), JoinsSiblings: st.stage == v1alpha1.StagePostInterrupt,
		ID: st.id, Label: st.name + " " + string(st.stage), After: st.after,
		State: rollout.StatePending, Recorded: rollout.StatePending,
		Limit: c.facts.deadlineOf(st), Uninstall: st.isUninstall(), Exclusive: c.facts.exclusiveKey(st),
	}
	if r := st.def.Package.Retries; r != nil {
		task.Retries, task.Bounded = int(*r)+1, true
	}
	switch {
	case st.isInterrupt():
		task.Need, task.Strength = rollout.NeedAlone, interruptStrength(st.payload)
		task.Reboot = st.payload != nil && st.payload.Type == v1alpha1.InterruptReboot
	case st.effect != nil:
		task.Need = rollout.NeedDrained
	}
	e, current := w.findEntry(st)
	if !current && st.notYet != nil {
		task.Object.Leaving, task.Why = true, st.notYet
		return task
	}
	if !current {
		c.waitForName(w, st, &task)
		return task
	}
	if e.rec != nil && !wasEdited(st, e.rec) {
		task.Attempts.Failed, task.Attempts.Noted = e.rec.Attempts, e.rec.Attempts
		if e.rec.FailedAt != nil {
			task.Attempts.FailedAt = *e.rec.FailedAt
		}
		if f := e.rec.Failure; f != nil {
			task.Why = &rollout.Why{Reason: f.Reason.Known(rollout.ReasonStageFailed), Text: node.Truncate(f.Text, 300), Since: task.Attempts.FailedAt}
		}
	}
	if e.rec != nil && e.rec.Payload != nil && e.rec.Payload.Type == v1alpha1.InterruptReboot {
		task.BootID = e.rec.Boot
	}
	c.applyRecord(w, st, e, &task)
	if task.Recorded != rollout.StateRunning && task.Recorded != rollout.StateFailing {
		c.waitForName(w, st, &task)
		return task
	}
	pod := findPod(c.pods.work, e)
	if pod == nil {
		task.State, task.Lost = task.Recorded, true
		c.waitForName(w, st, &task)
		c.applyRefusal(w.n, &task)
		return task
	}
	used[pod.pod()] = true
	c.applyPod(w, st, e, pod, &task)
	return task
}

// applyRefusal sets the task's state from the refusal of its pod, which is a failed attempt.
func (c *nodeCompiler) applyRefusal(n *node.Node, task *rollout.Task) {
	refused, isRefused := c.refused[task.ID]
	if !isRefused || task.Recorded != rollout.StateRunning || task.Object.Leaving {
		return
	}
	task.State, task.Lost = rollout.StateFailing, false
	task.Attempts.Failed++
	task.Attempts.FailedAt = refused.At
	task.Why = &rollout.Why{Reason: rollout.ReasonRefused, Text: refused.Text, Since: refused.At}
}

// wasEdited reports whether a step differs from the one whose attempts are recorded: an edit may have fixed it.
func wasEdited(st *step, rec *node.PackageRecord) bool {
	if st.isInterrupt() {
		return !sameInterrupt(rec.Effect, st.effect)
	}
	return rec.Hash != st.def.Hash
}

// applyRecord sets the task's state from the node's record.
func (c *nodeCompiler) applyRecord(w *packageDiff, st *step, e entry, task *rollout.Task) {
	switch {
	case e.isUnderWay():
		task.Recorded = rollout.StateRunning
		if st.stage == v1alpha1.StageUninstallInterrupt && (e.rec == nil || e.rec.Interrupt == "") {
			task.Recorded = rollout.StatePending // the uninstall ended and moved the entry here; no pod runs yet
		}
	case e.State == v1alpha1.StateErroring:
		task.Recorded = rollout.StateFailing
	case e.State == v1alpha1.StateSkipped:
		if e.rec != nil && c.isInterruptRunning(w, e.rec.By) {
			task.CoveredBy = e.rec.By
		}
	}
	task.State = task.Recorded
}

// isInterruptRunning reports whether a covering interrupt has not ended, so that the covered ones wait for it
// only.
func (c *nodeCompiler) isInterruptRunning(w *packageDiff, id string) bool {
	key, _, _, stage := splitTaskID(id)
	e, ok := w.on.State[key]
	return ok && e.Stage == stage && (e.State == v1alpha1.StateInProgress || e.State == v1alpha1.StateErroring)
}

// waitForName keeps a task from starting while a pod of an earlier run has its name.
func (c *nodeCompiler) waitForName(w *packageDiff, st *step, task *rollout.Task) {
	if len(c.pods.work) == 0 {
		return
	}
	names := podNames(c.facts.Skyhook.Name, st, w.n.Name)
	for _, pod := range c.pods.work {
		if slices.Contains(names, pod.name) && (pod.leaving || pod.parts != nil || !w.isCurrentPod(pod)) {
			task.Object.Leaving = true
			task.Why = &rollout.Why{Reason: rollout.ReasonPodLost, Text: "an earlier pod " + pod.name + " has to go first", About: "Pod " + c.facts.Config.Namespace + "/" + pod.name}
		}
	}
}

// entriesOf returns the entries of the packages that a pod works for.
func (w *packageDiff) entriesOf(pod *podInfo) []entry {
	var out []entry
	for _, of := range pod.works() {
		out = append(out, w.entries[of.tag.Name]...)
	}
	return out
}

// isCurrentPod reports whether a pod belongs to an entry that the node records.
func (w *packageDiff) isCurrentPod(pod *podInfo) bool {
	for _, e := range w.entriesOf(pod) {
		if found := findPod(w.pods, e); found != nil && found.pod() == pod {
			return true
		}
	}
	return false
}

// applyPod sets the task's state from its pod.
func (c *nodeCompiler) applyPod(w *packageDiff, st *step, e entry, pod *podInfo, task *rollout.Task) {
	task.Object.Name, task.State, task.Attempts.Started = pod.name, pod.state, pod.created
	if pod.state == succeeded && !st.isInterrupt() { // an interrupt ends when it is proven, and is recorded at once
		task.Attempts.Ended = pod.ended
	}
	if pod.why != nil || pod.state == succeeded {
		task.Why = pod.why
	}
	task.Object.Unpulled = pod.cannotPull()
	if pod.attempts > task.Attempts.Failed {
		task.Attempts.Failed = pod.attempts
	}
	if pod.failedAt.After(task.Attempts.FailedAt) {
		task.Attempts.FailedAt = pod.failedAt
	}
	task.Object.Dead, task.Object.Leaving = pod.dead, pod.leaving
	task.Object.Stale = !pod.healthy && !pod.leaving && pod.state != succeeded && c.isOutdated(w, st, e, pod)
	if task.Why == nil && pod.healthy && pod.state == running && !pod.leaving && c.wasEditedMeanwhile(st, e) {
		task.Why = &rollout.Why{
			Reason: rollout.ReasonDefinitionChanged, Since: pod.created, About: "Pod " + c.facts.Config.Namespace + "/" + pod.name,
			Text: "an edited definition of package " + st.name + " waits: stage " + string(st.stage) + " runs with an earlier one",
		}
	}
	if st.isInterrupt() && pod.state == succeeded && e.rec != nil && e.rec.Payload != nil && e.rec.Payload.Type == v1alpha1.InterruptReboot {
		c.proveReboot(w, e.rec, pod, task)
	}
	c.applyImage(w.n, st, pod, task)
}

// wasEditedMeanwhile reports whether the package was edited, in a way that affects its pods, after its stage began.
func (c *nodeCompiler) wasEditedMeanwhile(st *step, e entry) bool {
	if st.isInterrupt() || e.rec == nil || e.rec.Hash == "" || e.rec.Hash == st.def.Hash {
		return false
	}
	return c.facts.edits(e.rec.Hash, st.def)
}

// isOutdated reports whether the pod was made from other inputs than a new one would be.
func (c *nodeCompiler) isOutdated(w *packageDiff, st *step, e entry, pod *podInfo) bool {
	isCompact := c.facts.isCompactStep(st, w.n, &w.rec)
	if st.isInterrupt() && e.rec != nil && e.rec.Payload != nil {
		return !sameInterrupt(e.rec.Effect, st.effect) || pod.content != c.render.contentOf(st, e.rec.Payload, pod.whole != nil)
	}
	if c.facts.hasPulledRecorded(st, pod) {
		return pod.content != c.render.contentFor(st, st.payload, "", isCompact)
	}
	isApartNow := w.rec.Apart && pod.whole != nil && len(pod.whole.parts) > 1 && pod.part.index == 0 && !pod.part.begun
	return isApartNow || pod.content != c.render.contentOf(st, st.payload, isCompact)
}

// proveReboot defers the success of a reboot until the node is ready in a later boot than the one before it. That may be
// another boot than the agent saw: the node can boot again before the success is recorded.
func (c *nodeCompiler) proveReboot(w *packageDiff, rec *node.PackageRecord, pod *podInfo, task *rollout.Task) {
	n := w.n
	wait := func(reason rollout.Reason, text string) {
		task.State, task.Why = rollout.StateRunning, &rollout.Why{Reason: reason, Text: text, About: "Node " + n.Name}
	}
	switch {
	case c.facts.Config.TrustAgentReboots:
	case pod.reboot != nil && !pod.reboot.IsProvenBy(n.BootID, bootsBefore(w, rec)...):
		wait(rollout.ReasonRebootTimeout, fmt.Sprintf("the agent saw the reboot, and the node has not reported boot %s yet", node.Truncate(pod.reboot.To, 40)))
	case pod.reboot == nil && rec.Boot != "" && n.BootID == rec.Boot:
		wait(rollout.ReasonRebootNotStarted, "the interrupt ended, and the node still reports the boot from before it")
	case !n.Ready:
		wait(rollout.ReasonNodeNotReady, "the node booted again and is not ready yet")
	}
}

// bootsBefore lists the boots that were recorded before a reboot: the one that it ends, and those in which packages finished.
func bootsBefore(w *packageDiff, rec *node.PackageRecord) []string {
	boots := []string{rec.Boot}
	for _, p := range w.rec.Packages {
		if p.Goal == "" {
			boots = append(boots, p.Boot)
		}
	}
	return boots
}

// markStale adds the edits that need no task: records of packages that a predecessor finished, and removal of entries with
// nothing left to do.
func (c *nodeCompiler) markStale(t *target, d *targetTasks) {
	adopt, forget := d.adopt, d.forget
	if c.facts.Standing {
		forget = nil
	}
	if len(adopt) == 0 && len(forget) == 0 || c.facts.Deleting {
		return
	}
	e := editRecord(c.facts, t.node, func(state v1alpha1.NodeState, rec *node.SkyhookRecord) {
		for _, key := range adopt {
			want := t.wanted.defs[state[key].Name]
			rec.Packages[key] = &node.PackageRecord{At: node.Position(state[key]), Hash: want.Hash, Config: want.Config, Boot: t.node.BootID}
		}
		for _, key := range forget {
			delete(state, key)
			delete(rec.Packages, key)
		}
	})
	if !e.Empty() {
		c.edit(node.NamedEdit{Node: t.node.Name, Edit: e})
	}
}
