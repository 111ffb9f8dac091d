// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package node is what is recorded on a Kubernetes node, and how that is changed: the parsed Node, the records of
// Skyhooks and NodeOps in its annotations with their one reader and one writer, and Edit, a change as plain data.
package node

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	nodeopv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// The kinds that own holds: the first part of Hold.Owner.
const (
	KindSkyhook = "Skyhook"
	KindNodeOp  = "NodeOp"
)

// Node is what is kept of a node, parsed once per resource version and never changed afterwards.
type Node struct {
	Name            string
	UID             string
	ResourceVersion string
	Created         time.Time
	Labels          map[string]string
	Annotations     map[string]string
	Taints          []corev1.Taint
	Unschedulable   bool
	Ready           bool
	ReadySince      time.Time
	Facts           []Fact // by name
	BootID          string
	MountsReadOnly  bool                   // its container runtime mounts a directory read-only with all that is mounted below it
	Kubelet         string                 // its version
	Runtime         string                 // name and version of the container runtime: containerd://2.1.0
	Conditions      []corev1.NodeCondition // ours only

	skyhooks    map[string]*SkyhookState // by name
	nodeOps     map[string]OpState       // by annotation
	rebootsFrom []string                 // boot ids of which a reboot of ours is in progress
	holds       []ownedHold
	marks       markRecord // of holds
	handovers   handoverRecord
	known       bool
	hasMarks    bool
	mayDrain    bool

	annotationBytes int // keys and values
}

// Fact is something that a node reports and only health gates ask for.
type Fact struct{ Name, Value string }

// Parse reads a node. With prev, the result for an earlier version of it, what has not changed is not parsed again;
// for the same version prev itself comes back.
func Parse(n *corev1.Node, prev *Node) *Node {
	if prev != nil && prev.UID == string(n.UID) && prev.ResourceVersion == n.ResourceVersion && n.ResourceVersion != "" {
		return prev
	}
	out := &Node{
		Name: n.Name, UID: string(n.UID), ResourceVersion: n.ResourceVersion, Created: n.CreationTimestamp.Time,
		Labels: n.Labels, Annotations: n.Annotations, Taints: n.Spec.Taints, Unschedulable: n.Spec.Unschedulable,
		BootID: n.Status.NodeInfo.BootID, Kubelet: n.Status.NodeInfo.KubeletVersion, Runtime: n.Status.NodeInfo.ContainerRuntimeVersion, Facts: facts(n),
	}
	out.MountsReadOnly = slices.ContainsFunc(n.Status.RuntimeHandlers, MountsReadOnly)
	for _, c := range n.Status.Conditions {
		switch {
		case c.Type == corev1.NodeReady:
			if out.Ready = c.Status == corev1.ConditionTrue; out.Ready {
				out.ReadySince = c.LastTransitionTime.Time
			}
		case IsOurCondition(c):
			out.Conditions = append(out.Conditions, c)
		}
	}
	out.parseAnnotations(prev)
	return out
}

// MountsReadOnly reports whether a runtime handler is that of pods that name none, and mounts read-only what is mounted below, too.
func MountsReadOnly(h corev1.NodeRuntimeHandler) bool {
	return h.Name == "" && h.Features != nil && h.Features.RecursiveReadOnlyMounts != nil && *h.Features.RecursiveReadOnlyMounts
}

// parseAnnotations parses the annotations of every Skyhook and NodeOp, except those that are the same on prev.
func (n *Node) parseAnnotations(prev *Node) {
	if prev == nil {
		prev = &Node{}
	}
	n.known, n.skyhooks, n.nodeOps, n.rebootsFrom = false, map[string]*SkyhookState{}, nil, nil
	n.annotationBytes = 0
	for key, value := range n.Annotations {
		n.annotationBytes += len(key) + len(value)
		switch {
		case strings.HasPrefix(key, v1alpha1.Group+"/"):
			n.known = true
			n.collectSkyhook(key, value)
		case strings.HasPrefix(key, nodeopv1.PrefixRecord):
			if n.nodeOps == nil {
				n.nodeOps = map[string]OpState{}
			}
			n.nodeOps[key] = parseNodeOp(key, value, prev.nodeOps[key])
		}
	}
	for name, s := range n.skyhooks {
		if s.isOnlyStatus() {
			n.skyhooks[name] = onlyStatus
			continue
		}
		s.parse(name, prev.skyhooks[name])
		s.Cordoned = s.Cordoned || s.Record.Held != nil && s.Record.Node == n.UID // the annotation may be lost
		n.rebootsFrom = append(n.rebootsFrom, s.Record.rebootsFrom()...)
		if boot := s.Record.awaitsRebootFrom(); boot != "" {
			n.rebootsFrom = append(n.rebootsFrom, boot)
		}
	}
	slices.Sort(n.rebootsFrom)
	n.holds = n.findHolds()
	n.marks = n.parseMarks()
	n.handovers = n.parseHandovers()
	n.hasMarks = n.looksMarked()
	n.mayDrain = n.isHeldForWork()
}

