// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node/hold"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// SkyhookState is what one node records of one Skyhook.
type SkyhookState struct {
	StateText  string // the annotation nodeState_<skyhook>
	RecordText string // the annotation record_<skyhook>
	DriftText  string // the annotation drift_<skyhook>
	StateHash  string
	Shape      string // hash of everything that decides what is owed: equal on nodes with equal records
	State      v1alpha1.NodeState
	Record     SkyhookRecord
	Drift      DriftRecord // empty when it cannot be read: the node is checked again
	Problem    string      // the annotations cannot be read: says which and why
	Erroring   bool        // some package of it fails, or its state is unknown
	Cordoned   bool        // by this Skyhook
	HasStatus  bool        // the status annotation exists

	RecordUnreadable bool // it is the record that cannot be read
}

// noSkyhook is the state of a Skyhook that the node does not know.
var noSkyhook = &SkyhookState{StateHash: HashState(""), Shape: "nothing"}

// onlyStatus is the state of a Skyhook that has not begun on the node and has written its status there, which thousands of nodes share.
var onlyStatus = newOnlyStatus()

func newOnlyStatus() *SkyhookState {
	s := &SkyhookState{HasStatus: true}
	s.parse("", nil)
	return s
}

func (s *SkyhookState) isOnlyStatus() bool {
	return s.HasStatus && !s.HasRecord() && s.DriftText == "" && !s.Cordoned
}

// Skyhook is what the node records of a Skyhook; never nil.
func (n *Node) Skyhook(name string) *SkyhookState {
	if s := n.skyhooks[name]; s != nil {
		return s
	}
	return noSkyhook
}

// HasSkyhook reports whether the Skyhook has left anything on the node.
func (n *Node) HasSkyhook(name string) bool { return n.skyhooks[name] != nil }

// HasRecord reports whether the node records packages of the Skyhook, or an admission. One that only waits has its status alone.
func (s *SkyhookState) HasRecord() bool { return s.StateText != "" || s.RecordText != "" }

// Skyhooks are the names of those that have left anything on the node, sorted.
func (n *Node) Skyhooks() []string { return slices.Sorted(maps.Keys(n.skyhooks)) }

// collectSkyhook keeps the text of an annotation for the Skyhook it belongs to, if it belongs to one.
func (n *Node) collectSkyhook(key, value string) {
	for _, prefix := range []string{v1alpha1.PrefixNodeState, v1alpha1.PrefixRecord, v1alpha1.PrefixDrift, v1alpha1.PrefixCordon, v1alpha1.PrefixStatus, v1alpha1.PrefixVersion} {
		name, ok := strings.CutPrefix(key, prefix)
		if !ok {
			continue
		}
		s := n.skyhooks[name]
		if s == nil {
			s = &SkyhookState{}
			n.skyhooks[name] = s
		}
		switch prefix {
		case v1alpha1.PrefixNodeState:
			s.StateText = value
		case v1alpha1.PrefixRecord:
			s.RecordText = value
		case v1alpha1.PrefixDrift:
			s.DriftText = value
		case v1alpha1.PrefixCordon:
			s.Cordoned = value == "true"
		case v1alpha1.PrefixStatus:
			s.HasStatus = true
		}
		return
	}
}

// parse reads the texts; from prev, the state on an earlier version of the node, when they are the same.
func (s *SkyhookState) parse(name string, prev *SkyhookState) {
	s.parseDrift(prev)
	if prev != nil && prev.StateText == s.StateText && prev.RecordText == s.RecordText {
		own := *s
		*s = *prev
		s.Cordoned, s.HasStatus, s.DriftText, s.Drift = own.Cordoned, own.HasStatus, own.DriftText, own.Drift
		return
	}
	s.StateHash = HashState(s.StateText)
	var err error
	if s.RecordText != "" {
		if s.Record, err = ParseSkyhookRecord(s.RecordText); err != nil {
			s.RecordUnreadable = true
			s.Problem = unreadable(v1alpha1.PrefixRecord+name, err, "delete it")
		}
	}
	if s.StateText != "" {
		if s.State, err = ParseState(s.StateText); err != nil {
			s.Problem = unreadable(v1alpha1.PrefixNodeState+name, err, "correct it, or delete it to start again on this node")
		}
	}
	for _, e := range s.State {
		s.Erroring = s.Erroring || e.State == v1alpha1.StateErroring || e.State == v1alpha1.StateUnknown
	}
	s.Shape = s.shape()
}

