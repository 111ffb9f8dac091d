// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop

import (
	"cmp"
	"maps"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// mostListed bounds the nodes in status.
const mostListed = 200

// Status says how far the NodeOp is. A terminal one is as it was.
func (c *Compiled) Status(report rollout.Report, groups []rollout.GroupReport) v1alpha1.NodeOpStatus {
	o := c.in.NodeOp
	was := o.Status
	if c.final {
		return *was.DeepCopy()
	}
	out := v1alpha1.NodeOpStatus{ObservedGeneration: o.Generation, Admission: was.Admission.DeepCopy(), LastUpdated: was.LastUpdated}
	all, total := c.entries(report)
	out.Total = total
	for _, e := range all {
		switch {
		case !ended(e):
			out.InProgress++
		case e.Phase == v1alpha1.PhaseFailed:
			out.Failed++
		case skipped(e):
			out.Skipped++
		default:
			out.Completed++
		}
	}
	out.Phase = c.phase(out.Counters, len(all))
	out.NodeStatuses = listed(all)
	c.compartments(&out, groups)
	c.conditions(&out, report)
	now := metav1.NewTime(whole(c.in.Now))
	for name, e := range out.NodeStatuses {
		old := was.NodeStatuses[name]
		e.LastUpdated = old.LastUpdated
		if !reflect.DeepEqual(plain(e), plain(old)) || old.LastUpdated.IsZero() {
			e.LastUpdated = now
		}
		out.NodeStatuses[name] = e
	}
	if !reflect.DeepEqual(untimed(out), untimed(was)) {
		out.LastUpdated = now
	}
	return out
}

// plain makes lines comparable as they are on the wire.
func plain(e v1alpha1.NodeStatus) v1alpha1.NodeStatus {
	e.LastUpdated = metav1.Time{}
	for _, t := range []**metav1.Time{&e.StartTime, &e.CompletionTime} {
		if *t != nil {
			utc := metav1.NewTime((*t).UTC())
			*t = &utc
		}
	}
	return e
}

func untimed(s v1alpha1.NodeOpStatus) v1alpha1.NodeOpStatus {
	s = *s.DeepCopy()
	s.LastUpdated, s.Admission = metav1.Time{}, nil
	for name, e := range s.NodeStatuses {
		s.NodeStatuses[name] = plain(e)
	}
	for i := range s.Conditions {
		s.Conditions[i].LastTransitionTime = metav1.Time{}
	}
	if len(s.NodeStatuses) == 0 {
		s.NodeStatuses = nil
	}
	return s
}

func skipped(e v1alpha1.NodeStatus) bool {
	return e.Phase == v1alpha1.PhaseCompleted && e.JobName == ""
}

// entries are the lines of all nodes that were started, and how many nodes there are in all.
func (c *Compiled) entries(report rollout.Report) (map[string]v1alpha1.NodeStatus, int32) {
	out := map[string]v1alpha1.NodeStatus{}
	total := int32(0)
	verdicts := map[string]rollout.Verdict{}
	for _, v := range report.Verdicts {
		verdicts[v.Node] = v
	}
	for _, t := range c.order {
		if t.rec.Result == nil && !t.rec.Admitted && t.leaving {
			continue
		}
		total++
		if e, ok := c.entry(t, verdicts[t.node.Name]); ok {
			out[t.node.Name] = e
		}
	}
	for _, name := range c.gone {
		total++
		e := c.in.NodeOp.Status.NodeStatuses[name]
		if !ended(e) {
			e.Phase, e.Message = v1alpha1.PhaseFailed, "the node does not exist any more"
			if e.RebootStatus == v1alpha1.RebootPending {
				e.RebootStatus = v1alpha1.RebootCancelled
			}
			now := metav1.NewTime(whole(c.in.Now))
			e.CompletionTime = &now
		}
		out[name] = e
	}
	return out, total
}

// entry is the line of one node; none when nothing has begun there.
func (c *Compiled) entry(t *target, v rollout.Verdict) (v1alpha1.NodeStatus, bool) {
	r := t.rec.Result
	if !t.rec.Admitted && r == nil {
		return v1alpha1.NodeStatus{}, false
	}
	if !t.rec.Admitted && t.listed && ended(t.entry) && t.rec.Node == "" { // a predecessor's: as it was
		return t.entry, true
	}
	out := v1alpha1.NodeStatus{JobName: t.rec.Job, RebootStatus: v1alpha1.RebootNotRequested}
	if on(c.in.NodeOp.Spec.RebootOnSuccess) {
		out.RebootStatus = v1alpha1.RebootPending
	}
	if t.rec.At != nil {
		at := metav1.NewTime(*t.rec.At)
		out.StartTime = &at
	}
	if r != nil {
		out.ExitCode, out.Attempts, out.Output, out.TargetVersion = r.Exit, r.Attempts, r.Output, r.Target
		out.Message, out.CurrentVersion = r.Message, r.Booted
	}
	if t.rec.Admitted {
		c.inFlight(t, v, &out)
		return out, true
	}
	at := metav1.NewTime(r.At)
	out.Phase, out.CompletionTime = r.Phase, &at
	switch {
	case r.Skipped:
		out.RebootStatus, out.JobName = v1alpha1.RebootNotRequested, ""
	case out.RebootStatus != v1alpha1.RebootPending:
	case r.Phase == v1alpha1.PhaseFailed && r.Booted == "":
		out.RebootStatus = v1alpha1.RebootCancelled
	default:
		out.RebootStatus = v1alpha1.RebootCompleted
	}
	return out, true
}

// inFlight is the line of a node that is worked on.
func (c *Compiled) inFlight(t *target, v rollout.Verdict, out *v1alpha1.NodeStatus) {
	busy := v.Why.Reason == "" || v.Why.Reason == rollout.ReasonWorking || v.Why.Reason == rollout.ReasonUpNext || v.Why.Reason == rollout.ReasonFinished
	switch command := t.rec.Command; {
	case command == nil && c.in.NodeOp.Spec.Preflight != nil && !t.rec.Preflight.is(stepDone):
		out.Phase, out.Message, out.RebootStatus = v1alpha1.PhasePreflight, "Preflight in progress", v1alpha1.RebootNotRequested
	case command == nil:
		out.Phase, out.Message = v1alpha1.PhasePending, "The node is prepared"
	case command.is(stepDone):
		out.Phase, out.Message = v1alpha1.PhaseCompleted, textJobDone
		if out.RebootStatus != v1alpha1.RebootPending {
			out.Phase = v1alpha1.PhaseRunning // until it is given back
		}
	case t.job() == nil || t.job().Status.Active == 0 && t.job().Status.Failed == 0 && len(t.objects.workers) == 0:
		out.Phase, out.Message = v1alpha1.PhasePending, "Job created"
	default:
		out.Phase, out.Message = v1alpha1.PhaseRunning, "Job is running"
		if j := t.job(); j.Status.Failed > 0 {
			out.Attempts = j.Status.Failed
		}
	}
	if !busy && v.Why.Text != "" {
		out.Message = bounded(v.Why.Text, 500)
	}
}

// phase sums up. Nothing is final while any node is at work.
func (c *Compiled) phase(n v1alpha1.Counters, started int) v1alpha1.Phase {
	done := n.Completed + n.Failed + n.Skipped
	stopped := n.Failed > 0 && on(c.in.NodeOp.Spec.StopOnFailure)
	broken := c.Rollout.Broken != nil
	switch {
	case n.InProgress == 0 && !broken && n.Total > 0 && (done >= n.Total || stopped):
		if n.Failed > 0 {
			return v1alpha1.PhaseFailed
		}
		return v1alpha1.PhaseCompleted
	case started == 0:
		return v1alpha1.PhasePending
	}
	return v1alpha1.PhaseRunning
}

// listed keeps the lines of a small cluster; of a large one those that are not complete, the worst first.
func listed(all map[string]v1alpha1.NodeStatus) map[string]v1alpha1.NodeStatus {
	if len(all) <= mostListed {
		return all
	}
	names := slices.Sorted(maps.Keys(all))
	names = slices.DeleteFunc(names, func(name string) bool { e := all[name]; return ended(e) && e.Phase == v1alpha1.PhaseCompleted })
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(weight(all[a]), weight(all[b])) })
	out := map[string]v1alpha1.NodeStatus{}
	for _, name := range names[:min(len(names), mostListed)] {
		out[name] = all[name]
	}
	return out
}

func weight(e v1alpha1.NodeStatus) int {
	if e.Phase == v1alpha1.PhaseFailed {
		return 0
	}
	return 1
}

func (c *Compiled) compartments(out *v1alpha1.NodeOpStatus, groups []rollout.GroupReport) {
	for _, g := range groups {
		name, ours := cutPrefix(g.Group, c.Rollout.Name+"/")
		if !ours {
			continue
		}
		if out.CompartmentStatuses == nil {
			out.CompartmentStatuses = map[string]v1alpha1.CompartmentStatus{}
		}
		s := v1alpha1.CompartmentStatus{Matched: g.Matched, Ceiling: g.Ceiling, InProgress: g.Busy, Completed: g.Finished, BatchState: batches(g.Memory)}
		if g.Ceiling == rollout.Unlimited {
			s.Ceiling = g.Matched
		}
		if g.Matched > 0 {
			s.ProgressPercent = g.Finished * 100 / g.Matched
		}
		out.CompartmentStatuses[name] = s
	}
}