// ownedHold is a hold and the UID of the NodeOp it belongs to; a Skyhook's has none.
type ownedHold struct {
	rollout.Hold
	uid   string
	works bool // its work on the node is not done: no proof is waited for
}

// Holds lists the holds that Skyhooks and NodeOps have on a node, whether their owners exist or not, Skyhooks first.
// Owner is "Skyhook/<name>" or "NodeOp/<namespace>/<name>". The owner of a hold of a NodeOp that does not exist is named
// with its UID, because there may be another one of that name; with exists nil they all count as existing.
func (n *Node) Holds(exists func(owner rollout.Ref, uid string) bool) []rollout.Hold {
	out := make([]rollout.Hold, len(n.holds))
	for i, h := range n.holds {
		if h.uid != "" && exists != nil && !exists(h.Owner, h.uid) {
			h.Owner.Name += "@" + h.uid
		}
		out[i] = h.Hold
	}
	return out
}

func (n *Node) findHolds() []ownedHold {
	skyhooks, nodeOps := n.skyhookHolds(), n.nodeOpHolds()
	byOwner := func(a, b ownedHold) int {
		return cmp.Or(a.Owner.Compare(b.Owner), strings.Compare(a.uid, b.uid))
	}
	slices.SortFunc(skyhooks, byOwner)
	slices.SortFunc(nodeOps, byOwner)
	return slices.Concat(skyhooks, nodeOps)
}

// Kubernetes limits the annotations of an object. A node needs room for records before work on it begins: once it is held, a record
// that cannot be written would keep it so.
const (
	maxAnnotationBytes    = 256 << 10
	annotationBytesToKeep = 32 << 10 // free before work begins
)

// IsFull reports whether the annotations of a node leave too little room for records.
func (n *Node) IsFull() bool { return n.annotationBytes > maxAnnotationBytes-annotationBytesToKeep }

// FullReason returns why no work may begin on a node whose annotations leave too little room for records; nil when they do not.
func (n *Node) FullReason() *rollout.Why {
	if !n.IsFull() {
		return nil
	}
	return &rollout.Why{
		Reason: rollout.ReasonRefused, About: "Node " + n.Name,
		Text: fmt.Sprintf("the annotations of the node have %d KiB of the %d KiB that Kubernetes allows, and records need %d KiB: remove annotations that are not needed",
			n.annotationBytes>>10, maxAnnotationBytes>>10, annotationBytesToKeep>>10),
	}
}

// MayBeDrained reports whether a Skyhook or an admitted NodeOp holds the node: then the pods on it matter.
func (n *Node) MayBeDrained() bool { return n.mayDrain }

func (n *Node) isHeldForWork() bool {
	for _, s := range n.skyhooks {
		if s.Cordoned {
			return true
		}
	}
	for _, o := range n.nodeOps {
		isHeld := o.Record.Held != nil || o.Record.NodeOp != "" && o.Record.NodeOp == n.Annotations[nodeopv1.AnnotationCordonedBy]
		if isHeld && o.Record.Admitted && o.Record.Node == n.UID {
			return true
		}
	}
	return false
}

// IsKnown reports whether some Skyhook has left a mark on the node before.
func (n *Node) IsKnown() bool { return n.known }

// IsRebootedFrom reports whether a reboot of ours is in progress that began in this boot.
func (n *Node) IsRebootedFrom(bootID string) bool { return slices.Contains(n.rebootsFrom, bootID) }

// IsControlPlane reports whether the node has the role of the control plane.
func (n *Node) IsControlPlane() bool {
	_, master := n.Labels["node-role.kubernetes.io/master"]
	_, controlPlane := n.Labels["node-role.kubernetes.io/control-plane"]
	return master || controlPlane
}

// OrderClass lets control-plane nodes go first: Target.Class of both front ends.
func (n *Node) OrderClass() int {
	if n.IsControlPlane() {
		return 0
	}
	return 1
}

// HasTaint reports whether the node carries this taint (key and effect).
func (n *Node) HasTaint(taint corev1.Taint) bool {
	return slices.ContainsFunc(n.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) })
}

// HasConditionReason reports whether the node has one of our conditions with this reason; a reason implies the status.
func (n *Node) HasConditionReason(kind corev1.NodeConditionType, reason string) bool {
	for i := range n.Conditions {
		if n.Conditions[i].Type == kind {
			return n.Conditions[i].Reason == reason
		}
	}
	return false
}

