// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Edit is a change of a node: a merge patch in plain data. A nil value removes a key.
type Edit struct {
	Annotations      map[string]*string
	Labels           map[string]*string
	Unschedulable    *bool
	AddTaints        []corev1.Taint
	RemoveTaints     []corev1.Taint
	SetConditions    []corev1.NodeCondition // by type; in the status subresource
	RemoveConditions []corev1.NodeConditionType
}

// NamedEdit is an Edit and the node it is for.
type NamedEdit struct {
	Node string
	Edit Edit
	Done []rollout.Action // what it records beside, for events and metrics
}

// SetAnnotation sets an annotation unless the node has it so. An empty value changes nothing.
func (e *Edit) SetAnnotation(n *Node, key, value string) {
	if value == "" {
		return
	}
	setKey(&e.Annotations, n.Annotations, key, value)
}

// RemoveAnnotation removes an annotation that the node has.
func (e *Edit) RemoveAnnotation(n *Node, key string) { removeKey(&e.Annotations, n.Annotations, key) }

// SetLabel sets a label unless the node has it so.
func (e *Edit) SetLabel(n *Node, key, value string) { setKey(&e.Labels, n.Labels, key, value) }

// RemoveLabel removes a label that the node has.
func (e *Edit) RemoveLabel(n *Node, key string) { removeKey(&e.Labels, n.Labels, key) }

// SetSkyhookStatus writes the status of a Skyhook on the node, as annotation and as label.
func (e *Edit) SetSkyhookStatus(n *Node, skyhook string, status v1alpha1.Status) {
	e.SetAnnotation(n, v1alpha1.PrefixStatus+skyhook, string(status))
	e.SetLabel(n, v1alpha1.PrefixStatus+skyhook, string(status))
}

// RemoveSkyhookStatus removes what SetSkyhookStatus writes.
func (e *Edit) RemoveSkyhookStatus(n *Node, skyhook string) {
	e.RemoveAnnotation(n, v1alpha1.PrefixStatus+skyhook)
	e.RemoveLabel(n, v1alpha1.PrefixStatus+skyhook)
}

// SetUnschedulable sets the field unless the node has it so.
func (e *Edit) SetUnschedulable(n *Node, value bool) {
	if n.Unschedulable != value {
		e.Unschedulable = &value
	}
}

func setKey(edit *map[string]*string, current map[string]string, key, value string) {
	putKey(edit, current, key, &value)
}

func removeKey(edit *map[string]*string, current map[string]string, key string) {
	putKey(edit, current, key, nil)
}

// putKey sets a key, or removes it with nil, unless it is so.
func putKey(edit *map[string]*string, current map[string]string, key string, value *string) {
	if ptr.Equal(valueOf(current, key), value) {
		return
	}
	if *edit == nil {
		*edit = map[string]*string{}
	}
	(*edit)[key] = value
}

// valueOf is the value of a key; nil without it.
func valueOf(current map[string]string, key string) *string {
	if value, exists := current[key]; exists {
		return &value
	}
	return nil
}

// Plus is one edit that does what both do, the second one last.
func (e Edit) Plus(next Edit) Edit {
	out := Edit{
		Annotations: mergeKeys(e.Annotations, next.Annotations), Labels: mergeKeys(e.Labels, next.Labels),
		Unschedulable: e.Unschedulable,
		AddTaints:     slices.Concat(withoutTaints(e.AddTaints, next.RemoveTaints, next.AddTaints), next.AddTaints),
		RemoveTaints:  slices.Concat(withoutTaints(e.RemoveTaints, next.AddTaints, next.RemoveTaints), next.RemoveTaints),
	}
	if next.Unschedulable != nil {
		out.Unschedulable = next.Unschedulable
	}
	for _, c := range e.SetConditions {
		if !slices.Contains(next.RemoveConditions, c.Type) && !hasCondition(next.SetConditions, c.Type) {
			out.SetConditions = append(out.SetConditions, c)
		}
	}
	out.SetConditions = append(out.SetConditions, next.SetConditions...)
	for _, t := range slices.Concat(e.RemoveConditions, next.RemoveConditions) {
		if !hasCondition(out.SetConditions, t) && !slices.Contains(out.RemoveConditions, t) {
			out.RemoveConditions = append(out.RemoveConditions, t)
		}
	}
	return out
}