// parseDrift reads the text about drift; from prev when it is the same.
func (s *SkyhookState) parseDrift(prev *SkyhookState) {
	if prev != nil && prev.DriftText == s.DriftText {
		s.Drift = prev.Drift
		return
	}
	if s.DriftText != "" {
		s.Drift, _ = ParseDriftRecord(s.DriftText)
	}
}

// shape leaves out what differs from node to node and does not decide what is owed.
func (s *SkyhookState) shape() string {
	packages := make(map[string]PackageRecord, len(s.Record.Packages))
	for key, p := range s.Record.Packages {
		shaped := PackageRecord{At: p.At, Hash: p.Hash, Config: p.Config, Goal: p.Goal, From: p.From, Effect: p.Effect, Privileges: p.Privileges,
			Interrupt: p.Interrupt, Payload: p.Payload, By: p.By, Attempts: p.Attempts, FailedAt: p.FailedAt,
			Failure: p.Failure, Again: p.Again, Kept: p.Kept, Keys: p.Keys}
		if p.Interrupt != "" { // the boot that the interrupt is to end
			shaped.Boot = p.Boot
		}
		packages[key] = shaped
	}
	return HashState(s.StateHash + "\n" + EncodeJSON(packages))
}

func (n *Node) skyhookHolds() []ownedHold {
	var out []ownedHold
	for name, s := range n.skyhooks {
		if s.Cordoned {
			out = append(out, ownedHold{Hold: n.SkyhookHold(name), works: s.Record.Proving == nil || s.Record.Node != n.UID})
		}
	}
	return out
}

// SkyhookHold is the hold of a Skyhook as its record has it. A predecessor recorded nothing but that it holds the node.
func (n *Node) SkyhookHold(name string) rollout.Hold {
	h := rollout.Hold{Owner: rollout.Ref{Kind: KindSkyhook, Name: name}}
	if rec := n.Skyhook(name).Record; rec.Held != nil && rec.Node == n.UID {
		h.Since, h.WasCordoned = rec.Held.At, rec.Held.WasCordoned
	}
	return h
}

// Cordon is what the rule about holds looks at; holds are all that are on the node.
func (n *Node) Cordon(holds []rollout.Hold) hold.Cordon {
	return hold.Cordon{Unschedulable: n.Unschedulable, Kept: n.IsKeptCordoned(), Holds: holds}
}

// IsKeptCordoned reports whether the node was cordoned when its runtime-required taint was removed, and has been since.
func (n *Node) IsKeptCordoned() bool {
	return n.Unschedulable && n.Annotations[v1alpha1.AnnotationRuntimeRequiredCordon] == "true"
}

// KeepCordoned cordons the node until a person makes it schedulable.
func (n *Node) KeepCordoned() Edit {
	e := Edit{}
	e.SetAnnotation(n, v1alpha1.AnnotationRuntimeRequiredCordon, "true")
	e.SetUnschedulable(n, true)
	return e
}

// EndKeptCordon removes the annotation of KeepCordoned from a node that a person made schedulable.
func (n *Node) EndKeptCordon() Edit {
	e := Edit{}
	if !n.Unschedulable {
		e.RemoveAnnotation(n, v1alpha1.AnnotationRuntimeRequiredCordon)
	}
	return e
}

// NoteUncordon returns the hold on a node that a person made schedulable: a cordon that follows is not removed with the hold.
// isChanged is false when there is nothing to note. A nil hold stays nil.
func (h *Held) NoteUncordon(n *Node) (out *Held, isChanged bool) {
	if n.Unschedulable || h == nil || h.WasCordoned {
		return h, false
	}
	return &Held{At: h.At, WasCordoned: true}, true
}

