// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

const (
	mostNodes   = 200      // in the maps by node
	mostState   = 96 << 10 // bytes of nodeState, beyond which further nodes are left out
	mostEntries = 1000     // packages of one node
)

// worst orders statuses of nodes, the most urgent first.
var worst = []v1alpha1.Status{
	v1alpha1.StatusErroring, v1alpha1.StatusBlocked, v1alpha1.StatusUnknown, v1alpha1.StatusInProgress,
	v1alpha1.StatusPaused, v1alpha1.StatusDisabled, v1alpha1.StatusWaiting, v1alpha1.StatusComplete,
}

// statuses maps the engine's phases to documented statuses.
var statuses = map[rollout.Phase]v1alpha1.Status{
	rollout.PhaseFinished: v1alpha1.StatusComplete, rollout.PhaseWaiting: v1alpha1.StatusWaiting, rollout.PhaseInFlight: v1alpha1.StatusInProgress,
	rollout.PhaseFailing: v1alpha1.StatusErroring, rollout.PhaseFailed: v1alpha1.StatusErroring, rollout.PhaseBlocked: v1alpha1.StatusBlocked,
	rollout.PhasePaused: v1alpha1.StatusPaused, rollout.PhaseDisabled: v1alpha1.StatusDisabled,
}

// nodeStatus is one node with its status and the reason.
type nodeStatus struct {
	name   string
	status v1alpha1.Status
	phase  rollout.Phase
	why    *rollout.Why // never nil
	target *plan.Target
	index  int // in Rollout.Targets
}

// withoutReason is why of a node without a verdict.
var withoutReason rollout.Why

// Status returns the status of the compiled generation. Transition
// times of unchanged conditions are kept, and so is the ledger, which is written separately.
func (rep Reporter) Status(r rollout.Report, groups []rollout.GroupReport) v1alpha1.SkyhookStatus {
	s := rep.Stored
	nodes := rep.nodeStatuses(r)
	out := v1alpha1.SkyhookStatus{
		ObservedGeneration: rep.Facts.Skyhook.Generation, NodeOrderOffset: int32(r.NextOrder),
		NodesTotal: int32(len(nodes)), NodeCounts: map[v1alpha1.Status]int32{},
		NodePriority: rep.admissionTimes(), ConfigUpdates: rep.configUpdates(), PackageList: rep.Facts.PackageList(),
		PodLayout: rep.podLayoutStatus(), Revisions: rep.revisions(nodes),
	}
	out.Internal.Admission, out.Internal.ImagePins = s.Internal.Admission, rep.imagePins()
	out.CompartmentStatuses, out.Internal.Batches = policy.ToCompartmentStatuses(rep.Rollout.Ref, groups)
	out.EstimatedCompletion = policy.EstimateCompletion(rep.Facts.Windows(), r.Completion, s.EstimatedCompletion, rep.Facts.Now)
	for _, n := range nodes {
		out.NodeCounts[n.status]++
	}
	out.NodesInProgress = out.NodeCounts[v1alpha1.StatusInProgress] + out.NodeCounts[v1alpha1.StatusErroring]
	out.CompleteNodes = fmt.Sprintf("%d/%d", out.NodeCounts[v1alpha1.StatusComplete], len(nodes))
	out.Status = rep.rollUp(out.NodeCounts, len(nodes))
	rep.fillNodeMaps(&out, nodes)
	out.Rollback = rep.rollbackStatus()
	out.Drains = describeDrains(r.Draining)
	rep.setConditions(&out, nodes, groups)
	return out
}

// mostDrains limits the drains in a status.
const mostDrains = 20

// describeDrains returns the drains that take long, the longest first.
func describeDrains(all []rollout.Drained) []v1alpha1.NodeDrain {
	var out []v1alpha1.NodeDrain
	for _, d := range all {
		if progress := policy.DescribeDrain(d); progress != nil && len(out) < mostDrains {
			out = append(out, v1alpha1.NodeDrain{Node: d.Node, DrainProgress: *progress})
		}
	}
	return out
}

// HasNews reports whether a status says more than the stored one about anything but the progress of drains.
func HasNews(stored, status v1alpha1.SkyhookStatus) bool {
	if len(stored.Drains)+len(status.Drains) == 0 {
		return true
	}
	for _, s := range []*v1alpha1.SkyhookStatus{&stored, &status} {
		s.Drains, s.Internal.Admission = nil, nil
	}
	return !equality.Semantic.DeepEqual(stored, status)
}

// nodeStatuses returns the status of every selected node, in the order of the targets.
func (rep Reporter) nodeStatuses(r rollout.Report) []nodeStatus {
	var verdicts map[string]*rollout.Verdict
	next := 0
	verdictOf := func(nodeName string) *rollout.Verdict {
		if next < len(r.Verdicts) && r.Verdicts[next].Node == nodeName { // mostly they are in the order of the targets
			next++
			return &r.Verdicts[next-1]
		}
		if verdicts == nil {
			verdicts = make(map[string]*rollout.Verdict, len(r.Verdicts))
			for i := range r.Verdicts {
				verdicts[r.Verdicts[i].Node] = &r.Verdicts[i]
			}
		}
		return verdicts[nodeName]
	}
	out := make([]nodeStatus, 0, len(rep.Rollout.Targets))
	for i, t := range rep.Rollout.Targets {
		if t.Leaving || t.Gone {
			continue
		}
		n := nodeStatus{name: t.Node, status: v1alpha1.StatusUnknown, why: &withoutReason, target: rep.Targets[i], index: i}
		if v := verdictOf(t.Node); v != nil {
			n.status, n.phase, n.why = rep.statusOf(n.target, v.Phase), v.Phase, &v.Why
		}
		if n.target.Stuck != nil && n.status == v1alpha1.StatusBlocked {
			n.why = n.target.Stuck
		}
		out = append(out, n)
	}
	return out
}

