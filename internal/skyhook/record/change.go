// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package record makes the edits of nodes: each action of a plan becomes one.
package record

import (
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// Change returns the edit of a node for an action.
func (r Recorder) Change(a rollout.Action, n *node.Node, holds []rollout.Hold) (node.Edit, error) {
	switch a.Verb { // valid for a node whose annotations cannot be read
	case rollout.VerbTaint:
		return r.addTaint(n), nil
	case rollout.VerbUntaint:
		return r.removeTaint(a, n), nil
	case rollout.VerbRelease:
		return r.releaseHold(n, holds), nil
	case rollout.VerbSweep, rollout.VerbEvict, rollout.VerbVerify, rollout.VerbPull: // they change nothing on the node
		return node.Edit{}, nil
	}
	if p := n.Skyhook(r.Facts.Skyhook.Name).Problem; p != "" && !a.Wipe {
		return node.Edit{}, fmt.Errorf("changing node %s: %s", n.Name, p)
	}
	switch a.Verb {
	case rollout.VerbAdmit:
		return r.recordAdmission(a, n), nil
	case rollout.VerbHold:
		return r.placeHold(a, n, holds), nil
	case rollout.VerbCount:
		return r.recordPods(a, n), nil
	case rollout.VerbRun:
		return r.recordRun(a, n)
	case rollout.VerbJoin:
		return r.recordAwaiting(a, n), nil
	case rollout.VerbCover:
		return r.recordCover(a, n)
	case rollout.VerbRecord:
		return r.recordOutcome(a, n)
	case rollout.VerbProve:
		return r.recordProving(n), nil
	case rollout.VerbRollback:
		return r.recordRollback(a, n), nil
	case rollout.VerbNote:
		if t := r.Target; t != nil && len(r.Facts.PackagesToAsk(t)) > 0 {
			return r.recordAnswers(a, n)
		}
		return r.recordDrift(a, n), nil
	case rollout.VerbRetire:
		return r.recordRetirement(a, n), nil
	}
	return node.Edit{}, nil
}

// EditRecord changes nodeState and record together and stores the hash of the nodeState in the record. Entries of the
// record that do not match the nodeState are dropped.
func EditRecord(f *plan.Facts, n *node.Node, change func(v1alpha1.NodeState, *node.SkyhookRecord)) node.Edit {
	s, on := f.Skyhook, n.Skyhook(f.Skyhook.Name)
	state := maps.Clone(on.State)
	if state == nil {
		state = v1alpha1.NodeState{}
	}
	rec, _ := on.Record.Effective(n.UID, string(s.UID), on.StateHash, on.State).LimitTimes(f.Now)
	rec = rec.Clone()
	change(state, &rec)
	for key := range rec.Packages {
		if _, ok := state[key]; !ok {
			delete(rec.Packages, key)
		}
	}
	e := node.Edit{}
	text := on.StateText
	if !maps.Equal(state, on.State) {
		text = node.FormatState(state)
	}
	rec.Node, rec.Skyhook, rec.State, rec.Kept = n.UID, string(s.UID), node.HashState(text), false
	e.SetAnnotation(n, v1alpha1.PrefixNodeState+s.Name, text)
	e.SetAnnotation(n, v1alpha1.PrefixRecord+s.Name, rec.String())
	return e
}

func (r Recorder) addTaint(n *node.Node) node.Edit {
	e := node.Edit{}
	if !n.HasTaint(r.Facts.Config.RuntimeTaint) {
		e.AddTaints = []corev1.Taint{r.Facts.Config.RuntimeTaint}
	}
	e.SetAnnotation(n, AutoTaintKey(r.Facts.Config.RuntimeTaint), "true")
	return e
}

func (r Recorder) removeTaint(a rollout.Action, n *node.Node) node.Edit {
	e := node.Edit{RemoveTaints: []corev1.Taint{r.Facts.Config.RuntimeTaint}}
	if key := AutoTaintKey(r.Facts.Config.RuntimeTaint); n.Annotations[key] != "" {
		e.SetAnnotation(n, key, "false") // the next one may be of somebody else
	}
	if a.Cordon {
		e = e.Plus(n.KeepCordoned())
	}
	return e
}

// AutoTaintKey returns the annotation that marks our taint. A taint's key may have a domain prefix; the name of an
// annotation cannot have a second one.
func AutoTaintKey(t corev1.Taint) string {
	name := strings.ReplaceAll(t.Key, "/", "_")
	key := v1alpha1.PrefixAutoTaint + name
	return strings.TrimRight(key[:min(len(key), len(v1alpha1.Group)+1+63)], "-_.")
}

// recordAdmission records that the node is in flight and counts against the budget. Unfinished packages begin a new
// run, so that work of an earlier admission does not count.
func (r Recorder) recordAdmission(a rollout.Action, n *node.Node) node.Edit {
	now := node.WholeSeconds(r.Facts.Now)
	e := EditRecord(r.Facts, n, func(state v1alpha1.NodeState, rec *node.SkyhookRecord) {
		if rec.Admitted {
			return
		}
		if back := r.takenBack(); back != nil {
			rec.Rollback = back
		} else {
			r.noteComplete(n.Skyhook(r.Facts.Skyhook.Name), state, rec)
		}
		rec.Admitted, rec.Skipped, rec.Interrupts, rec.Queues, rec.Apart = true, false, 0, nil, false
		rec.Preflight = plan.CurrentAnswers(rec.Preflight, n.BootID, now)
		rec.Admission++
		rec.At, rec.Boot, rec.Order, rec.Batch, rec.Group, rec.Generation = &now, n.BootID, a.Order, a.Batch, a.Group, r.Facts.Skyhook.Generation
		rec.FinishedAt, rec.Unproven, rec.Proving, rec.Reboot, rec.Offered = nil, false, nil, nil, r.offeredResources(n)
		for _, p := range rec.Packages {
			if p.Goal != "" {
				p.Run, p.Interrupt, p.Payload, p.By, p.Generation = "", "", nil, "", 0
				p.Attempts, p.FailedAt, p.Failure, p.Again = 0, nil, nil, false
			}
		}
	})
	e.SetSkyhookStatus(n, r.Facts.Skyhook.Name, v1alpha1.StatusInProgress)
	e.SetAnnotation(n, r.Facts.Keys.Version, r.Facts.Config.Version)
	return e
}

// inheritAdmission records the admission of a node on which a predecessor was working; the predecessor recorded none.
func (r Recorder) inheritAdmission(rec *node.SkyhookRecord) {
	if rec.Admitted || rec.Admission > 0 {
		return
	}
	now := node.WholeSeconds(r.Facts.Now)
	rec.Admitted, rec.Admission, rec.At, rec.Generation = true, 1, &now, r.Facts.Skyhook.Generation
}

// placeHold cordons the node for this Skyhook.
func (r Recorder) placeHold(a rollout.Action, n *node.Node, holds []rollout.Hold) node.Edit {
	name := r.Facts.Skyhook.Name
	by, on := node.Holder{Owner: plan.Ref(name), Marks: plan.Marks(r.Facts.Skyhook, r.Facts.Policy), Expected: a.Expected}, n.Skyhook(name)
	var record func(*node.Held) node.Edit
	if !on.Cordoned || on.Record.Held == nil {
		record = func(held *node.Held) node.Edit {
			return EditRecord(r.Facts, n, func(_ v1alpha1.NodeState, rec *node.SkyhookRecord) { rec.Held = held })
		}
	}
	e := n.PlaceHold(by, holds, a.Why.Text, r.Facts.Now, record)
	e.SetAnnotation(n, v1alpha1.PrefixCordon+name, "true")
	return e
}

// recordPods records how many pods had to leave the held node when its drain began.
func (r Recorder) recordPods(a rollout.Action, n *node.Node) node.Edit {
	return EditRecord(r.Facts, n, func(_ v1alpha1.NodeState, rec *node.SkyhookRecord) {
		if rec.Held != nil {
			rec.Held.Pods = a.Pods
		}
	})
}

// releaseHold releases this Skyhook's hold. When the record cannot be read the node stays cordoned, because it is unknown
// whether it was cordoned before.
func (r Recorder) releaseHold(n *node.Node, holds []rollout.Hold) node.Edit {
	name := r.Facts.Skyhook.Name
	e, on := node.Edit{}, n.Skyhook(name)
	if !on.Cordoned {
		return e
	}
	if on.Record.Held != nil {
		rec := on.Record.Clone()
		rec.Held = nil
		e.SetAnnotation(n, v1alpha1.PrefixRecord+name, rec.String())
	}
	e.RemoveAnnotation(n, v1alpha1.PrefixCordon+name)
	own := n.SkyhookHold(name)
	own.WasCordoned = own.WasCordoned || on.RecordUnreadable
	return e.Plus(n.ReleaseHold(own, holds))
}

// recordRetirement records that the node is no longer in flight. With Wipe the Skyhook is being deleted.
func (r Recorder) recordRetirement(a rollout.Action, n *node.Node) node.Edit {
	if a.Wipe {
		return r.recordDeletion(n).Plus(RemoveConditions(r.Facts, n)) // the hold was released before
	}
	e := EditRecord(r.Facts, n, func(state v1alpha1.NodeState, rec *node.SkyhookRecord) {
		if !rec.Admitted { // it is skipped without an admission, until the Skyhook changes
			rec.Generation = r.Facts.Skyhook.Generation
		}
		rec.Admitted, rec.Skipped, rec.Proving, rec.Reboot, rec.Queues, rec.Apart = false, a.Skip, nil, nil, nil, false
		isUnfinished := a.Skip || a.Postpone
		if t := r.Target; t != nil && t.Selected && !isUnfinished {
			now := node.WholeSeconds(r.Facts.Now)
			maps.DeleteFunc(state, func(key string, _ v1alpha1.PackageStatus) bool { return rec.Packages[key].IsUnbegun() })
			rec.FinishedAt, rec.Unproven = &now, a.Why.Reason == rollout.ReasonProofFailed
			rec.Has = plan.RevisionKey(plan.FinishedHashes(state, rec.Packages))
		}
	})
	switch t := r.Target; {
	case t != nil && !t.Selected:
		e.RemoveSkyhookStatus(n, r.Facts.Skyhook.Name)
		e = e.Plus(RemoveConditions(r.Facts, n))
	case a.Why.Reason == rollout.ReasonRolledBack:
		e.SetSkyhookStatus(n, r.Facts.Skyhook.Name, v1alpha1.StatusErroring)
	case a.Skip, a.Postpone:
		e.SetSkyhookStatus(n, r.Facts.Skyhook.Name, v1alpha1.StatusWaiting)
	default:
		e.SetSkyhookStatus(n, r.Facts.Skyhook.Name, v1alpha1.StatusComplete)
	}
	return e
}

// recordDeletion removes what the Skyhook wrote to the node. The record of packages that stay on the host is kept, so that a
// Skyhook of the same name does not install them again.
func (r Recorder) recordDeletion(n *node.Node) node.Edit {
	s, on := r.Facts.Skyhook, n.Skyhook(r.Facts.Skyhook.Name)
	state := maps.Clone(on.State)
	rec := on.Record.Effective(n.UID, string(s.UID), on.StateHash, on.State)
	maps.DeleteFunc(state, func(key string, e v1alpha1.PackageStatus) bool {
		return plan.IsUninstalled(e) || rec.Packages[key].IsUnbegun()
	})
	if on.Problem != "" || len(state) == 0 {
		return n.RemoveSkyhook(s.Name)
	}
	text := on.StateText
	if !maps.Equal(state, on.State) {
		text = node.FormatState(state)
	}
	kept := node.SkyhookRecord{
		Node: n.UID, Skyhook: string(s.UID), State: node.HashState(text), Kept: true, Owner: rec.Owner, Offset: rec.Offset,
		Visit: node.Visit{Admission: rec.Admission, Generation: s.Generation}, Packages: map[string]*node.PackageRecord{},
	}
	size := 0
	for _, key := range plan.SortedNames(rec.Packages) {
		p := rec.Packages[key]
		if p.Goal != "" {
			continue
		}
		digests := r.keyDigests(p)
		if size += len(node.EncodeJSON(digests)); size > maxKeyBytes {
			digests = nil
		}
		kept.Packages[key] = &node.PackageRecord{At: p.At, Hash: p.Hash, Config: p.Config, Boot: p.Boot, Ended: p.Ended, Kept: true, Keys: digests}
	}
	return n.KeepSkyhook(s.Name, text, kept)
}

// maxKeyDigests limits the digests of one configMap in a record, and maxKeyBytes those of all in one record: the annotations of a node
// may have 256 KiB together.
const (
	maxKeyDigests = 200
	maxKeyBytes   = 32 << 10
)

// keyDigests returns the digests of the values of an installed configMap; nil when the definition is not known.
func (r Recorder) keyDigests(p *node.PackageRecord) map[string]string {
	d := r.Facts.Definition(p.Hash)
	if d == nil || len(d.Files) > maxKeyDigests {
		return p.Keys
	}
	digests := make(map[string]string, len(d.Files))
	for key, value := range d.Files {
		digests[key] = plan.HashID(value)
	}
	return digests
}

// RemoveConditions removes the conditions of the Skyhook from a node.
func RemoveConditions(f *plan.Facts, n *node.Node) node.Edit {
	e := node.Edit{}
	for _, cond := range n.Conditions {
		if f.Keys.IsCondition(cond.Type) {
			e.RemoveConditions = append(e.RemoveConditions, cond.Type)
		}
	}
	return e
}

// offeredResources is how much of the resources that proofs ask for the node offers now; nil when they ask for none.
func (r Recorder) offeredResources(n *node.Node) map[string]int64 {
	return plan.Proofs(r.Facts.Skyhook, r.Facts.Policy).Offered(n)
}

// recordProving records that all work is done and the proof is waited for.
func (r Recorder) recordProving(n *node.Node) node.Edit {
	now := node.WholeSeconds(r.Facts.Now)
	return EditRecord(r.Facts, n, func(_ v1alpha1.NodeState, rec *node.SkyhookRecord) {
		if rec.Proving == nil {
			rec.Proving = &now
		}
	})
}

// Recorder makes the edits of a node.
type Recorder struct {
	Facts  *plan.Facts
	Target *plan.Target // on the node; nil if there is none
}
