// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"slices"
	"strconv"
	"time"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// A compact pod begins with its next stage by itself. recordBegun records that, before the node is compared with the spec: what follows
// sees the node as if each stage had been started by a plan of its own.

// recordBegun returns the node as it is once it records what compact pods on it have begun with. The edit is in Adopt.
func (c *nodeCompiler) recordBegun(n *node.Node) *node.Node {
	for _, pod := range c.pods.work {
		on := n.Skyhook(c.facts.Skyhook.Name)
		if len(pod.parts) < 2 || on.Problem != "" {
			continue
		}
		rec := on.Record.Effective(n.UID, string(c.facts.Skyhook.UID), on.StateHash, on.State)
		if e := c.editBegun(n, &rec, pod); !e.Edit.Empty() {
			c.edit(e)
			n = n.With(e.Edit)
		}
	}
	return n
}

// editBegun returns the edit that records which parts of a pod have begun, and so that those before have succeeded.
func (c *nodeCompiler) editBegun(n *node.Node, rec *node.SkyhookRecord, pod *podInfo) node.NamedEdit {
	out := node.NamedEdit{Node: n.Name}
	first := pod.parts[0].part.id()
	queue := rec.Queues[first]
	if !rec.Admitted || queue.ID == "" || queue.ID != pod.parts[0].part.queue || queue.Begun < 1 {
		return out
	}
	begun := queue.Begun
	for begun < len(pod.parts) && pod.parts[begun].part.begun && c.frozenStep(pod.parts[begun]) != nil {
		begun++
	}
	if begun == queue.Begun {
		return out
	}
	status := v1alpha1.StatusInProgress
	out.Edit = editRecord(c.facts, n, func(state v1alpha1.NodeState, rec *node.SkyhookRecord) {
		for i := queue.Begun; i < begun; i++ {
			before, next := pod.parts[i-1], pod.parts[i]
			if c.completePart(before, state, rec, n) {
				ended := c.partAction(n, rollout.VerbRecord, before)
				ended.Took = max(0, next.created.Sub(before.created))
				out.Done = append(out.Done, ended)
			}
			c.beginPart(next, state, rec, n)
			out.Done = append(out.Done, c.partAction(n, rollout.VerbRun, next))
		}
		rec.SetQueue(first, node.Queue{ID: queue.ID, Begun: begun})
		status = statusDuring(state)
	})
	out.Edit.SetSkyhookStatus(n, c.facts.Skyhook.Name, status)
	return out
}

func (c *nodeCompiler) partAction(n *node.Node, verb rollout.Verb, part *podInfo) rollout.Action {
	a := rollout.Action{Verb: verb, Rollout: Ref(c.facts.Skyhook.Name), Node: n.Name, Task: part.part.id(), Object: part.name, Why: rollout.Why{Reason: rollout.ReasonOwed, Text: part.tag.Name + " " + string(part.tag.Stage)}}
	if verb == rollout.VerbRecord {
		a.State, a.Attempts, a.Why = rollout.StateDone, part.attempts, rollout.Why{
			Reason: rollout.ReasonEnded, Text: part.tag.Name + " " + string(part.tag.Stage) + " succeeded", Since: part.created,
		}
	}
	return a
}

// completePart records that a part succeeded, unless that is recorded.
func (c *nodeCompiler) completePart(part *podInfo, state v1alpha1.NodeState, rec *node.SkyhookRecord, n *node.Node) bool {
	key := part.part.key()
	entry, isThere := state[key]
	p, st := rec.Packages[key], c.frozenStep(part)
	isOpen := isThere && entry.Stage == part.tag.Stage && (entry.State == v1alpha1.StateInProgress || entry.State == v1alpha1.StateErroring)
	if !isOpen || p == nil || st == nil || p.Run != part.run {
		return false
	}
	if part.refuses != nil {
		p.Refuses = *part.refuses
	}
	rec.Proving = nil
	c.facts.completeStage(st, state, rec, n, p)
	return true
}

// beginPart records that a part runs, with what its container was made from.
func (c *nodeCompiler) beginPart(part *podInfo, state v1alpha1.NodeState, rec *node.SkyhookRecord, n *node.Node) {
	st := c.frozenStep(part)
	rec.Proving, rec.Reboot = nil, rec.Reboot.AfterRun()
	p := c.facts.beginStage(st, state, rec, n)
	p.Run, p.Generation = part.run, part.part.Generation
}

