// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// onNode is what one node says about one Skyhook.
type onNode struct {
	stateText, recordText string
	stateHash             string
	shape                 string // hash of everything that decides what is owed; the same on nodes that stand alike
	state                 v1alpha1.NodeState
	record                Record
	problem               string // the annotations cannot be read: says which and why
	recordProblem         bool   // it is the record that cannot be read
	erroring              bool   // some package of it fails, or nobody knows
	cordoned              bool
}

var nothing = &onNode{stateHash: hashState(""), shape: "nothing"}

// ParseNode reads a node. With prev, the result for an earlier version of it, what has not changed is not parsed again;
// for the same version prev itself comes back.
func ParseNode(n *corev1.Node, prev *Node) *Node {
	if prev != nil && prev.UID == string(n.UID) && prev.ResourceVersion == n.ResourceVersion && n.ResourceVersion != "" {
		return prev
	}
	out := &Node{
		Name: n.Name, UID: string(n.UID), ResourceVersion: n.ResourceVersion, Created: n.CreationTimestamp.Time,
		Labels: n.Labels, Annotations: n.Annotations, Taints: n.Spec.Taints, Unschedulable: n.Spec.Unschedulable,
		BootID: n.Status.NodeInfo.BootID, Facts: facts(n),
	}
	for _, c := range n.Status.Conditions {
		switch {
		case c.Type == corev1.NodeReady:
			if out.Ready = c.Status == corev1.ConditionTrue; out.Ready {
				out.ReadySince = c.LastTransitionTime.Time
			}
		case strings.HasPrefix(string(c.Type), v1alpha1.Group+"/"):
			out.Conditions = append(out.Conditions, c)
		}
	}
	out.read(prev)
	return out
}

// read parses the annotations of every Skyhook, as far as prev did not.
func (n *Node) read(prev *Node) {
	seen := map[string]*onNode{}
	of := func(name string) *onNode {
		if seen[name] == nil {
			seen[name] = &onNode{}
		}
		return seen[name]
	}
	n.known = false
	for key, value := range n.Annotations {
		if !strings.HasPrefix(key, v1alpha1.Group+"/") {
			continue
		}
		n.known = true
		switch {
		case strings.HasPrefix(key, v1alpha1.PrefixNodeState):
			of(key[len(v1alpha1.PrefixNodeState):]).stateText = value
		case strings.HasPrefix(key, v1alpha1.PrefixRecord):
			of(key[len(v1alpha1.PrefixRecord):]).recordText = value
		case strings.HasPrefix(key, v1alpha1.PrefixCordon):
			of(key[len(v1alpha1.PrefixCordon):]).cordoned = value == "true"
		case strings.HasPrefix(key, v1alpha1.PrefixStatus):
			of(key[len(v1alpha1.PrefixStatus):])
		case strings.HasPrefix(key, v1alpha1.PrefixVersion):
			of(key[len(v1alpha1.PrefixVersion):])
		}
	}
	n.records = seen
	for name, o := range seen {
		if prev != nil {
			if p := prev.records[name]; p != nil && p.stateText == o.stateText && p.recordText == o.recordText {
				o.state, o.stateHash, o.shape, o.record = p.state, p.stateHash, p.shape, p.record
				o.problem, o.recordProblem, o.erroring = p.problem, p.recordProblem, p.erroring
				n.noteReboots(o)
				continue
			}
		}
		o.parse(name)
		n.noteReboots(o)
	}
	slices.Sort(n.rebootsFrom)
	n.holds, n.latest = n.findHolds(), n.findLatest()
}

