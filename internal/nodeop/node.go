// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Node is what this front end looks at of a node.
type Node struct {
	Name          string
	UID           string
	Created       time.Time
	Labels        map[string]string
	Annotations   map[string]string
	Unschedulable bool
	Ready         bool
	BootID        string

	records map[string]parsed // by annotation
	holds   []Holder          // what Holds says
	latest  time.Time         // what Latest says
}

type parsed struct {
	text    string
	record  Record
	problem string
}

// Parse reads the records of a node, as far as prev did not.
func (n *Node) Parse(prev *Node) *Node {
	for key, text := range n.Annotations {
		if !strings.HasPrefix(key, v1alpha1.PrefixRecord) {
			continue
		}
		if n.records == nil {
			n.records = map[string]parsed{}
		}
		if prev != nil {
			if p, ok := prev.records[key]; ok && p.text == text {
				n.records[key] = p
				continue
			}
		}
		p := parsed{text: text}
		var err error
		if p.record, err = readRecord(text); err != nil {
			p.problem = "annotation " + key + " cannot be read: " + bounded(err.Error(), 200) + "; delete it"
		}
		n.records[key] = p
	}
	n.holds, n.latest = n.findHolds(), n.findLatest()
	return n
}

// Holder is a hold of a NodeOp and the UID of that NodeOp.
type Holder struct {
	rollout.Hold
	UID string
}

// Holds lists the cordons that NodeOps have on a node; Owner is "NodeOp/<namespace>/<name>", whether that NodeOp exists
// or not. A predecessor left nothing but the name of who cordoned the node.
func Holds(n *Node) []Holder { return slices.Clone(n.holds) }

func (n *Node) findHolds() []Holder {
	var out []Holder
	by := n.Annotations[v1alpha1.AnnotationCordonedBy]
	known := false
	for _, p := range n.records {
		owner, uid, ok := cutOwner(p.record.NodeOp)
		if p.record.Held == nil || p.record.Node != n.UID || !ok {
			continue
		}
		known = known || p.record.NodeOp == by
		out = append(out, Holder{UID: uid, Hold: rollout.Hold{Owner: owner, Since: p.record.Held.At, WasCordoned: p.record.Held.WasCordoned}})
	}
	if owner, uid, ok := cutOwner(by); ok && !known {
		out = append(out, Holder{UID: uid, Hold: rollout.Hold{Owner: owner}})
	}
	slices.SortFunc(out, func(a, b Holder) int { return cmp.Or(a.Owner.Compare(b.Owner), cmp.Compare(a.UID, b.UID)) })
	return out
}

// Busy says that a NodeOp at work on the node holds it: the pods on it matter.
func Busy(n *Node) bool {
	for _, p := range n.records {
		if p.record.Held != nil && p.record.Admitted && p.record.Node == n.UID {
			return true
		}
	}
	return false
}

// cutOwner reads what v1alpha1.CordonedBy writes.
func cutOwner(value string) (owner rollout.Ref, uid string, ok bool) {
	path, uid, ok := strings.Cut(value, "@")
	namespace, name, isNamespaced := strings.Cut(path, "/")
	if !ok || uid == "" || !isNamespaced || strings.Contains(name, "/") {
		return rollout.Ref{}, "", false
	}
	return rollout.Ref{Kind: Kind, Namespace: namespace, Name: name}, uid, true
}

// Latest is the latest time any NodeOp recorded on the node.
func (n *Node) Latest() time.Time { return n.latest }

func (n *Node) findLatest() time.Time {
	var out time.Time
	note := func(t time.Time) {
		if t.After(out) {
			out = t
		}
	}
	for _, p := range n.records {
		for _, s := range []*Step{p.record.Preflight, p.record.Command, p.record.Reboot} {
			if s != nil {
				note(s.At)
			}
		}
		if p.record.At != nil {
			note(*p.record.At)
		}
		if p.record.Held != nil {
			note(p.record.Held.At)
		}
		if p.record.Result != nil {
			note(p.record.Result.At)
		}
	}
	return out
}

// annotate sets an annotation unless the node has it so.
func (e *Edit) annotate(n *Node, key, value string) { set(&e.Annotations, n.Annotations, key, value) }

func (e *Edit) strip(n *Node, key string) { unset(&e.Annotations, n.Annotations, key) }

func set(edit *map[string]*string, has map[string]string, key, value string) {
	if now, ok := has[key]; ok && now == value {
		return
	}
	if *edit == nil {
		*edit = map[string]*string{}
	}
	(*edit)[key] = &value
}

func unset(edit *map[string]*string, has map[string]string, key string) {
	if _, ok := has[key]; !ok {
		return
	}
	if *edit == nil {
		*edit = map[string]*string{}
	}
	(*edit)[key] = nil
}

// ClearFound forgets, in every NodeOp's record, that the node was cordoned before: somebody gave it back meanwhile.
func ClearFound(n *Node) Edit {
	e := Edit{}
	for key, p := range n.records {
		if p.problem != "" || p.record.Held == nil || !p.record.Held.WasCordoned {
			continue
		}
		rec := p.record.clone()
		rec.Held.WasCordoned = false
		e.annotate(n, key, writeRecord(rec))
	}
	return e
}
