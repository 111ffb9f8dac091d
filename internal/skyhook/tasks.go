// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

func sortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func cutKey(key string) (name, version string, ok bool) { return strings.Cut(key, "|") }

// podOf is the pod that works for an entry of a nodeState: of the same package, version and stage, and of the run the
// record names. Of several the newest counts.
func (c *Compiled) podOf(node string, e entry) *seen {
	run := ""
	if e.rec != nil {
		run = e.rec.Run
	}
	pods := c.pods[node]
	for i := len(pods) - 1; i >= 0; i-- {
		t := pods[i].tag
		if t.Name == e.Name && t.Version == e.Version && t.Stage == e.Stage && pods[i].run == run {
			return pods[i]
		}
	}
	return nil
}

// tasks turns steps into tasks, with what their pods and the record say.
func (c *Compiled) tasks(w *walk, steps []*step) (tasks []rollout.Task, byID map[string]*step, used map[*seen]bool) {
	tasks, byID = make([]rollout.Task, 0, len(steps)), make(map[string]*step, len(steps))
	used = map[*seen]bool{}
	for _, st := range steps {
		byID[st.id] = st
		c.keep(st.def)
		tasks = append(tasks, c.task(w, st, used))
	}
	return tasks, byID, used
}

// strays are the pods that belong to no task.
func (c *Compiled) strays(t *target, out *rollout.Target, used map[*seen]bool) {
	for _, pod := range c.pods[t.node.Name] {
		switch {
		case pod.leaving && pod.state != succeeded:
			out.Going = append(out.Going, pod.name)
		case !used[pod] && !pod.leaving:
			out.Strays = append(out.Strays, pod.name)
		}
	}
}

// keep sees to it that a definition stays until the step that uses it has ended.
func (c *Compiled) keep(d *Definition) {
	if c.byHash[d.Hash] != nil || c.in.Definitions[d.Hash] != nil {
		return
	}
	if c.extra == nil {
		c.extra = map[string]*Definition{}
	}
	c.extra[d.Hash] = d
}

func (c *Compiled) task(w *walk, st *step, used map[*seen]bool) rollout.Task {
	task := rollout.Task{
		ID: st.id, Label: st.name + " " + string(st.stage), After: st.after,
		State: rollout.StatePending, Recorded: rollout.StatePending,
		Limit: c.limit(st), Uninstall: st.uninstalls(),
	}
	if r := st.def.Package.Retries; r != nil {
		task.Retries, task.Bounded = int(*r)+1, true
	}
	switch {
	case st.interrupts():
		task.Need, task.Strength = rollout.NeedAlone, strength(st.payload)
	case st.effect != nil:
		task.Need = rollout.NeedDrained
	}
	e, current := w.entryOf(st)
	if !current {
		c.waitForName(w, st, &task)
		return task
	}
	if e.rec != nil && !edited(st, e.rec) {
		task.Attempts, task.Noted = e.rec.Attempts, e.rec.Attempts
		if e.rec.FailedAt != nil {
			task.FailedAt = *e.rec.FailedAt
		}
		if f := e.rec.Failure; f != nil {
			task.Why = &rollout.Why{Reason: f.Reason, Text: f.Text, Since: task.FailedAt}
		}
	}
	if e.rec != nil && e.rec.Payload != nil && e.rec.Payload.Type == v1alpha1.InterruptReboot {
		task.BootID = e.rec.Boot
	}
	c.recorded(w, st, e, &task)
	if task.Recorded != rollout.StateRunning && task.Recorded != rollout.StateFailing {
		c.waitForName(w, st, &task)
		return task
	}
	pod := c.podOf(w.n.Name, e)
	if pod == nil {
		task.State, task.Lost = task.Recorded, true
		c.waitForName(w, st, &task)
		return task
	}
	used[pod] = true
	c.observed(w, st, e, pod, &task)
	return task
}

// edited says that a step is not the one whose attempts are recorded: an edit may have mended it.
func edited(st *step, rec *node.PackageRecord) bool {
	if st.interrupts() {
		return !sameInterrupt(rec.Effect, st.effect)
	}
	return rec.Hash != st.def.Hash
}

// recorded reads how far the node says the step is.
func (c *Compiled) recorded(w *walk, st *step, e entry, task *rollout.Task) {
	switch {
	case e.underWay():
		task.Recorded = rollout.StateRunning
		if st.stage == v1alpha1.StageUninstallInterrupt && (e.rec == nil || e.rec.Interrupt == "") {
			task.Recorded = rollout.StatePending // the uninstall ended and moved the entry here; nothing runs yet
		}
	case e.State == v1alpha1.StateErroring:
		task.Recorded = rollout.StateFailing
	case e.State == v1alpha1.StateSkipped:
		if e.rec != nil && c.interruptRuns(w, e.rec.By) {
			task.CoveredBy = e.rec.By
		}
	}
	task.State = task.Recorded
}

