// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	skyhookv1 "github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// setConditions fills in the verdict and the conditions: whether the NodeOp is accepted, makes progress, and has succeeded.
func (r *reporter) setConditions(out *v1alpha1.NodeOpStatus) {
	s := &policy.ConditionSet{Stored: r.op.NodeOp.Status.Conditions, Generation: r.op.NodeOp.Generation, Now: r.compiled.Now}
	if problems := r.compiled.Problems; len(problems) > 0 {
		s.Set(v1alpha1.ConditionAccepted, false, string(problems[0].Reason), problems[0].Text)
	} else {
		s.Set(v1alpha1.ConditionAccepted, true, v1alpha1.ReasonAccepted, "the spec can be carried out")
	}

	summary := summarize(out.Counters)
	reason, progress, message := v1alpha1.ReasonCompleted, summary, summary
	switch out.Phase {
	case v1alpha1.PhaseCompleted:
	case v1alpha1.PhaseFailed:
		reason, message = v1alpha1.ReasonFailed, joinTexts(summary, firstFailure(out))
	default:
		reason, progress = r.openReason(out)
		message = joinTexts(summary, progress)
	}
	s.Set(v1alpha1.ConditionProgressing, reason == v1alpha1.ReasonRunning, reason, progress)
	s.Set(v1alpha1.ConditionReady, out.Phase == v1alpha1.PhaseCompleted, reason, message)
	r.setVerdict(out, s, rollout.Why{Reason: rollout.Reason(reason), Text: message})
}

// addVerdict fills in the verdict about a NodeOp that an operator without verdicts ended.
func (r *reporter) addVerdict(out *v1alpha1.NodeOpStatus) {
	s := &policy.ConditionSet{Conditions: out.Conditions, Generation: r.op.NodeOp.Generation, Now: r.compiled.Now}
	why := rollout.Why{Reason: rollout.Reason(out.Phase), Text: cmp.Or(firstFailure(out), "it has ended")}
	if meta.FindStatusCondition(out.Conditions, v1alpha1.ConditionReady) == nil {
		s.Set(v1alpha1.ConditionReady, out.Phase == v1alpha1.PhaseCompleted, string(why.Reason), why.Text)
	}
	r.setVerdict(out, s, why)
}

// setVerdict judges the NodeOp. A failure of one node counts when the others have ended.
func (r *reporter) setVerdict(out *v1alpha1.NodeOpStatus, conditions *policy.ConditionSet, why rollout.Why) {
	s := policy.Standing{Other: why, Refused: r.compiled.Rollout.Broken}
	switch {
	case r.op.IsDeleting():
		s.Deleting = &rollout.Why{Reason: skyhookv1.ReasonDeleting, Text: why.Text}
	case out.Phase == v1alpha1.PhaseCompleted:
		s.Ready = &why
	case out.Phase == v1alpha1.PhaseFailed:
		s.Failed = &why
	case why.Reason == v1alpha1.ReasonSuspended:
		s.Held = &why
	case why.Reason == v1alpha1.ReasonWaiting:
		s.Nodes = func(yield func(rollout.Verdict) bool) {
			for _, v := range r.report.Verdicts {
				if v.Phase != rollout.PhaseFailed && !yield(v) {
					return
				}
			}
		}
	}
	verdict := s.Judge()
	verdict.SetConditions(conditions.Set)
	out.Outcome, out.Conditions = verdict.Outcome, conditions.Conditions
}

// joinTexts joins two texts; the second may begin with the first, or be empty.
func joinTexts(a, b string) string {
	switch {
	case b == "":
		return a
	case strings.HasPrefix(b, a):
		return b
	}
	return a + "; " + b
}

func summarize(n v1alpha1.Counters) string {
	if n.Total == 0 {
		return "none of its nodes exists any more"
	}
	text := fmt.Sprintf("%d of %d nodes done", n.Completed+n.Skipped+n.Failed, n.Total)
	for _, more := range []struct {
		n    int32
		what string
	}{{n.Failed, "failed"}, {n.Skipped, "skipped"}, {n.InProgress, "in progress"}} {
		if more.n > 0 {
			text += fmt.Sprintf(", %d %s", more.n, more.what)
		}
	}
	return text
}

// openReason says what a NodeOp that is not finished does or waits for.
func (r *reporter) openReason(out *v1alpha1.NodeOpStatus) (reason, message string) {
	suspended := nodeop.IsTrue(r.op.Spec().Suspend)
	broken := r.compiled.Rollout.Broken
	switch {
	case broken != nil:
		return string(broken.Reason), broken.Text
	case out.InProgress > 0 && r.op.IsDeleting():
		return v1alpha1.ReasonRunning, "it is being deleted: " + joinTexts("what runs ends, and nothing starts", r.attempts())
	case out.InProgress > 0 && suspended:
		return v1alpha1.ReasonRunning, joinTexts("it is suspended: what runs ends, and nothing starts", r.attempts())
	case out.InProgress > 0:
		return v1alpha1.ReasonRunning, joinTexts(summarize(out.Counters), r.attempts())
	case suspended:
		return v1alpha1.ReasonSuspended, "it is suspended: set suspend to false to go on"
	case out.Total == 0:
		return v1alpha1.ReasonNoNodes, "no node matches nodeSelector: it waits for one"
	}
	for _, v := range r.report.Verdicts {
		if v.Phase == rollout.PhaseWaiting || v.Phase == rollout.PhaseBlocked {
			return v1alpha1.ReasonWaiting, "node " + v.Node + " waits: " + v.Why.Text
		}
	}
	return v1alpha1.ReasonRunning, "nodes are about to start"
}

// attempts describes the attempts on the first node by name whose command failed and is tried again; empty when there is none.
func (r *reporter) attempts() string {
	for _, n := range r.compiled.Nodes {
		if n.Command.RetryFor != "" {
			return "node " + n.Name + ": " + n.Command.RetryFor
		}
	}
	return ""
}

// firstFailure describes the first failed node by name; it is empty when there is none.
func firstFailure(out *v1alpha1.NodeOpStatus) string {
	first := ""
	for name, e := range out.NodeStatuses {
		if e.Phase == v1alpha1.PhaseFailed && (first == "" || name < first) {
			first = name
		}
	}
	if first == "" {
		return ""
	}
	e := out.NodeStatuses[first]
	text := "node " + first + ": " + e.Message
	if e.Output != "" {
		text += ": " + e.Output
	}
	return text
}
