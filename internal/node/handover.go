// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// Handover is how far the handover of a node to one holder is. It lives as long as the hold, and until its objects are deleted.
type Handover struct {
	Step    string           `json:"step,omitempty"`  // that is asked; empty when none was, or all have answered
	Since   *time.Time       `json:"since,omitempty"` // when it was asked first
	Done    bool             `json:"done,omitempty"`  // all have answered
	Objects []HandoverObject `json:"objects,omitempty"`
}

// HandoverObject is an object that was created to ask for a node, or is about to be.
type HandoverObject struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Namespace  string    `json:"namespace,omitempty"`
	Name       string    `json:"name"`
	At         time.Time `json:"at"`            // when; its annotation says the same, so that one of an earlier hold does not count
	Old        bool      `json:"old,omitempty"` // it was created for an earlier hold
}

func (o HandoverObject) isSame(other HandoverObject) bool {
	other.At, other.Old = o.At, o.Old
	return o == other
}

// handoverRecord is the annotation handover: the handovers by holder. Each is recorded before its object is created.
type handoverRecord struct {
	Node string              `json:"node"` // UID: the record of another node says nothing
	By   map[string]Handover `json:"by,omitempty"`
}

// parseHandovers is the one reader of the annotation. One that cannot be read says nothing: everybody is asked again.
func (n *Node) parseHandovers() handoverRecord {
	var r handoverRecord
	raw := n.Annotations[v1alpha1.AnnotationHandover]
	if raw == "" || json.Unmarshal([]byte(raw), &r) != nil || r.Node != n.UID {
		return handoverRecord{}
	}
	return r
}

// editHandovers writes the annotation; there is no other writer.
func (n *Node) editHandovers(by map[string]Handover) (e Edit) {
	if len(by) == 0 {
		e.RemoveAnnotation(n, v1alpha1.AnnotationHandover)
		return e
	}
	e.SetAnnotation(n, v1alpha1.AnnotationHandover, EncodeJSON(handoverRecord{n.UID, by}))
	return e
}

func (n *Node) withHandover(holder string, h Handover) Edit {
	by := maps.Clone(n.handovers.By)
	if by == nil {
		by = map[string]Handover{}
	}
	by[holder] = h
	return n.editHandovers(by)
}

// HandoverTo is how far the handover to a holder is; zero for one that does not hold the node.
func (n *Node) HandoverTo(holder string) Handover {
	if len(n.handovers.By) == 0 || !n.holders()[holder] {
		return Handover{}
	}
	return n.handovers.By[holder]
}

// AskHandover returns the edit that records that a step is asked, or with an empty one that all have answered. Object is what is created for
// it; nil for none. It may be that of another holder, who has asked the same.
func (n *Node) AskHandover(holder, step string, object *HandoverObject, now time.Time) Edit {
	h := n.HandoverTo(holder)
	if step != h.Step || h.Since == nil {
		h.Step, h.Since = step, new(WholeSeconds(now))
	}
	h.Done = step == ""
	if object != nil {
		h.Objects = n.addHandoverObject(h.Objects, *object, WholeSeconds(now))
	}
	return n.withHandover(holder, h)
}

func (n *Node) addHandoverObject(all []HandoverObject, object HandoverObject, now time.Time) []HandoverObject {
	object.At = now
	at := slices.IndexFunc(all, object.isSame)
	if at >= 0 && !all[at].Old {
		return all
	}
	if at >= 0 && !all[at].At.Before(now) {
		object.At = all[at].At.Add(time.Second)
	}
	if other := n.findHandoverObject(object); other != nil {
		object.At = other.At
	}
	return append(slices.DeleteFunc(slices.Clone(all), object.isSame), object)
}

// findHandoverObject finds an object that was created for a holder of the node since it holds it.
func (n *Node) findHandoverObject(object HandoverObject) *HandoverObject {
	isHolder := n.holders()
	for _, holder := range slices.Sorted(maps.Keys(n.handovers.By)) {
		objects := n.handovers.By[holder].Objects
		if at := slices.IndexFunc(objects, object.isSame); at >= 0 && !objects[at].Old && isHolder[holder] {
			return &objects[at]
		}
	}
	return nil
}

// CreatedAt is when an object of a holder was recorded; zero if it is none.
func (n *Node) CreatedAt(object HandoverObject) time.Time {
	if found := n.findHandoverObject(object); found != nil {
		return found.At
	}
	return time.Time{}
}

// restartHandover returns the edit that a new hold needs: those who said yes to an earlier one are asked again. Objects that are still to be
// deleted stay recorded.
func (n *Node) restartHandover(holder string) Edit {
	before, exists := n.handovers.By[holder]
	if !exists {
		return Edit{}
	}
	objects := slices.Clone(before.Objects)
	for i := range objects {
		objects[i].Old = true
	}
	return n.withHandover(holder, Handover{Objects: objects})
}

// EndedHandovers are the handovers to those that do not hold the node any more, with the objects that no holder needs.
func (n *Node) EndedHandovers() map[string][]HandoverObject {
	if len(n.handovers.By) == 0 {
		return nil
	}
	isHolder, out := n.holders(), map[string][]HandoverObject{}
	for holder, h := range n.handovers.By {
		if !isHolder[holder] {
			out[holder] = slices.DeleteFunc(slices.Clone(h.Objects), func(o HandoverObject) bool { return n.findHandoverObject(o) != nil })
		}
	}
	return out
}

// HasEndedHandovers reports whether there are any, or a record of them that says nothing.
func (n *Node) HasEndedHandovers() bool {
	_, isRecorded := n.Annotations[v1alpha1.AnnotationHandover]
	return isRecorded && (len(n.handovers.By) == 0 || len(n.EndedHandovers()) > 0)
}

// ForgetHandovers returns the edit that removes the handovers to holders whose objects are deleted.
func (n *Node) ForgetHandovers(holders []string) Edit {
	by := maps.Clone(n.handovers.By)
	maps.DeleteFunc(by, func(holder string, _ Handover) bool { return slices.Contains(holders, holder) })
	return n.editHandovers(by)
}

// HandoverObjects are all objects that were created to ask for the node.
func (n *Node) HandoverObjects() (out []HandoverObject) {
	for _, h := range n.handovers.By {
		out = append(out, h.Objects...)
	}
	return out
}
