// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"slices"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/record"
)

// A compact pod begins with its next stage by itself. recordBegun records that, before the node is compared with the spec: what follows
// sees the node as if each stage had been started by a plan of its own.

// recordBegun returns the node as it is once it records what compact pods on it have begun with. The edit is in Adopt.
func (c *nodeCompiler) recordBegun(n *node.Node) *node.Node {
	for _, pod := range c.pods.Work {
		on := n.Skyhook(c.facts.Skyhook.Name)
		if len(pod.Parts) < 2 || on.Problem != "" {
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
func (c *nodeCompiler) editBegun(n *node.Node, rec *node.SkyhookRecord, pod *podstate.Pod) node.NamedEdit {
	out := node.NamedEdit{Node: n.Name}
	first := pod.Parts[0].Part.ID()
	queue := rec.Queues[first]
	if !rec.Admitted || queue.ID == "" || queue.ID != pod.Parts[0].Part.Queue || queue.Begun < 1 {
		return out
	}
	begun := queue.Begun
	for begun < len(pod.Parts) && pod.Parts[begun].Begun && c.frozenStep(pod.Parts[begun]) != nil {
		begun++
	}
	if begun == queue.Begun {
		return out
	}
	status := v1alpha1.StatusInProgress
	out.Edit = record.EditRecord(c.facts, n, func(state v1alpha1.NodeState, rec *node.SkyhookRecord) {
		for i := queue.Begun; i < begun; i++ {
			before, next := pod.Parts[i-1], pod.Parts[i]
			if c.completePart(before, state, rec, n) {
				ended := c.partAction(n, rollout.VerbRecord, before)
				ended.Took = max(0, next.Created.Sub(before.Created))
				out.Done = append(out.Done, ended)
			}
			c.beginPart(next, state, rec, n)
			out.Done = append(out.Done, c.partAction(n, rollout.VerbRun, next))
		}
		rec.SetQueue(first, node.Queue{ID: queue.ID, Begun: begun, Of: pod.Parts[begun-1].Part.Key()})
		status = record.StatusDuring(state)
	})
	out.Edit.SetSkyhookStatus(n, c.facts.Skyhook.Name, status)
	return out
}

func (c *nodeCompiler) partAction(n *node.Node, verb rollout.Verb, part *podstate.Pod) rollout.Action {
	a := rollout.Action{Verb: verb, Rollout: plan.Ref(c.facts.Skyhook.Name), Node: n.Name, Task: part.Part.ID(), Object: part.Name, Why: rollout.Why{Reason: rollout.ReasonOwed, Text: part.Tag.Name + " " + string(part.Tag.Stage)}}
	if verb == rollout.VerbRecord {
		a.State, a.Attempts, a.Why = rollout.StateDone, part.Attempts, rollout.Why{
			Reason: rollout.ReasonEnded, Text: part.Tag.Name + " " + string(part.Tag.Stage) + " succeeded", Since: part.Created,
		}
	}
	return a
}

// completePart records that a part succeeded, unless that is recorded.
func (c *nodeCompiler) completePart(part *podstate.Pod, state v1alpha1.NodeState, rec *node.SkyhookRecord, n *node.Node) bool {
	key := part.Part.Key()
	entry, isThere := state[key]
	p, st := rec.Packages[key], c.frozenStep(part)
	isOpen := isThere && entry.Stage == part.Tag.Stage && (entry.State == v1alpha1.StateInProgress || entry.State == v1alpha1.StateErroring)
	if !isOpen || p == nil || st == nil || p.Run != part.Run {
		return false
	}
	part.UpdateRecord(p)
	rec.Proving = nil
	c.facts.CompleteStage(st, state, rec, n, p)
	return true
}

// beginPart records that a part runs, with what its container was made from.
func (c *nodeCompiler) beginPart(part *podstate.Pod, state v1alpha1.NodeState, rec *node.SkyhookRecord, n *node.Node) {
	st := c.frozenStep(part)
	rec.Proving, rec.Reboot = nil, rec.Reboot.AfterRun()
	p := c.facts.BeginStage(st, state, rec, n)
	p.Run, p.Generation, p.Unbegun = part.Run, part.Part.Generation, false
}

// frozenStep returns the step that a part was made from; nil if its definition is not known any more.
func (c *nodeCompiler) frozenStep(part *podstate.Pod) *plan.Step {
	def := c.facts.Definition(part.Part.Hash)
	if def == nil {
		return nil
	}
	st := &plan.Step{Stage: part.Tag.Stage, Definition: def, Work: plan.Work{Goal: part.Part.Goal, From: part.Part.From, Effect: part.Part.Effect}}
	st.SetKey(part.Part.Key())
	return st
}

// findQueued returns the part of a pod that will run a step when the parts before it have ended; nil if none will.
func (c *nodeCompiler) findQueued(w *plan.Diff, st *plan.Step) *podstate.Pod {
	for _, pod := range c.pods.Work {
		if !pod.MayGoOn() {
			continue
		}
		queue := w.Rec.Queues[pod.Parts[0].Part.ID()]
		for _, part := range pod.Parts[pod.NextPart().Part.Index:] {
			isSame := part.Part.ID() == st.ID && part.Part.Hash == st.Definition.Hash && part.Content == c.render.ContentOf(st, st.Payload, true)
			if isSame && st.NotYet == nil && queue.ID != "" && queue.ID == part.Part.Queue {
				return part
			}
		}
	}
	return nil
}

// settleQueues decides which tasks really run in pods that go on. A pod ends before the first part that no task wants, and before a
// task that waits for something else. Other tasks wait until it has ended.
func (c *nodeCompiler) settleQueues(steps []*plan.Step, tasks []rollout.Task, queued map[*podstate.Pod]int) (queues []rollout.Queue) {
	ends := ""
	for _, pod := range c.pods.Work {
		if !pod.MayGoOn() {
			continue
		}
		isWanted := true
		for _, part := range pod.Parts[pod.NextPart().Part.Index:] {
			at, isQueued := queued[part]
			isWanted = isWanted && isQueued && mayFollow(steps, steps[at], part)
			if isQueued && !isWanted {
				tasks[at].State, tasks[at].Object.Name, tasks[at].Object.Queued = rollout.StatePending, "", false
			}
		}
		if !isWanted {
			ends = pod.Name
		}
		queues = append(queues, rollout.Queue{Object: pod.Name, Unwanted: !isWanted, Recalled: pod.Parts[0].Part.Stops})
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
func mayFollow(steps []*plan.Step, st *plan.Step, part *podstate.Pod) bool {
	isBefore := func(id string) bool {
		return slices.ContainsFunc(part.Whole.Parts[:part.Part.Index], func(o *podstate.Pod) bool { return o.Part.ID() == id })
	}
	return !slices.ContainsFunc(st.After, func(id string) bool {
		isOpen := slices.ContainsFunc(steps, func(o *plan.Step) bool { return o.ID == id })
		return isOpen && !isBefore(id)
	})
}

// recordUnstarted notes on the node that a compact pod could not start there, so that the next one is made otherwise: with one stage
// if it had several, since one image that cannot be pulled would keep all waiting, and else without an image volume.
func (c *nodeCompiler) recordUnstarted(n *node.Node) *node.Node {
	for _, pod := range c.pods.Work {
		on := n.Skyhook(c.facts.Skyhook.Name)
		if pod.Parts == nil || pod.Leaving || on.Problem != "" {
			continue
		}
		first := pod.Parts[0]
		isStuck := !first.Begun && first.Why != nil && first.State == podstate.Running
		isInterrupt := first.Part.Container == podstate.ContainerInterrupt
		isLone := len(pod.Parts) == 1
		if !isStuck || isInterrupt || isLone && !first.Part.Uncreated {
			continue
		}
		e := record.EditRecord(c.facts, n, func(_ v1alpha1.NodeState, rec *node.SkyhookRecord) {
			if isLone {
				rec.Unmounted = plan.MountVersions(n)
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