// frozenStep returns the step that a part was made from; nil if its definition is not known any more.
func (c *nodeCompiler) frozenStep(part *podInfo) *step {
	def := c.facts.definition(part.part.Hash)
	if def == nil {
		return nil
	}
	st := &step{stage: part.tag.Stage, def: def, work: work{goal: part.part.Goal, from: part.part.From, effect: part.part.Effect}}
	st.setKey(part.part.key())
	return st
}

// findQueued returns the part of a pod that will run a step when the parts before it have ended; nil if none will.
func (c *nodeCompiler) findQueued(w *packageDiff, st *step) *podInfo {
	for _, pod := range c.pods.work {
		if !pod.mayGoOn() {
			continue
		}
		queue := w.rec.Queues[pod.parts[0].part.id()]
		for _, part := range pod.parts[pod.nextPart().part.index:] {
			isSame := part.part.id() == st.id && part.part.Hash == st.def.Hash && part.content == c.render.contentOf(st, st.payload, true)
			if isSame && st.notYet == nil && queue.ID != "" && queue.ID == part.part.queue {
				return part
			}
		}
	}
	return nil
}

// settleQueues decides which tasks really run in pods that go on. A pod ends before the first part that no task wants, and before a
// task that waits for something else. Other tasks wait until it has ended.
func (c *nodeCompiler) settleQueues(w *packageDiff, steps []*step, tasks []rollout.Task, queued map[*podInfo]int) (queues []rollout.Queue) {
	ends := ""
	for _, pod := range c.pods.work {
		if !pod.mayGoOn() {
			continue
		}
		isWanted := true
		for _, part := range pod.parts[pod.nextPart().part.index:] {
			at, isQueued := queued[part]
			isWanted = isWanted && isQueued && mayFollow(steps, steps[at], part)
			if isQueued && !isWanted {
				tasks[at].State, tasks[at].Object.Name, tasks[at].Object.Queued = rollout.StatePending, "", false
			}
		}
		if !isWanted {
			ends = pod.name
		}
		queues = append(queues, rollout.Queue{Object: pod.name, Unwanted: !isWanted, Recalled: pod.parts[0].part.stops})
	}
	if ends == "" {
		return queues
	}
	for i := range tasks {
		if k := &tasks[i]; k.State == rollout.StatePending && k.Object.Name == "" {
			k.Object.Leaving = true
			k.Why = &rollout.Why{
				Reason: rollout.ReasonDefinitionChanged, About: "Pod " + c.facts.Config.Namespace + "/" + ends,
				Text: "pod " + ends + " was made from an earlier definition and ends before its next stage",
			}
		}
	}
	return queues
}

// mayFollow reports whether the tasks that a step waits for, as far as they are not done, run before it in the same pod.
func mayFollow(steps []*step, st *step, part *podInfo) bool {
	isBefore := func(id string) bool {
		return slices.ContainsFunc(part.whole.parts[:part.part.index], func(o *podInfo) bool { return o.part.id() == id })
	}
	return !slices.ContainsFunc(st.after, func(id string) bool {
		isOpen := slices.ContainsFunc(steps, func(o *step) bool { return o.id == id })
		return isOpen && !isBefore(id)
	})
}

// recordUnstarted notes on the node that a compact pod could not start there, so that the next one is made otherwise: with one stage
// if it had several, since one image that cannot be pulled would keep all waiting, and else without an image volume.
func (c *nodeCompiler) recordUnstarted(n *node.Node) *node.Node {
	for _, pod := range c.pods.work {
		on := n.Skyhook(c.facts.Skyhook.Name)
		if pod.parts == nil || pod.leaving || on.Problem != "" {
			continue
		}
		first := pod.parts[0]
		isStuck := !first.part.begun && first.why != nil && first.state == running
		isInterrupt := first.part.Container == containerInterrupt
		isLone := len(pod.parts) == 1
		if !isStuck || isInterrupt || isLone && !first.part.uncreated {
			continue
		}
		e := editRecord(c.facts, n, func(_ v1alpha1.NodeState, rec *node.SkyhookRecord) {
			if isLone {
				rec.Unmounted = mountVersions(n)
			} else {
				rec.Apart = true
			}
		})
		if !e.Empty() {
			c.edit(node.NamedEdit{Node: n.Name, Edit: e})
			n = n.With(e)
		}
	}
	return n
}

// newQueueID returns an id that no other pod of the node has.
func (r recorder) newQueueID(n *node.Node, rec *node.SkyhookRecord, st *step) string {
	return hashID("queue", string(r.facts.Skyhook.UID), n.UID, st.id, strconv.Itoa(rec.Admission), r.facts.Now.Format(time.RFC3339Nano))
}