// WithoutUnchanged is the edit without the keys that the node has already as they become: of edits that were put together, one may undo
// what another one did.
func (e Edit) WithoutUnchanged(n *Node) Edit {
	e.Annotations, e.Labels = withoutUnchanged(e.Annotations, n.Annotations), withoutUnchanged(e.Labels, n.Labels)
	if e.Unschedulable != nil && *e.Unschedulable == n.Unschedulable {
		e.Unschedulable = nil
	}
	return e
}

func withoutUnchanged(edit map[string]*string, current map[string]string) map[string]*string {
	out := maps.Clone(edit)
	maps.DeleteFunc(out, func(key string, value *string) bool {
		now, exists := current[key]
		if value == nil {
			return !exists
		}
		return exists && now == *value
	})
	return out
}

func hasCondition(conditions []corev1.NodeCondition, t corev1.NodeConditionType) bool {
	return slices.ContainsFunc(conditions, func(c corev1.NodeCondition) bool { return c.Type == t })
}

// withoutTaints is a copy of taints without those that are in one of the lists.
func withoutTaints(taints []corev1.Taint, lists ...[]corev1.Taint) []corev1.Taint {
	drop := slices.Concat(lists...)
	return slices.DeleteFunc(slices.Clone(taints), func(t corev1.Taint) bool {
		return slices.ContainsFunc(drop, func(d corev1.Taint) bool { return d.MatchTaint(&t) })
	})
}

func mergeKeys(a, b map[string]*string) map[string]*string {
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

// Empty reports whether the edit changes nothing.
func (e Edit) Empty() bool { return !e.TouchesNode() && !e.TouchesStatus() }

// TouchesStatus reports whether a part of the edit goes to the status subresource.
func (e Edit) TouchesStatus() bool { return len(e.SetConditions) > 0 || len(e.RemoveConditions) > 0 }

// TouchesNode reports whether a part of the edit goes to the node itself.
func (e Edit) TouchesNode() bool {
	return len(e.Annotations) > 0 || len(e.Labels) > 0 || e.Unschedulable != nil || e.touchesTaints()
}

func (e Edit) touchesTaints() bool { return len(e.AddTaints) > 0 || len(e.RemoveTaints) > 0 }

// TouchesSpec reports whether a part of the edit changes the spec of the node: its cordon or taints.
func (e Edit) TouchesSpec() bool { return e.Unschedulable != nil || e.touchesTaints() }

// MergePatch is the JSON merge patch of the node without its status. It is for this version of this very node: what another client
// changed meanwhile is not known, and the edit may be wrong then. It names only what changes: null in a merge patch removes.
func (e Edit) MergePatch(was *Node) map[string]any {
	metadata, spec := map[string]any{"uid": was.UID, "resourceVersion": was.ResourceVersion}, map[string]any{}
	if len(e.Annotations) > 0 {
		metadata["annotations"] = e.Annotations
	}
	if len(e.Labels) > 0 {
		metadata["labels"] = e.Labels
	}
	if e.Unschedulable != nil {
		spec["unschedulable"] = *e.Unschedulable
	}
	if e.touchesTaints() {
		spec["taints"] = was.With(Edit{AddTaints: e.AddTaints, RemoveTaints: e.RemoveTaints}).Taints
	}
	patch := map[string]any{"metadata": metadata}
	if len(spec) > 0 {
		patch["spec"] = spec
	}
	return patch
}

// PatchWithStatus is the strategic merge patch of the node's metadata and status. An update of the status may change metadata as well, and
// kubelets change annotations this way; the spec it cannot change. The rest is as in MergePatch.
func (e Edit) PatchWithStatus(was *Node) map[string]any {
	patch := e.MergePatch(was)
	patch["status"] = e.StatusPatch("")["status"]
	return patch
}

// StatusPatch is the strategic merge patch of the node's status: conditions are changed by type, all others stay. It is for one
// version of the node; an empty version is any.
func (e Edit) StatusPatch(version string) map[string]any {
	conditions := []any{}
	for _, t := range e.RemoveConditions {
		conditions = append(conditions, map[string]any{"$patch": "delete", "type": t})
	}
	for _, c := range e.SetConditions {
		conditions = append(conditions, c)
	}
	patch := map[string]any{"status": map[string]any{"conditions": conditions}}
	if version != "" {
		patch["metadata"] = map[string]any{"resourceVersion": version}
	}
	return patch
}
