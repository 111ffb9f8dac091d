// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// ConditionSet changes the conditions of an object.
type ConditionSet struct {
	Conditions []metav1.Condition
	Generation int64
	Now        time.Time
}

// Set sets a condition. Its transition time changes only with its status.
func (s *ConditionSet) Set(kind string, holds bool, reason, message string) {
	status := metav1.ConditionFalse
	if holds {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: node.Truncate(message, 1000),
		ObservedGeneration: s.Generation, LastTransitionTime: metav1.NewTime(node.WholeSeconds(s.Now)),
	})
}

// conditions say whether the NodeOp is accepted, whether it makes progress, and whether it has succeeded.
func (r *reporter) conditions(out *v1alpha1.NodeOpStatus) []metav1.Condition {
	s := &ConditionSet{slices.Clone(r.op.NodeOp.Status.Conditions), r.op.NodeOp.Generation, r.compiled.Now}
	if problems := r.compiled.Problems; len(problems) > 0 {
		s.Set(v1alpha1.ConditionAccepted, false, string(problems[0].Reason), problems[0].Text)
	} else {
		s.Set(v1alpha1.ConditionAccepted, true, v1alpha1.ReasonAccepted, "the spec can be carried out")
	}

	summary := summarize(out.Counters)
	switch out.Phase {
	case v1alpha1.PhaseCompleted:
		s.Set(v1alpha1.ConditionProgressing, false, v1alpha1.ReasonCompleted, summary)
		s.Set(v1alpha1.ConditionReady, true, v1alpha1.ReasonCompleted, summary)
	case v1alpha1.PhaseFailed:
		s.Set(v1alpha1.ConditionProgressing, false, v1alpha1.ReasonFailed, summary)
		s.Set(v1alpha1.ConditionReady, false, v1alpha1.ReasonFailed, joinTexts(summary, firstFailure(out)))
	default:
		reason, message := r.openReason(out)
		s.Set(v1alpha1.ConditionProgressing, reason == v1alpha1.ReasonRunning, reason, message)
		s.Set(v1alpha1.ConditionReady, false, reason, joinTexts(summary, message))
	}
	return s.Conditions
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