func (o *onNode) parse(name string) {
	o.stateHash = hashState(o.stateText)
	var err error
	if o.recordText != "" {
		if o.record, err = readRecord(o.recordText); err != nil {
			o.recordProblem = true
			o.problem = "annotation " + v1alpha1.PrefixRecord + name + " cannot be read: " + bounded(err.Error(), 200) + "; delete it"
		}
	}
	if o.stateText != "" {
		if o.state, err = readState(o.stateText); err != nil {
			o.problem = "annotation " + v1alpha1.PrefixNodeState + name + " cannot be read: " + bounded(err.Error(), 200) + "; correct it, or delete it to start again on this node"
		}
	}
	for _, e := range o.state {
		o.erroring = o.erroring || e.State == v1alpha1.StateErroring || e.State == v1alpha1.StateUnknown
	}
	alike := make(map[string]PackageRecord, len(o.record.Packages))
	for key, p := range o.record.Packages {
		alike[key] = PackageRecord{At: p.At, Hash: p.Hash, Config: p.Config, Goal: p.Goal, From: p.From, Effect: p.Effect,
			Interrupt: p.Interrupt, Payload: p.Payload, By: p.By, Attempts: p.Attempts, FailedAt: p.FailedAt,
			Failure: p.Failure, Again: p.Again}
		if p.Interrupt != "" { // the boot it is to end
			q := alike[key]
			q.Boot = p.Boot
			alike[key] = q
		}
	}
	o.shape = short(o.stateHash, encode(alike))
}

// noteReboots remembers from which boots a reboot of ours is under way, whichever Skyhook asked for it.
func (n *Node) noteReboots(o *onNode) {
	for _, p := range o.record.Packages {
		if p.Interrupt != "" && p.Payload != nil && p.Payload.Type == v1alpha1.InterruptReboot && p.Boot != "" {
			n.rebootsFrom = append(n.rebootsFrom, p.Boot)
		}
	}
}

// on is what the node says about a Skyhook.
func (n *Node) on(skyhook string) *onNode {
	if o := n.records[skyhook]; o != nil {
		return o
	}
	return nothing
}

// Holds lists the cordons that Skyhooks have on a node; Owner is "Skyhook/<name>", whether that Skyhook exists or not.
func Holds(n *Node) []rollout.Hold { return slices.Clone(n.holds) }

func (n *Node) findHolds() []rollout.Hold {
	var out []rollout.Hold
	for name, o := range n.records {
		if !o.cordoned {
			continue
		}
		h := rollout.Hold{Owner: Ref(name)}
		if held := o.record.Held; held != nil && o.record.Node == n.UID {
			h.Since, h.WasCordoned = held.At, held.WasCordoned
		}
		out = append(out, h)
	}
	slices.SortFunc(out, func(a, b rollout.Hold) int { return a.Owner.Compare(b.Owner) })
	return out
}

// Latest is the latest time any Skyhook recorded on the node.
func (n *Node) Latest() time.Time { return n.latest }

func (n *Node) findLatest() time.Time {
	var out time.Time
	note := func(t *time.Time) {
		if t != nil && t.After(out) {
			out = *t
		}
	}
	for _, o := range n.records {
		note(o.record.At)
		note(o.record.FinishedAt)
		if o.record.Held != nil {
			note(&o.record.Held.At)
		}
		for _, p := range o.record.Packages {
			note(p.FailedAt)
		}
	}
	return out
}

// Known says that some Skyhook has left a mark on the node before.
func Known(n *Node) bool { return n.known }

// Tainted says that the node carries this taint (key and effect).
func Tainted(n *Node, taint corev1.Taint) bool {
	return slices.ContainsFunc(n.Taints, func(t corev1.Taint) bool { return t.Key == taint.Key && t.Effect == taint.Effect })
}

// Ref names a Skyhook, its rollout and its holds.
func Ref(skyhook string) rollout.Ref { return rollout.Ref{Kind: Kind, Name: skyhook} }

