// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Change is what an action of the plan changes on its node: taint, admit, hold, run, cover, record, release, untaint and
// retire; the other verbs change nothing. n is the node as it is after the edits of Adopt and of the earlier actions of
// the plan (With), holds are all holds on it, NodeOps' included. The edit of a run is written before its Object is
// created. Changing twice changes once.
func (c *Compiled) Change(a rollout.Action, n *Node, holds []rollout.Hold) (Edit, error) {
	switch a.Verb { // these are for any node, whatever it says
	case rollout.VerbTaint:
		return c.taint(n), nil
	case rollout.VerbUntaint:
		return Edit{RemoveTaints: []corev1.Taint{c.in.Config.RuntimeTaint}}, nil
	case rollout.VerbRelease:
		return c.release(n, holds), nil
	}
	if p := n.on(c.in.Skyhook.Name).problem; p != "" && !a.Wipe {
		return Edit{}, fmt.Errorf("changing node %s: %s", n.Name, p)
	}
	switch a.Verb {
	case rollout.VerbAdmit:
		return c.admit(a, n), nil
	case rollout.VerbHold:
		return c.hold(n, holds), nil
	case rollout.VerbRun:
		return c.run(a, n)
	case rollout.VerbCover:
		return c.cover(a, n)
	case rollout.VerbRecord:
		return c.record(a, n)
	case rollout.VerbRetire:
		return c.retire(a, n), nil
	}
	return Edit{}, nil
}

// edit changes nodeState and record together, and ties them to each other. What the record says and nodeState does
// not agree with is gone afterwards.
func (c *Compiled) edit(n *Node, change func(v1alpha1.NodeState, *Record)) Edit {
	s, on := c.in.Skyhook, n.on(c.in.Skyhook.Name)
	state := maps.Clone(on.state)
	if state == nil {
		state = v1alpha1.NodeState{}
	}
	rec := on.record.counts(n.UID, string(s.UID), on.stateHash, on.state).clone()
	change(state, &rec)
	for key := range rec.Packages {
		if _, ok := state[key]; !ok {
			delete(rec.Packages, key)
		}
	}
	e := Edit{}
	text := on.stateText
	if !maps.Equal(state, on.state) {
		text = writeState(state)
	}
	rec.Node, rec.Skyhook, rec.State = n.UID, string(s.UID), hashState(text)
	e.annotate(n, v1alpha1.PrefixNodeState+s.Name, text)
	e.annotate(n, v1alpha1.PrefixRecord+s.Name, writeRecord(rec))
	return e
}

// annotate sets an annotation unless the node has it so; the empty value is left alone.
func (e *Edit) annotate(n *Node, key, value string) {
	if value == "" || n.Annotations[key] == value {
		return
	}
	if e.Annotations == nil {
		e.Annotations = map[string]*string{}
	}
	e.Annotations[key] = &value
}

func (e *Edit) strip(n *Node, key string) {
	if _, ok := n.Annotations[key]; !ok {
		return
	}
	if e.Annotations == nil {
		e.Annotations = map[string]*string{}
	}
	e.Annotations[key] = nil
}

// sayOn writes the status of the node, as annotation and as label.
func (c *Compiled) sayOn(e *Edit, n *Node, status v1alpha1.Status) {
	key, value := c.words.status, string(status)
	e.annotate(n, key, value)
	if n.Labels[key] != value {
		if e.Labels == nil {
			e.Labels = map[string]*string{}
		}
		e.Labels[key] = &value
	}
}

// hush takes the status away.
func (e *Edit) hush(n *Node, skyhook string) {
	key := v1alpha1.PrefixStatus + skyhook
	e.strip(n, key)
	if _, ok := n.Labels[key]; ok {
		if e.Labels == nil {
			e.Labels = map[string]*string{}
		}
		e.Labels[key] = nil
	}
}

func (c *Compiled) taint(n *Node) Edit {
	e := Edit{}
	if !Tainted(n, c.in.Config.RuntimeTaint) {
		e.AddTaints = []corev1.Taint{c.in.Config.RuntimeTaint}
	}
	e.annotate(n, autoTaintKey(c.in.Config.RuntimeTaint), "true")
	return e
}

// autoTaintKey is the annotation that says whose taint it is. A taint's key may have a domain, the name of an
// annotation may not have a second one.
func autoTaintKey(t corev1.Taint) string {
	name := strings.ReplaceAll(t.Key, "/", "_")
	key := v1alpha1.PrefixAutoTaint + name
	return strings.TrimRight(key[:min(len(key), len(v1alpha1.Group)+1+63)], "-_.")
}

// admit takes a seat: from now on the node is in progress, whatever happens to us. Unfinished packages begin a new
// run, so that nothing counts as done because an earlier admission did it.
func (c *Compiled) admit(a rollout.Action, n *Node) Edit {
	now := whole(c.in.Now)
	e := c.edit(n, func(_ v1alpha1.NodeState, rec *Record) {
		if rec.Admitted {
			return
		}
		rec.Admitted, rec.Skipped, rec.Interrupts = true, false, 0
		rec.Admission++
		rec.At, rec.Order, rec.Batch, rec.Group, rec.Generation = &now, a.Order, a.Batch, a.Group, c.in.Skyhook.Generation
		rec.FinishedAt, rec.Offered = nil, c.offered(n)
		for _, p := range rec.Packages {
			if p.Goal != "" {
				p.Run, p.Interrupt, p.Payload, p.By, p.Generation = "", "", nil, "", 0
				p.Attempts, p.FailedAt, p.Failure, p.Again = 0, nil, nil, false
			}
		}
	})
	c.sayOn(&e, n, v1alpha1.StatusInProgress)
	e.annotate(n, c.words.version, c.in.Config.Version)
	return e
}