// HasCondition reports whether the node has a condition of this type, ours or not.
func (n *Node) HasCondition(conditionType string) bool {
	isOurs := slices.ContainsFunc(n.Conditions, func(c corev1.NodeCondition) bool { return string(c.Type) == conditionType })
	return isOurs || n.Condition(conditionType) != ""
}

// Condition is the status of a condition that is not ours; empty when the node has none of this type.
func (n *Node) Condition(conditionType string) string { return n.fact(conditionFact(conditionType)) }

// Variable is the node as expressions of avoid see it. It has only what starts a pass when it changes. A cordon of the operator is none.
func (n *Node) Variable(isCordoned bool) map[string]any {
	taints, conditions := []any{}, []any{}
	for _, t := range n.Taints {
		if isCordoned || t.Key != corev1.TaintNodeUnschedulable {
			taints = append(taints, map[string]any{"key": t.Key, "value": t.Value, "effect": string(t.Effect)})
		}
	}
	for _, f := range n.Facts {
		if name, isCondition := strings.CutPrefix(f.Name, conditionFact("")); isCondition {
			conditions = append(conditions, map[string]any{"type": name, "status": f.Value})
		}
	}
	return map[string]any{
		"metadata": map[string]any{"name": n.Name, "labels": n.Labels},
		"spec":     map[string]any{"unschedulable": isCordoned, "taints": taints},
		"status":   map[string]any{"conditions": conditions},
	}
}

// Allocatable is how much of a resource the node offers.
func (n *Node) Allocatable(resource string) int64 {
	amount, err := strconv.ParseInt(n.fact(resourceFact(resource)), 10, 64)
	if err != nil { // not offered at all
		return 0
	}
	return amount
}

// devices are the names of the extended resources that the node offers, such as nvidia.com/gpu.
func (n *Node) devices() (out []string) {
	for _, f := range n.Facts {
		if name, isResource := strings.CutPrefix(f.Name, resourceFact("")); isResource && strings.Contains(name, "/") {
			out = append(out, name)
		}
	}
	return out
}

// facts are the conditions of others and the amounts of allocatable resources, by name.
func facts(n *corev1.Node) []Fact {
	var out []Fact
	for _, c := range n.Status.Conditions {
		if !IsOurCondition(c) {
			out = append(out, Fact{conditionFact(string(c.Type)), string(c.Status)})
		}
	}
	for name, q := range n.Status.Allocatable {
		out = append(out, Fact{resourceFact(string(name)), strconv.FormatInt(q.Value(), 10)})
	}
	slices.SortFunc(out, func(a, b Fact) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func conditionFact(name string) string { return "condition " + name }
func resourceFact(name string) string  { return "resource " + name }

func (n *Node) fact(name string) string {
	at, ok := slices.BinarySearchFunc(n.Facts, name, func(f Fact, name string) int { return cmp.Compare(f.Name, name) })
	if !ok {
		return ""
	}
	return n.Facts[at].Value
}

// With is the node as it will be once the edit is written, so that several actions of one plan fold into one patch.
func (n *Node) With(e Edit) *Node {
	out := *n
	out.ResourceVersion = ""
	out.Annotations = patchMap(n.Annotations, e.Annotations)
	out.Labels = patchMap(n.Labels, e.Labels)
	if e.Unschedulable != nil {
		out.Unschedulable = *e.Unschedulable
	}
	out.Taints = append(withoutTaints(n.Taints, e.RemoveTaints, e.AddTaints), e.AddTaints...)
	out.Conditions = slices.DeleteFunc(slices.Clone(n.Conditions), func(c corev1.NodeCondition) bool {
		return slices.Contains(e.RemoveConditions, c.Type) || hasCondition(e.SetConditions, c.Type)
	})
	out.Conditions = append(out.Conditions, e.SetConditions...)
	out.parseAnnotations(n)
	return &out
}

func patchMap(old map[string]string, change map[string]*string) map[string]string {
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

// unreadable is the problem of an annotation that cannot be parsed.
func unreadable(key string, err error, advice string) string {
	return fmt.Sprintf("annotation %s cannot be read: %s; %s", key, Truncate(err.Error(), 200), advice)
}

// Truncate shortens a text to a number of characters.
func Truncate(s string, most int) string {
	if len(s) <= most {
		return s
	}
	r := []rune(strings.ToValidUTF8(s, "\uFFFD"))
	if len(r) <= most {
		return string(r)
	}
	return string(r[:most-1]) + "…"
}

// WholeSeconds drops fractions of a second: records are read by people.
func WholeSeconds(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

// Earlier returns the earlier of two times. A zero time means never.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
