// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// excludedBySkyhook is the value of our label LabelExcludeBalancers, of which every value but false counts: it shows whose it is.
const excludedBySkyhook = "skyhook"

// Marks are what one hold shows other programs on its node.
type Marks struct {
	Labels      map[string]string // where there are none
	Annotations map[string]string // likewise
	Conditions  bool
	Set         map[string]string // labels, whatever the node had
}

// Description says who holds a node, for people and programs: the annotation maintenance.
type Description struct {
	By          string     `json:"by"`  // kind and name of the holder
	Why         string     `json:"why"` // a sentence
	Since       time.Time  `json:"since"`
	ExpectedEnd *time.Time `json:"expectedEnd,omitempty"` // from earlier nodes of the same rollout; absent for the first
}

// NewMarks returns the marks of a hold that options ask for.
func NewMarks(options v1alpha1.NodeMarks, d Description) Marks {
	m := Marks{Labels: map[string]string{}, Annotations: map[string]string{}, Conditions: options.Has(v1alpha1.MarkConditions), Set: options.StringLabels()}
	if options.Has(v1alpha1.MarkExcludeFromLoadBalancers) {
		m.Labels[v1alpha1.LabelExcludeBalancers] = excludedBySkyhook
	}
	if options.Has(v1alpha1.MarkDisableScaleDown) {
		m.Annotations[v1alpha1.AnnotationScaleDown] = "true"
	}
	if options.Has(v1alpha1.MarkDoNotDisrupt) {
		m.Annotations[v1alpha1.AnnotationDoNotDisrupt] = "true"
	}
	if options.Has(v1alpha1.MarkDescription) {
		m.Annotations[v1alpha1.AnnotationMaintenance] = EncodeJSON(d)
	}
	return m
}

// HolderOf names the holder of a node in marks; a Skyhook has no UID there.
func HolderOf(owner rollout.Ref, uid string) string {
	if uid == "" {
		return owner.String()
	}
	return owner.String() + "@" + uid
}

// marked are the holders for which a mark was put on a node, with the value that each of them gave it.
type marked map[string]string

// markRecord is which marks on a node are ours: the annotation nodeMarks. A mark that is not there belongs to another client.
type markRecord struct {
	Node        string              `json:"node"`                  // UID: the record of another node says nothing
	Labels      map[string]marked   `json:"labels,omitempty"`      // by key
	Annotations map[string]marked   `json:"annotations,omitempty"` // by key
	Conditions  marked              `json:"conditions,omitempty"`
	Set         map[string]setLabel `json:"set,omitempty"` // by key
}

// setLabel is a label that was set for holders whatever the node had.
type setLabel struct {
	By     marked  `json:"by"`
	Before *string `json:"before,omitempty"` // what the node had; nil for no such label
	Is     *string `json:"is,omitempty"`     // what it was set to; as before while nobody of By works on the node
}

// parseMarks is the one reader of the annotation. One that cannot be read says nothing.
func (n *Node) parseMarks() markRecord {
	var r markRecord
	raw := n.Annotations[v1alpha1.AnnotationNodeMarks]
	if raw == "" || json.Unmarshal([]byte(raw), &r) != nil || r.Node != n.UID {
		return markRecord{}
	}
	return r
}

func (r markRecord) clone() markRecord {
	out := markRecord{Labels: cloneMarked(r.Labels), Annotations: cloneMarked(r.Annotations), Conditions: cloneOf(r.Conditions), Set: map[string]setLabel{}}
	maps.Copy(out.Set, r.Set)
	return out
}

func cloneMarked(all map[string]marked) map[string]marked {
	out := make(map[string]marked, len(all))
	for key, by := range all {
		out[key] = cloneOf(by)
	}
	return out
}

func cloneOf(by marked) marked {
	out := make(marked, len(by))
	maps.Copy(out, by)
	return out
}

func (r markRecord) isEmpty() bool {
	return len(r.Labels) == 0 && len(r.Annotations) == 0 && len(r.Conditions) == 0 && len(r.Set) == 0
}

// has reports whether a value is one of ours.
func (by marked) has(value string) bool {
	for _, v := range by {
		if v == value {
			return true
		}
	}
	return false
}

// editMarks writes the record of marks; there is no other writer.
func (n *Node) editMarks(e *Edit, r markRecord) {
	if r.isEmpty() {
		e.RemoveAnnotation(n, v1alpha1.AnnotationNodeMarks)
		return
	}
	r.Node = n.UID
	e.SetAnnotation(n, v1alpha1.AnnotationNodeMarks, EncodeJSON(r))
}

// PlaceMarks returns the edit that puts the marks of a new hold on the node. A mark that another client has put there stays his. Labels that
// are set are only recorded: RemoveUnheldMarks, which goes into the same patch, sets them.
func (n *Node) PlaceMarks(holder string, m Marks) Edit {
	e, rec := Edit{}, n.marks.clone()
	placeMarks(&e.Labels, n.Labels, rec.Labels, holder, m.Labels)
	placeMarks(&e.Annotations, n.Annotations, rec.Annotations, holder, m.Annotations)
	if m.Conditions {
		rec.Conditions[holder] = ""
	}
	for key, value := range m.Set {
		l := rec.Set[key]
		if l.By == nil {
			l = setLabel{Before: valueOf(n.Labels, key), Is: valueOf(n.Labels, key)}
		}
		l.By = cloneOf(l.By)
		l.By[holder] = cmp.Or(l.By[holder], value)
		rec.Set[key] = l
	}
	n.editMarks(&e, rec)
	return e
}

