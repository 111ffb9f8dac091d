// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package report says how far a NodeOp is: its status, its conditions and its events.
package report

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// maxEntries bounds the nodes in status.
const maxEntries = 200

// reporter builds the status of a NodeOp from the report of the engine.
type reporter struct {
	op       *nodeop.Operation
	compiled *nodeop.Compiled
	report   rollout.Report
}

// Status is the status that follows from a report. Of a terminal status only the generation changes.
func Status(c *nodeop.Compiled, report rollout.Report, groups []rollout.GroupReport) v1alpha1.NodeOpStatus {
	before := c.Operation.NodeOp.Status
	r := &reporter{c.Operation, c, report}
	if c.Operation.IsFinished() {
		out := *before.DeepCopy()
		out.ObservedGeneration = r.op.NodeOp.Generation // no edit changes how it ended
		if out.Verdict == "" {
			r.addVerdict(&out)
		}
		return out
	}
	entries, total := r.entries()

	out := v1alpha1.NodeOpStatus{ObservedGeneration: r.op.NodeOp.Generation, LastUpdated: before.LastUpdated}
	out.Counters = countEntries(entries)
	out.Total = total
	out.Phase = r.phase(out.Counters, len(entries))
	out.NodeStatuses = limitEntries(entries)
	out.Internal.Admission = before.Internal.Admission.DeepCopy()
	out.CompartmentStatuses, out.Internal.Batches = policy.ToCompartmentStatuses(r.op.Owner, groups)
	out.EstimatedCompletion = policy.EstimateCompletion(c.Windows, report.Completion, before.EstimatedCompletion, c.Now)
	if r.op.TargetsAtStart {
		out.Internal.StartTargets = cmp.Or(before.Internal.StartTargets.DeepCopy(), c.Start)
	}
	r.setConditions(&out)
	setUpdateTimes(&out, &before, c.Now)
	return out
}

func countEntries(entries map[string]v1alpha1.NodeStatus) v1alpha1.Counters {
	var out v1alpha1.Counters
	for _, e := range entries {
		switch {
		case !nodeop.IsEntryFinal(e):
			out.InProgress++
		case e.Phase == v1alpha1.PhaseFailed:
			out.Failed++
		case nodeop.IsEntrySkipped(e):
			out.Skipped++
		default:
			out.Completed++
		}
	}
	return out
}

// setUpdateTimes sets the times of the last update where anything but a time differs from the status before.
func setUpdateTimes(out, before *v1alpha1.NodeOpStatus, t time.Time) {
	now := metav1.NewTime(node.WholeSeconds(t))
	for name, e := range out.NodeStatuses {
		old := before.NodeStatuses[name]
		e.LastUpdated = old.LastUpdated
		if old.LastUpdated.IsZero() || !equality.Semantic.DeepEqual(e, old) {
			e.LastUpdated = now
		}
		out.NodeStatuses[name] = e
	}

	a, b := out.DeepCopy(), before.DeepCopy()
	for _, s := range []*v1alpha1.NodeOpStatus{a, b} {
		s.LastUpdated, s.Internal.Admission, s.EstimatedCompletion, s.Profile = metav1.Time{}, nil, nil, nil
		ClearTimes(s.Conditions, s.NodeStatuses)
	}
	if !equality.Semantic.DeepEqual(a, b) {
		out.LastUpdated = now
	}
}

// HasNews reports whether a status says more than the stored one about anything but the progress of drains.
func HasNews(stored, status v1alpha1.NodeOpStatus) bool {
	isDraining := func(s v1alpha1.NodeOpStatus) bool {
		for _, e := range s.NodeStatuses {
			if e.Drain != nil {
				return true
			}
		}
		return false
	}
	if !isDraining(stored) && !isDraining(status) {
		return true
	}
	a, b := stored.DeepCopy(), status.DeepCopy()
	for _, s := range []*v1alpha1.NodeOpStatus{a, b} {
		s.LastUpdated, s.Internal.Admission = metav1.Time{}, nil
		ClearTimes(s.Conditions, s.NodeStatuses)
		for name, e := range s.NodeStatuses {
			e.Drain = nil
			s.NodeStatuses[name] = e
		}
	}
	return !equality.Semantic.DeepEqual(a, b)
}

// ClearTimes makes statuses comparable that differ in the times of their updates.
func ClearTimes(conditions []metav1.Condition, entries map[string]v1alpha1.NodeStatus) {
	for i := range conditions {
		conditions[i].LastTransitionTime = metav1.Time{}
	}
	for name, e := range entries {
		e.LastUpdated = metav1.Time{}
		entries[name] = e
	}
}

// entries are the entries of all nodes that were started, and the number of all nodes.
func (r *reporter) entries() (entries map[string]v1alpha1.NodeStatus, total int32) {
	verdicts := make(map[string]rollout.Verdict, len(r.report.Verdicts))
	for _, v := range r.report.Verdicts {
		verdicts[v.Node] = v
	}
	entries = make(map[string]v1alpha1.NodeStatus, len(r.compiled.Nodes))
	for _, n := range r.compiled.Nodes {
		started := n.Record.Admitted || n.Record.Result != nil
		if started {
			entries[n.Name] = r.entry(n, verdicts[n.Name])
		}
		if started || !n.IsLeaving {
			total++
		}
	}
	for _, d := range r.report.Draining {
		if e, ok := entries[d.Node]; ok {
			e.Drain = policy.DescribeDrain(d)
			entries[d.Node] = e
		}
	}
	for _, name := range r.compiled.Missing {
		entries[name] = r.missingEntry(r.op.NodeOp.Status.NodeStatuses[name])
		total++
	}
	return entries, total
}