// With is the node as it will be once the edit is written, so that several actions of one plan fold into one patch.
func (n *Node) With(e Edit) *Node {
	out := *n
	out.ResourceVersion = ""
	out.Annotations = patched(n.Annotations, e.Annotations)
	out.Labels = patched(n.Labels, e.Labels)
	if e.Unschedulable != nil {
		out.Unschedulable = *e.Unschedulable
	}
	out.Taints = slices.DeleteFunc(slices.Clone(n.Taints), func(t corev1.Taint) bool {
		return slices.ContainsFunc(e.RemoveTaints, func(r corev1.Taint) bool { return r.Key == t.Key && r.Effect == t.Effect })
	})
	out.Taints = append(out.Taints, e.AddTaints...)
	out.Conditions = slices.DeleteFunc(slices.Clone(n.Conditions), func(c corev1.NodeCondition) bool {
		return slices.Contains(e.RemoveConditions, c.Type) ||
			slices.ContainsFunc(e.SetConditions, func(s corev1.NodeCondition) bool { return s.Type == c.Type })
	})
	out.Conditions = append(out.Conditions, e.SetConditions...)
	out.rebootsFrom = nil
	out.read(n)
	return &out
}

func patched(old map[string]string, change map[string]*string) map[string]string {
	if len(change) == 0 {
		return old
	}
	out := maps.Clone(old)
	if out == nil {
		out = map[string]string{}
	}
	for key, value := range change {
		if value == nil {
			delete(out, key)
		} else {
			out[key] = *value
		}
	}
	return out
}

// Plus is one edit that does what both do, the second one last.
func (e Edit) Plus(next Edit) Edit {
	out := Edit{
		Annotations: merged(e.Annotations, next.Annotations), Labels: merged(e.Labels, next.Labels),
		Unschedulable: e.Unschedulable,
		AddTaints:     lastTaints(e.AddTaints, next.RemoveTaints, next.AddTaints),
		RemoveTaints:  lastTaints(e.RemoveTaints, next.AddTaints, next.RemoveTaints),
	}
	if next.Unschedulable != nil {
		out.Unschedulable = next.Unschedulable
	}
	for _, c := range e.SetConditions {
		if !slices.Contains(next.RemoveConditions, c.Type) &&
			!slices.ContainsFunc(next.SetConditions, func(n corev1.NodeCondition) bool { return n.Type == c.Type }) {
			out.SetConditions = append(out.SetConditions, c)
		}
	}
	out.SetConditions = append(out.SetConditions, next.SetConditions...)
	for _, t := range append(slices.Clone(e.RemoveConditions), next.RemoveConditions...) {
		set := slices.ContainsFunc(out.SetConditions, func(c corev1.NodeCondition) bool { return c.Type == t })
		if !set && !slices.Contains(out.RemoveConditions, t) {
			out.RemoveConditions = append(out.RemoveConditions, t)
		}
	}
	return out
}

// lastTaints keeps of first what undo does not take back, and adds then.
func lastTaints(first, undo, then []corev1.Taint) []corev1.Taint {
	same := func(t corev1.Taint) func(corev1.Taint) bool {
		return func(o corev1.Taint) bool { return o.Key == t.Key && o.Effect == t.Effect }
	}
	var out []corev1.Taint
	for _, t := range first {
		if !slices.ContainsFunc(undo, same(t)) && !slices.ContainsFunc(then, same(t)) {
			out = append(out, t)
		}
	}
	return append(out, then...)
}

func merged(a, b map[string]*string) map[string]*string {
	if len(b) == 0 {
		return a
	}
	out := maps.Clone(a)
	if out == nil {
		out = map[string]*string{}
	}
	maps.Copy(out, b)
	return out
}

// Empty says that the edit changes nothing.
func (e Edit) Empty() bool {
	return len(e.Annotations) == 0 && len(e.Labels) == 0 && e.Unschedulable == nil &&
		len(e.AddTaints) == 0 && len(e.RemoveTaints) == 0 && len(e.SetConditions) == 0 && len(e.RemoveConditions) == 0
}

// TouchesStatus says that a part of the edit goes to the status subresource, and TouchesNode that a part does not.
func (e Edit) TouchesStatus() bool { return len(e.SetConditions) > 0 || len(e.RemoveConditions) > 0 }

// TouchesNode says that a part of the edit goes to the node itself.
func (e Edit) TouchesNode() bool {
	e.SetConditions, e.RemoveConditions = nil, nil
	return !e.Empty()
}