// interruptRuns says that the interrupt that covers others is still under way, so that they wait for it and for
// nothing else.
func (c *Compiled) interruptRuns(w *walk, id string) bool {
	key, _, _, stage := split(id)
	e, ok := w.on.State[key]
	return ok && e.Stage == stage && (e.State == v1alpha1.StateInProgress || e.State == v1alpha1.StateErroring)
}

// waitForName keeps a task from starting while the name of its pod is taken by one of an earlier run.
func (c *Compiled) waitForName(w *walk, st *step, task *rollout.Task) {
	if len(c.pods[w.n.Name]) == 0 {
		return
	}
	name := podName(c.in.Skyhook.Name, st, w.n.Name)
	for _, pod := range c.pods[w.n.Name] {
		if pod.name == name && (pod.leaving || !w.counts(pod)) {
			task.Leaving = true
			task.Why = &rollout.Why{Reason: rollout.ReasonPodLost, Text: "an earlier pod " + name + " has to go first", About: "Pod " + c.in.Config.Namespace + "/" + name}
		}
	}
}

// counts says that a pod works for what the node records now.
func (w *walk) counts(pod *seen) bool {
	for _, e := range w.entries[pod.tag.Name] {
		if w.c.podOf(w.n.Name, e) == pod {
			return true
		}
	}
	return false
}

// observed reads the step's pod.
func (c *Compiled) observed(w *walk, st *step, e entry, pod *seen, task *rollout.Task) {
	task.Object, task.State, task.Started = pod.name, pod.state, pod.created
	if pod.why != nil || pod.state == succeeded {
		task.Why = pod.why
	}
	if pod.attempts > task.Attempts {
		task.Attempts = pod.attempts
	}
	if pod.failedAt.After(task.FailedAt) {
		task.FailedAt = pod.failedAt
	}
	task.Dead, task.Leaving = pod.dead, pod.leaving
	task.Stale = !pod.healthy && !pod.leaving && pod.state != succeeded && c.differs(st, e, pod)
	if st.interrupts() && pod.state == succeeded && e.rec != nil && e.rec.Payload != nil && e.rec.Payload.Type == v1alpha1.InterruptReboot {
		c.proveReboot(w.n, e.rec, pod, task)
	}
}

// differs says that the pod was made from something else than what would be made now.
func (c *Compiled) differs(st *step, e entry, pod *seen) bool {
	if st.interrupts() && e.rec != nil && e.rec.Payload != nil {
		return !sameInterrupt(e.rec.Effect, st.effect) || pod.content != c.contentOf(st, e.rec.Payload)
	}
	return pod.content != c.contentOf(st, st.payload)
}

// proveReboot holds back the success of a reboot until the node itself shows another boot and is ready.
func (c *Compiled) proveReboot(n *node.Node, rec *node.PackageRecord, pod *seen, task *rollout.Task) {
	wait := func(reason rollout.Reason, text string) {
		task.State, task.Why = rollout.StateRunning, &rollout.Why{Reason: reason, Text: text, About: "Node " + n.Name}
	}
	switch {
	case c.in.Config.TrustAgentReboots:
	case pod.reboot != nil && n.BootID != pod.reboot.To:
		wait(rollout.ReasonRebootTimeout, fmt.Sprintf("the agent saw the reboot, and the node has not reported boot %s yet", bounded(pod.reboot.To, 40)))
	case pod.reboot == nil && rec.Boot != "" && n.BootID == rec.Boot:
		wait(rollout.ReasonRebootNotStarted, "the interrupt ended, and the node still reports the boot from before it")
	case !n.Ready:
		wait(rollout.ReasonNodeNotReady, "the node booted again and is not ready yet")
	}
}

// tidy is what can be written to a node without any task: records of packages a predecessor finished, and entries that
// nothing is owed for any more.
func (c *Compiled) tidy(t *target, d *derived) {
	adopt, forget := d.adopt, d.forget
	if c.Rollout.Paused || c.Rollout.Broken != nil {
		forget = nil
	}
	if len(adopt) == 0 && len(forget) == 0 || c.Rollout.Deleting {
		return
	}
	e := c.edit(t.node, func(state v1alpha1.NodeState, rec *node.SkyhookRecord) {
		for _, key := range adopt {
			want := c.defs[state[key].Name]
			rec.Packages[key] = &node.PackageRecord{At: node.Position(state[key]), Hash: want.Hash, Config: want.Config, Boot: t.node.BootID}
		}
		for _, key := range forget {
			delete(state, key)
			delete(rec.Packages, key)
		}
	})
	if !e.Empty() {
		c.Adopt = append(c.Adopt, node.NamedEdit{Node: t.node.Name, Edit: e})
	}
}