// missingEntry is the entry of a node that no longer exists. Unless it was final before, it fails.
func (r *reporter) missingEntry(e v1alpha1.NodeStatus) v1alpha1.NodeStatus {
	if nodeop.IsEntryFinal(e) {
		return e
	}
	e.Phase, e.Message = v1alpha1.PhaseFailed, "the node no longer exists"
	e.CompletionTime = new(metav1.NewTime(node.WholeSeconds(r.compiled.Now)))
	if e.RebootStatus == v1alpha1.RebootPending {
		e.RebootStatus = v1alpha1.RebootCancelled
	}
	return e
}

// entry is the entry of a node that was started.
func (r *reporter) entry(n *nodeop.Node, v rollout.Verdict) v1alpha1.NodeStatus {
	if n.FinalEntry != nil {
		return *n.FinalEntry
	}
	rec := &n.Record
	out := v1alpha1.NodeStatus{JobName: rec.Job, RebootStatus: v1alpha1.RebootNotRequested}
	if r.op.Reboots() {
		out.RebootStatus = v1alpha1.RebootPending
	}
	if rec.At != nil {
		out.StartTime = new(metav1.NewTime(*rec.At))
	}
	if result := rec.Result; result != nil {
		out.ExitCode, out.Attempts, out.Output, out.Message = result.Exit, result.Attempts, result.Output, result.Message
		out.TargetVersion, out.CurrentVersion = result.Target, result.Booted
	}
	if rec.Admitted {
		r.setProgress(&out, n, v.Why)
	} else {
		setOutcome(&out, rec.Result)
	}
	return out
}

// setOutcome fills in how the operation ended on a node.
func setOutcome(out *v1alpha1.NodeStatus, result *node.Result) {
	out.Phase, out.CompletionTime = result.Phase, new(metav1.NewTime(result.At))
	switch {
	case result.Skipped:
		out.RebootStatus, out.JobName = v1alpha1.RebootNotRequested, ""
	case out.RebootStatus != v1alpha1.RebootPending:
	case result.IsFailed() && result.Booted == "":
		out.RebootStatus = v1alpha1.RebootCancelled
	default:
		out.RebootStatus = v1alpha1.RebootCompleted
	}
}

// setProgress fills in how far a node in progress is. A reason why it waits is the message.
func (r *reporter) setProgress(out *v1alpha1.NodeStatus, n *nodeop.Node, why rollout.Why) {
	rec, command := &n.Record, n.Record.Command
	inPreflight := command == nil && r.op.Spec().Preflight != nil && !rec.Preflight.Is(node.StepDone)
	switch {
	case inPreflight:
		out.Phase, out.Message, out.RebootStatus = v1alpha1.PhasePreflight, "Preflight in progress", v1alpha1.RebootNotRequested
	case command == nil:
		out.Phase, out.Message = v1alpha1.PhasePending, "The node is prepared"
	case command.Is(node.StepDone):
		isRebooting := out.RebootStatus == v1alpha1.RebootPending && rec.Proving == nil
		out.Phase, out.Message = v1alpha1.PhaseRunning, nodeop.TextJobDone // until the node is released
		switch {
		case isRebooting:
			out.Phase = v1alpha1.PhaseCompleted
		case out.RebootStatus == v1alpha1.RebootPending:
			out.RebootStatus = v1alpha1.RebootCompleted // and its proof is waited for
		}
	case !n.Command.HasRun:
		out.Phase, out.Message = v1alpha1.PhasePending, "Job created"
	default:
		out.Phase, out.Message, out.Attempts = v1alpha1.PhaseRunning, "Job is running", cmp.Or(n.Command.Failed, out.Attempts)
		out.ExitCode, out.Output = n.Command.Exit, n.Command.Output
	}
	if why.Text != "" && isWaitReason(why.Reason) {
		out.Message = node.Truncate(why.Text, 500)
	}
}

// isWaitReason reports whether a reason says why a node does not go on.
func isWaitReason(reason rollout.Reason) bool {
	switch reason {
	case "", rollout.ReasonWorking, rollout.ReasonRetry, rollout.ReasonUpNext, rollout.ReasonFinished:
		return false
	}
	return true
}

// phase sums up the nodes. It is not final while any node is in progress.
func (r *reporter) phase(n v1alpha1.Counters, started int) v1alpha1.Phase {
	allDone := (n.Total > 0 || r.compiled.AllGone) && n.Completed+n.Failed+n.Skipped >= n.Total
	isStopped := n.Failed > 0 && nodeop.IsTrue(r.op.Spec().StopOnFailure)
	isFinal := n.InProgress == 0 && r.compiled.Rollout.Broken == nil && (allDone || isStopped)
	switch {
	case isFinal && n.Failed > 0:
		return v1alpha1.PhaseFailed
	case isFinal:
		return v1alpha1.PhaseCompleted
	case started == 0:
		return v1alpha1.PhasePending
	}
	return v1alpha1.PhaseRunning
}

// limitEntries returns all entries of a small cluster; of a large one those that are not complete, failures first.
func limitEntries(all map[string]v1alpha1.NodeStatus) map[string]v1alpha1.NodeStatus {
	if len(all) <= maxEntries {
		return all
	}
	var failed, open []string
	for name, e := range all {
		switch {
		case e.Phase == v1alpha1.PhaseFailed:
			failed = append(failed, name)
		case !nodeop.IsEntryFinal(e):
			open = append(open, name)
		}
	}
	slices.Sort(failed)
	slices.Sort(open)
	names := append(failed, open...)
	out := map[string]v1alpha1.NodeStatus{}
	for _, name := range names[:min(len(names), maxEntries)] {
		out[name] = all[name]
	}
	return out
}