func placeMarks(edit *map[string]*string, current map[string]string, recorded map[string]marked, holder string, wanted map[string]string) {
	for key, value := range wanted {
		now, exists := current[key]
		if exists && !recorded[key].has(now) {
			continue
		}
		if !exists {
			setKey(edit, current, key, value)
			recorded[key] = nil
		}
		if recorded[key] == nil {
			recorded[key] = marked{}
		}
		if _, isPlaced := recorded[key][holder]; !isPlaced {
			recorded[key][holder] = value
		}
	}
}

// HasMarks reports whether the node may have something of ours that shows that it is under maintenance, or will be.
func (n *Node) HasMarks() bool { return n.hasMarks }

// looksMarked is HasMarks, from the labels, annotations, taints and conditions.
func (n *Node) looksMarked() bool {
	_, isRecorded := n.Annotations[v1alpha1.AnnotationNodeMarks]
	_, isDescribed := n.Annotations[v1alpha1.AnnotationMaintenance]
	return isRecorded || isDescribed || n.Labels[v1alpha1.LabelExcludeBalancers] == excludedBySkyhook ||
		n.HasTaint(MaintenancePlanned) || slices.ContainsFunc(n.Conditions, isOurLifecycle)
}

// RemoveUnheldMarks returns the edit that removes the marks of holds that are no longer on the node, and forgets those that
// another client changed meanwhile. It goes into the patch that releases a hold. Labels that are set are on the node while a holder
// works there, and not while his proof is waited for.
func (n *Node) RemoveUnheldMarks() Edit {
	e, rec, isHolder := Edit{}, n.marks.clone(), n.holders()
	n.settleLabels(&e, rec.Set, isHolder)
	removeUnheld(&e.Labels, n.Labels, rec.Labels, isHolder)
	removeUnheld(&e.Annotations, n.Annotations, rec.Annotations, isHolder)
	if n.Labels[v1alpha1.LabelExcludeBalancers] == excludedBySkyhook && rec.Labels[v1alpha1.LabelExcludeBalancers] == nil {
		e.RemoveLabel(n, v1alpha1.LabelExcludeBalancers) // the record was lost
	}
	if rec.Annotations[v1alpha1.AnnotationMaintenance] == nil {
		e.RemoveAnnotation(n, v1alpha1.AnnotationMaintenance)
	}
	maps.DeleteFunc(rec.Conditions, func(holder, _ string) bool { return !isHolder[holder] })
	if rec.Node = n.marks.Node; EncodeJSON(rec) != EncodeJSON(n.marks) || rec.isEmpty() {
		n.editMarks(&e, rec)
	}
	return e
}

func removeUnheld(edit *map[string]*string, current map[string]string, recorded map[string]marked, isHolder map[string]bool) {
	for key, by := range recorded {
		now, exists := current[key]
		if !exists || !by.has(now) { // another client changed it: it is no longer ours
			delete(recorded, key)
			continue
		}
		maps.DeleteFunc(by, func(holder, _ string) bool { return !isHolder[holder] })
		switch {
		case len(by) == 0:
			removeKey(edit, current, key)
			delete(recorded, key)
		case !by.has(now): // it was for a hold that is gone
			setKey(edit, current, key, by[slices.Min(slices.Collect(maps.Keys(by)))])
		}
	}
}

// settleLabels sets and restores labels that holds set, and forgets those that another client changed meanwhile.
func (n *Node) settleLabels(e *Edit, recorded map[string]setLabel, isHolder map[string]bool) {
	maps.DeleteFunc(recorded, func(key string, l setLabel) bool { return !ptr.Equal(l.Is, valueOf(n.Labels, key)) })
	for key, l := range recorded {
		l.By = cloneOf(l.By)
		maps.DeleteFunc(l.By, func(holder, _ string) bool { return !isHolder[holder] })
		l.Is = l.Before
		for _, h := range slices.Backward(n.holds) {
			if value, isSetter := l.By[HolderOf(h.Owner, h.uid)]; isSetter && h.works {
				l.Is = &value
			}
		}
		putKey(&e.Labels, n.Labels, key, l.Is)
		recorded[key] = l
	}
	maps.DeleteFunc(recorded, func(_ string, l setLabel) bool { return len(l.By) == 0 })
}

// HasSetLabels reports whether labels that a hold set are on the node.
func (n *Node) HasSetLabels() bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(n.marks.Set)), func(l setLabel) bool { return !ptr.Equal(l.Is, l.Before) })
}

// holders are those that hold the node, as marks name them.
func (n *Node) holders() map[string]bool {
	out := make(map[string]bool, len(n.holds))
	for _, h := range n.holds {
		out[HolderOf(h.Owner, h.uid)] = true
	}
	return out
}

// MaintenancePlanned is the taint of nodes whose turn is still to come. Its key is ours.
var MaintenancePlanned = corev1.Taint{Key: v1alpha1.TaintMaintenancePlanned, Effect: corev1.TaintEffectPreferNoSchedule}

// RemoveMarks returns the edit that removes all marks of ours from a node that nobody holds any more.
func (n *Node) RemoveMarks() Edit {
	bare := *n
	bare.holds = nil
	e := bare.RemoveUnheldMarks()
	if n.HasTaint(MaintenancePlanned) {
		e.RemoveTaints = []corev1.Taint{MaintenancePlanned}
	}
	for _, c := range n.Conditions {
		if isOurLifecycle(c) {
			e.RemoveConditions = append(e.RemoveConditions, c.Type)
		}
	}
	return e
}
