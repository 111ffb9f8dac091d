// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// excludedBySkyhook is the value of our label LabelExcludeBalancers, of which every value but false counts: it shows whose it is.
const excludedBySkyhook = "skyhook"

// Marks are what one hold shows other programs on its node.
type Marks struct {
	Labels      map[string]string
	Annotations map[string]string
	Conditions  bool
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
	m := Marks{Labels: map[string]string{}, Annotations: map[string]string{}, Conditions: options.Has(v1alpha1.MarkConditions)}
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
	Node        string            `json:"node"`                  // UID: the record of another node says nothing
	Labels      map[string]marked `json:"labels,omitempty"`      // by key
	Annotations map[string]marked `json:"annotations,omitempty"` // by key
	Conditions  marked            `json:"conditions,omitempty"`
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
	return markRecord{Labels: cloneMarked(r.Labels), Annotations: cloneMarked(r.Annotations), Conditions: cloneOf(r.Conditions)}
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
	return len(r.Labels) == 0 && len(r.Annotations) == 0 && len(r.Conditions) == 0
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

// PlaceMarks returns the edit that puts the marks of a new hold on the node. A mark that another client has put there stays his.
func (n *Node) PlaceMarks(holder string, m Marks) Edit {
	e, rec := Edit{}, n.marks.clone()
	placeMarks(&e.Labels, n.Labels, rec.Labels, holder, m.Labels)
	placeMarks(&e.Annotations, n.Annotations, rec.Annotations, holder, m.Annotations)
	if m.Conditions {
		rec.Conditions[holder] = ""
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
// another client changed meanwhile. It goes into the patch that releases a hold.
func (n *Node) RemoveUnheldMarks() Edit {
	e, rec, isHolder := Edit{}, n.marks.clone(), n.holders()
	removeUnheld(&e.Labels, n.Labels, rec.Labels, isHolder)
	removeUnheld(&e.Annotations, n.Annotations, rec.Annotations, isHolder)
	if n.Labels[v1alpha1.LabelExcludeBalancers] == excludedBySkyhook && rec.Labels[v1alpha1.LabelExcludeBalancers] == nil {
		e.RemoveLabel(n, v1alpha1.LabelExcludeBalancers) // the record was lost
	}
	if rec.Annotations[v1alpha1.AnnotationMaintenance] == nil {
		e.RemoveAnnotation(n, v1alpha1.AnnotationMaintenance)
	}
	maps.DeleteFunc(rec.Conditions, func(holder, _ string) bool { return !isHolder[holder] })
	if !equalMarks(rec, n.marks) || rec.isEmpty() {
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

func equalMarks(a, b markRecord) bool {
	equal := func(a, b map[string]marked) bool {
		return maps.EqualFunc(a, b, func(a, b marked) bool { return maps.Equal(a, b) })
	}
	return equal(a.Labels, b.Labels) && equal(a.Annotations, b.Annotations) && maps.Equal(a.Conditions, b.Conditions)
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

// Median returns the median of some durations; 0 of none.
func Median(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)/2]
}