// ClearWasCordoned forgets in every record that the node was cordoned before the holds on it: for a node that a person
// has made schedulable meanwhile.
func ClearWasCordoned(n *Node) Edit {
	e := n.EndKeptCordon()
	for name, s := range n.skyhooks {
		if s.Problem == "" && s.Record.Held != nil && s.Record.Held.WasCordoned {
			rec := s.Record.Clone()
			rec.Held.WasCordoned = false
			e.SetAnnotation(n, v1alpha1.PrefixRecord+name, rec.String())
		}
	}
	for key, o := range n.nodeOps {
		if o.Problem == "" && o.Record.Held != nil && o.Record.Held.WasCordoned {
			rec := o.Record.Clone()
			rec.Held.WasCordoned = false
			e.SetAnnotation(n, key, rec.String())
		}
	}
	return e
}

// Installed is a package as one node records it.
type Installed struct {
	v1alpha1.PackageStatus
	Finished bool // the package was through its last stage when the node was written
}

// Installed are the packages of a Skyhook that the node records, by name and version.
func (n *Node) Installed(skyhook string) ([]Installed, error) {
	s := n.Skyhook(skyhook)
	if s.Problem != "" {
		return nil, fmt.Errorf("reading state of node %s: %s", n.Name, s.Problem)
	}
	var out []Installed
	for _, key := range slices.Sorted(maps.Keys(s.State)) {
		i := Installed{PackageStatus: s.State[key]}
		if i.State == v1alpha1.StateComplete {
			rec := s.Record.Packages[key]
			inProgress := rec != nil && rec.At == Position(i.PackageStatus) && rec.Goal != ""
			i.Finished = !inProgress && (i.Stage == v1alpha1.StageConfig || i.Stage == v1alpha1.StagePostInterrupt)
		}
		out = append(out, i)
	}
	return out, nil
}

// IsKept reports whether the node has nothing of a Skyhook but the record of packages that stayed when it was deleted.
func (s *SkyhookState) IsKept() bool {
	return s.Record.Kept && !s.Cordoned && !s.HasStatus
}

// RemoveSkyhook returns the edit that removes everything that a Skyhook wrote to the node, except conditions. The node stays
// marked as known. It is empty when the node has nothing of the Skyhook.
func (n *Node) RemoveSkyhook(skyhook string) Edit {
	return n.removeSkyhook(skyhook, v1alpha1.PrefixNodeState, v1alpha1.PrefixRecord, v1alpha1.PrefixDrift, v1alpha1.PrefixCordon, v1alpha1.PrefixVersion)
}

// KeepSkyhook is like RemoveSkyhook, but keeps the nodeState and the record given, of packages that stay on the host.
func (n *Node) KeepSkyhook(skyhook, state string, kept SkyhookRecord) Edit {
	e := n.removeSkyhook(skyhook, v1alpha1.PrefixDrift, v1alpha1.PrefixCordon)
	e.SetAnnotation(n, v1alpha1.PrefixNodeState+skyhook, state)
	e.SetAnnotation(n, v1alpha1.PrefixRecord+skyhook, kept.String())
	return e
}

// removeSkyhook removes the status and the annotations with these prefixes.
func (n *Node) removeSkyhook(skyhook string, prefixes ...string) Edit {
	e := Edit{}
	for _, prefix := range prefixes {
		e.RemoveAnnotation(n, prefix+skyhook)
	}
	e.RemoveSkyhookStatus(n, skyhook)
	if !e.Empty() {
		e.SetAnnotation(n, v1alpha1.AnnotationKnown, "true")
	}
	return e
}

// Reset is RemoveSkyhook for a Skyhook that may still hold the node, with or without readable annotations. The cordon
// goes as it does with a release: with the last hold, and only if it was ours. So do the marks of the hold.
func (n *Node) Reset(skyhook string, holds []rollout.Hold) Edit {
	e := n.RemoveSkyhook(skyhook)
	if n.Skyhook(skyhook).Cordoned {
		own := n.SkyhookHold(skyhook)
		e.SetUnschedulable(n, n.Cordon(holds).With(own).Release(own.Owner).Unschedulable)
	}
	after := n.With(e)
	if len(after.holds) == 0 && n.HasMarks() { // a running operator announces again what is still planned
		return e.Plus(after.RemoveMarks())
	}
	return e.Plus(after.RemoveUnheldMarks())
}

