// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

func cutPrefix(s, prefix string) (string, bool) { return strings.CutPrefix(s, prefix) }

// conditions say whether the NodeOp is accepted, whether work is under way, and whether it has finished well.
func (c *Compiled) conditions(out *v1alpha1.NodeOpStatus, report rollout.Report) {
	out.Conditions = slices.Clone(c.in.NodeOp.Status.Conditions)
	say := func(kind string, yes bool, reason, message string) {
		status := metav1.ConditionFalse
		if yes {
			status = metav1.ConditionTrue
		}
		old := meta.FindStatusCondition(out.Conditions, kind)
		at := metav1.NewTime(whole(c.in.Now))
		if old != nil && old.Status == status {
			at = old.LastTransitionTime
		}
		meta.SetStatusCondition(&out.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, LastTransitionTime: at,
			Message: bounded(message, 1000), ObservedGeneration: c.in.NodeOp.Generation})
	}
	if len(c.Problems) > 0 {
		say(v1alpha1.ConditionAccepted, false, string(c.Problems[0].Reason), c.Problems[0].Text)
	} else {
		say(v1alpha1.ConditionAccepted, true, v1alpha1.ReasonAccepted, "the spec can be carried out")
	}
	sum := summary(out.Counters)
	reason, message := c.why(out, report)
	switch out.Phase {
	case v1alpha1.PhaseCompleted:
		say(v1alpha1.ConditionProgressing, false, v1alpha1.ReasonCompleted, sum)
		say(v1alpha1.ConditionReady, true, v1alpha1.ReasonCompleted, sum)
	case v1alpha1.PhaseFailed:
		say(v1alpha1.ConditionProgressing, false, v1alpha1.ReasonFailed, sum)
		say(v1alpha1.ConditionReady, false, v1alpha1.ReasonFailed, join(sum, c.firstFailure(out)))
	default:
		say(v1alpha1.ConditionProgressing, reason == v1alpha1.ReasonRunning, reason, message)
		say(v1alpha1.ConditionReady, false, reason, join(sum, message))
	}
}

func join(a, b string) string {
	if b == "" || a == b {
		return a
	}
	return a + "; " + b
}

func summary(n v1alpha1.Counters) string {
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

// why is what a NodeOp that is not finished does or waits for.
func (c *Compiled) why(out *v1alpha1.NodeOpStatus, report rollout.Report) (reason, message string) {
	waiting := ""
	for _, v := range report.Verdicts {
		if (v.Phase == rollout.Waiting || v.Phase == rollout.Blocked) && waiting == "" {
			waiting = "node " + v.Node + " waits: " + v.Why.Text
		}
	}
	switch {
	case c.Rollout.Broken != nil:
		return string(c.Rollout.Broken.Reason), c.Rollout.Broken.Text
	case out.InProgress > 0 && on(c.in.NodeOp.Spec.Suspend):
		return v1alpha1.ReasonRunning, "it is suspended: what runs ends, and nothing starts"
	case out.InProgress > 0:
		return v1alpha1.ReasonRunning, summary(out.Counters)
	case on(c.in.NodeOp.Spec.Suspend):
		return v1alpha1.ReasonSuspended, "it is suspended: set suspend to false to go on"
	case out.Total == 0:
		return v1alpha1.ReasonNoNodes, "no node matches nodeSelector: it waits for one"
	case waiting != "":
		return v1alpha1.ReasonWaiting, waiting
	}
	return v1alpha1.ReasonRunning, "nodes are about to start"
}

func (c *Compiled) firstFailure(out *v1alpha1.NodeOpStatus) string {
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
