// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Installed is a package as one node records it.
type Installed struct {
	v1alpha1.PackageStatus
	Finished bool // the package was through its last stage when the node was written
}

// Skyhooks are the names of those that have left anything on the node, sorted.
func (n *Node) Skyhooks() []string { return slices.Sorted(maps.Keys(n.records)) }

// Installed are the packages of a Skyhook that the node records, by name and version.
func (n *Node) Installed(skyhook string) ([]Installed, error) {
	on := n.on(skyhook)
	if on.problem != "" {
		return nil, fmt.Errorf("reading state of node %s: %s", n.Name, on.problem)
	}
	var out []Installed
	for _, key := range slices.Sorted(maps.Keys(on.state)) {
		i := Installed{PackageStatus: on.state[key]}
		if i.State == v1alpha1.StateComplete {
			rec := on.record.Packages[key]
			underWay := rec != nil && rec.At == at(i.PackageStatus) && rec.Goal != ""
			i.Finished = !underWay && (i.Stage == v1alpha1.StageConfig || i.Stage == v1alpha1.StagePostInterrupt)
		}
		out = append(out, i)
	}
	return out, nil
}

// Reset is the edit after which the node knows nothing of a Skyhook but that it is not new. It needs neither the Skyhook
// nor readable annotations. The cordon goes as it does with a release: with the last hold, and only if it was ours.
func (n *Node) Reset(skyhook string, holds []rollout.Hold) Edit {
	on, e := n.on(skyhook), Edit{}
	for _, prefix := range []string{v1alpha1.PrefixNodeState, v1alpha1.PrefixRecord, v1alpha1.PrefixCordon, v1alpha1.PrefixVersion} {
		e.strip(n, prefix+skyhook)
	}
	e.hush(n, skyhook)
	if e.Empty() {
		return e
	}
	e.annotate(n, v1alpha1.AnnotationKnown, "true")
	was := on.record.Held != nil && on.record.Node == n.UID && on.record.Held.WasCordoned
	if on.cordoned && n.Unschedulable && !was && len(others(holds, Ref(skyhook))) == 0 {
		no := false
		e.Unschedulable = &no
	}
	return e
}

// Restart is the edit after which every package of a Skyhook begins again on the node. A hold stays: it is still needed.
func (n *Node) Restart(skyhook string) Edit {
	e := Edit{}
	e.strip(n, v1alpha1.PrefixNodeState+skyhook)
	return e
}

// Rerun is the edit after which one version of a package begins again on the node: with its first stage, or with the
// stage given. What the record says of the package counts no longer then, because nodeState wins.
func (n *Node) Rerun(skyhook, name, version string, stage v1alpha1.Stage) (Edit, error) {
	on := n.on(skyhook)
	if on.problem != "" {
		return Edit{}, fmt.Errorf("reading state of node %s: %s", n.Name, on.problem)
	}
	key := ""
	for _, k := range slices.Sorted(maps.Keys(on.state)) {
		if s := on.state[k]; s.Name == name && pack.CompareVersions(s.Version, version) == 0 {
			key = k
		}
	}
	if key == "" {
		return Edit{}, fmt.Errorf("node %s does not record package %s in version %s: it begins with its first stage anyway", n.Name, name, version)
	}
	state := maps.Clone(on.state)
	if stage == "" {
		delete(state, key)
	} else {
		entry := state[key]
		entry.Stage, entry.State, entry.Restarts = stage, v1alpha1.StateInProgress, 0
		state[key] = entry
	}
	e := Edit{}
	if len(state) == 0 {
		return n.Restart(skyhook), nil
	}
	e.annotate(n, v1alpha1.PrefixNodeState+skyhook, writeState(state))
	return e, nil
}

// Runs says which stage of which package a pod of ours runs; false for a pod that does not say.
func Runs(p *corev1.Pod) (name, version string, stage v1alpha1.Stage, ok bool) {
	t, ok := readTag(p)
	if !ok || t.Skyhook != p.Labels[v1alpha1.LabelName] {
		return "", "", "", false
	}
	return t.Name, t.Version, t.Stage, true
}