// IsDownInReboot reports whether the node is not ready and a reboot that a Skyhook requested is in progress there.
func (n *Node) IsDownInReboot(skyhook string) bool {
	return !n.Ready && len(n.Skyhook(skyhook).Record.rebootsFrom()) > 0
}

// Restart is the edit after which every package of a Skyhook begins again on the node. A hold stays: it is still needed.
func (n *Node) Restart(skyhook string) Edit {
	e := Edit{}
	e.RemoveAnnotation(n, v1alpha1.PrefixNodeState+skyhook)
	return e
}

// Rerun is the edit after which one version of a package begins again on the node: with its first stage, or with the
// stage given. What the record has of the package no longer counts then, because nodeState wins. A node that rolled back tries the
// packages of the spec again.
func (n *Node) Rerun(skyhook, name, version string, stage v1alpha1.Stage) (Edit, error) {
	if on := n.Skyhook(skyhook); on.Problem == "" && on.Record.Rollback != nil {
		rec := on.Record.Clone()
		rec.Rollback, rec.Skipped = nil, false
		e := Edit{}
		e.SetAnnotation(n, v1alpha1.PrefixRecord+skyhook, rec.String())
		return e, nil
	}
	s, key, err := n.findPackage(skyhook, name, version)
	if err != nil {
		return Edit{}, err
	}
	state := maps.Clone(s.State)
	if stage == "" {
		delete(state, key)
	} else {
		entry := state[key]
		entry.Stage, entry.State, entry.Restarts = stage, v1alpha1.StateInProgress, 0
		state[key] = entry
	}
	if len(state) == 0 {
		return n.Restart(skyhook), nil
	}
	e := Edit{}
	e.SetAnnotation(n, v1alpha1.PrefixNodeState+skyhook, FormatState(state))
	return e, nil
}

// Replace returns the edit after which the running stage of a package begins again at once, with the present definition: its
// run is forgotten, so that its pod belongs to nothing.
func (n *Node) Replace(skyhook, name, version string) (Edit, error) {
	s, key, err := n.findPackage(skyhook, name, version)
	if err != nil {
		return Edit{}, err
	}
	p := s.Record.Packages[key]
	entry := s.State[key]
	isRunning := entry.State == v1alpha1.StateInProgress || entry.State == v1alpha1.StateErroring
	switch {
	case p == nil || p.Run == "" || !isRunning:
		return Edit{}, fmt.Errorf("package %s %s runs no stage on node %s: leave --now out", name, version, n.Name)
	case p.Interrupt != "":
		return Edit{}, fmt.Errorf("package %s %s runs its interrupt on node %s, which is never replaced: wait until it ends", name, version, n.Name)
	}
	rec := s.Record.Clone()
	p = rec.Packages[key]
	p.Run, p.Generation, p.Attempts, p.FailedAt, p.Failure, p.Again = "", 0, 0, nil, nil, false
	entry.State, entry.Restarts = v1alpha1.StateInProgress, 0
	p.At = Position(entry)
	state := maps.Clone(s.State)
	state[key] = entry
	text := FormatState(state)
	rec.State = HashState(text)
	e := Edit{}
	e.SetAnnotation(n, v1alpha1.PrefixNodeState+skyhook, text)
	e.SetAnnotation(n, v1alpha1.PrefixRecord+skyhook, rec.String())
	return e, nil
}

// findPackage returns the state of a Skyhook and the key of one version of a package in it.
func (n *Node) findPackage(skyhook, name, version string) (s *SkyhookState, key string, err error) {
	s = n.Skyhook(skyhook)
	if s.Problem != "" {
		return nil, "", fmt.Errorf("reading state of node %s: %s", n.Name, s.Problem)
	}
	for _, k := range slices.Sorted(maps.Keys(s.State)) {
		if entry := s.State[k]; entry.Name == name && pack.CompareVersions(entry.Version, version) == 0 {
			key = k
		}
	}
	if key == "" {
		return nil, "", fmt.Errorf("node %s does not record package %s in version %s: it begins with its first stage anyway", n.Name, name, version)
	}
	return s, key, nil
}