// statusOf returns the status for a phase. A node whose remaining package cannot start is not complete.
func (rep Reporter) statusOf(t *plan.Target, phase rollout.Phase) v1alpha1.Status {
	status, ok := statuses[phase]
	switch {
	case !ok:
		return v1alpha1.StatusUnknown
	case status == v1alpha1.StatusComplete && t != nil && t.Stuck != nil:
		return v1alpha1.StatusBlocked
	}
	return status
}

// rollUp returns the status of the Skyhook: in_progress while any node is, otherwise the most urgent one of its nodes.
func (rep Reporter) rollUp(counts map[v1alpha1.Status]int32, total int) v1alpha1.Status {
	switch {
	case rep.Rollout.Broken != nil:
		return v1alpha1.StatusBlocked
	case int(counts[v1alpha1.StatusComplete]) == total:
		return v1alpha1.StatusComplete
	case rep.Rollout.Yields:
		return v1alpha1.StatusDisabled
	case rep.Rollout.Paused:
		return v1alpha1.StatusPaused
	case counts[v1alpha1.StatusInProgress] > 0:
		return v1alpha1.StatusInProgress
	}
	for _, status := range worst {
		if counts[status] > 0 && status != v1alpha1.StatusUnknown {
			return status
		}
	}
	return v1alpha1.StatusUnknown
}

// fillNodeMaps fills the maps by node: every node while they are few, otherwise those that are not complete, worst first.
func (rep Reporter) fillNodeMaps(out *v1alpha1.SkyhookStatus, nodes []nodeStatus) {
	var show []nodeStatus
	for _, n := range nodes {
		if len(nodes) <= mostNodes || n.status != v1alpha1.StatusComplete {
			show = append(show, n)
		}
	}
	slices.SortStableFunc(show, func(a, b nodeStatus) int {
		return cmp.Compare(slices.Index(worst, a.status), slices.Index(worst, b.status))
	})
	show = show[:min(len(show), mostNodes)]
	if len(show) == 0 {
		return
	}
	out.NodeState, out.NodeStatus, out.NodeBootIDs = map[string]v1alpha1.NodeState{}, map[string]v1alpha1.Status{}, map[string]v1alpha1.BootID{}
	size := 0
	for _, n := range show {
		out.NodeStatus[n.name] = n.status
		if n.target.Node.BootID != "" {
			out.NodeBootIDs[n.name] = v1alpha1.BootID(node.Truncate(n.target.Node.BootID, 128))
		}
		if size += len(n.name) + len(n.target.On.StateText); len(n.target.On.State) > 0 && size <= mostState {
			out.NodeState[n.name] = boundState(n.target.On.State)
		}
	}
}

// boundState returns what the schema of the status allows of a nodeState. Annotations are written by people too, and one value that
// the schema refuses would refuse the whole status.
func boundState(state v1alpha1.NodeState) v1alpha1.NodeState {
	keys := slices.Sorted(maps.Keys(state))
	out := make(v1alpha1.NodeState, len(state))
	for _, key := range keys[:min(len(keys), mostEntries)] {
		e := state[key]
		e.Name, e.Version = node.Truncate(e.Name, 253), node.Truncate(e.Version, 253)
		e.Image, e.ContainerSHA = node.Truncate(e.Image, 1024), node.Truncate(e.ContainerSHA, 256)
		out[key] = e
	}
	return out
}

// admissionTimes returns the admission time of each node in flight, limited like the other maps.
func (rep Reporter) admissionTimes() map[string]metav1.Time {
	var out map[string]metav1.Time
	for _, t := range rep.Rollout.Targets {
		if !t.Visit.Admitted || t.Visit.AdmittedAt.IsZero() || len(out) == mostNodes {
			continue
		}
		if out == nil {
			out = map[string]metav1.Time{}
		}
		out[t.Node] = metav1.NewTime(t.Visit.AdmittedAt)
	}
	return out
}

// configUpdates lists the changed keys that some node has not applied yet.
func (rep Reporter) configUpdates() map[string]v1alpha1.ConfigKeys {
	type change struct{ from, to string }
	seen := map[change]bool{}
	keys := map[string]map[string]bool{}
	for _, t := range rep.Targets {
		for _, st := range t.Steps {
			if st.Goal != node.GoalConfig || seen[change{st.From, st.Definition.Hash}] {
				continue
			}
			seen[change{st.From, st.Definition.Hash}] = true
			for _, key := range rep.Facts.ChangedKeys(st.From, st.Keys, st.Definition) {
				if keys[st.Name] == nil {
					keys[st.Name] = map[string]bool{}
				}
				keys[st.Name][key] = true
			}
		}
	}
	var out map[string]v1alpha1.ConfigKeys
	for name, set := range keys {
		if out == nil {
			out = map[string]v1alpha1.ConfigKeys{}
		}
		list := slices.Sorted(maps.Keys(set))
		list = list[:min(len(list), 512)]
		for i := range list {
			list[i] = node.Truncate(list[i], 253)
		}
		out[name] = list
	}
	return out
}