// inherit takes over the seat of a predecessor, whose admission is not recorded: it was at work here when we came.
func (c *Compiled) inherit(rec *Record) {
	if rec.Admitted || rec.Admission > 0 {
		return
	}
	now := whole(c.in.Now)
	rec.Admitted, rec.Admission, rec.At, rec.Generation = true, 1, &now, c.in.Skyhook.Generation
}

// hold cordons the node in this Skyhook's name, and remembers whether somebody else had done so before any of us.
func (c *Compiled) hold(n *Node, holds []rollout.Hold) Edit {
	name, on := c.in.Skyhook.Name, n.on(c.in.Skyhook.Name)
	e := Edit{}
	if !on.cordoned || on.record.Held == nil {
		was := n.Unschedulable && !on.cordoned
		if rest := others(holds, Ref(name)); len(rest) > 0 {
			was = was && slices.ContainsFunc(rest, func(h rollout.Hold) bool { return h.WasCordoned })
		}
		e = c.edit(n, func(_ v1alpha1.NodeState, rec *Record) { rec.Held = &Held{At: whole(c.in.Now), WasCordoned: was} })
		e.annotate(n, v1alpha1.PrefixCordon+name, "true")
	}
	if !n.Unschedulable { // somebody gave the node back meanwhile: nobody's cordon is older than ours now
		e = e.Plus(ClearFound(n.With(e)))
	}
	if !n.Unschedulable {
		yes := true
		e.Unschedulable = &yes
	}
	return e
}

// ClearFound forgets, in every Skyhook's record, that the node was cordoned before.
func ClearFound(n *Node) Edit {
	e := Edit{}
	for name, on := range n.records {
		if on.problem != "" || on.record.Held == nil || !on.record.Held.WasCordoned {
			continue
		}
		rec := on.record.clone()
		rec.Held.WasCordoned = false
		e.annotate(n, v1alpha1.PrefixRecord+name, writeRecord(rec))
	}
	return e
}

func others(holds []rollout.Hold, owner rollout.Ref) []rollout.Hold {
	return slices.DeleteFunc(slices.Clone(holds), func(h rollout.Hold) bool { return h.Owner == owner })
}

// release gives up this Skyhook's hold. The node becomes schedulable when it was the last one, and only if the node
// was schedulable before.
func (c *Compiled) release(n *Node, holds []rollout.Hold) Edit {
	name, on := c.in.Skyhook.Name, n.on(c.in.Skyhook.Name)
	if !on.cordoned {
		return Edit{}
	}
	e := Edit{}
	was := on.recordProblem // nobody knows any more: then it stays cordoned
	if held := on.record.Held; held != nil {
		was = on.record.Node == n.UID && held.WasCordoned
		rec := on.record.clone()
		rec.Held = nil
		e.annotate(n, v1alpha1.PrefixRecord+name, writeRecord(rec))
	}
	e.strip(n, v1alpha1.PrefixCordon+name)
	if n.Unschedulable && !was && len(others(holds, Ref(name))) == 0 {
		no := false
		e.Unschedulable = &no
	}
	return e
}

// retire gives the seat back. With Wipe everything of this Skyhook goes, and what stays says only that the node is
// not new.
func (c *Compiled) retire(a rollout.Action, n *Node) Edit {
	if a.Wipe {
		return c.wipe(n)
	}
	e := c.edit(n, func(_ v1alpha1.NodeState, rec *Record) {
		rec.Admitted, rec.Skipped = false, a.Skip
		if t := c.targets[n.Name]; t != nil && t.selected && !a.Skip {
			now := whole(c.in.Now)
			rec.FinishedAt = &now
		}
	})
	switch t := c.targets[n.Name]; {
	case t != nil && !t.selected:
		e.hush(n, c.in.Skyhook.Name)
		e = e.Plus(c.unconditioned(n))
	case a.Skip:
		c.sayOn(&e, n, v1alpha1.StatusWaiting)
	default:
		c.sayOn(&e, n, v1alpha1.StatusComplete)
	}
	return e
}

// wipe removes what this Skyhook wrote to a node. A hold must have been released before.
func (c *Compiled) wipe(n *Node) Edit {
	name := c.in.Skyhook.Name
	e := Edit{}
	for _, prefix := range []string{v1alpha1.PrefixNodeState, v1alpha1.PrefixRecord, v1alpha1.PrefixCordon, v1alpha1.PrefixVersion} {
		e.strip(n, prefix+name)
	}
	e.hush(n, name)
	if !e.Empty() {
		e.annotate(n, v1alpha1.AnnotationKnown, "true")
	}
	return e.Plus(c.unconditioned(n))
}

func (c *Compiled) unconditioned(n *Node) Edit {
	e := Edit{}
	for _, cond := range n.Conditions {
		if c.ownCondition(cond.Type) {
			e.RemoveConditions = append(e.RemoveConditions, cond.Type)
		}
	}
	return e
}

func (c *Compiled) ownCondition(t corev1.NodeConditionType) bool {
	return t == c.words.notReady || t == c.words.erroring
}
