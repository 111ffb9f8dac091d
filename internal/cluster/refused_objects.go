// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// refusedRequests are the requests that were refused when something was observed.
type refusedRequests struct {
	tasks    map[rollout.Ref]node.Refusals // attempts whose objects were refused
	nodes    map[string]node.Refusal       // nodes that may not be changed
	dryRuns  map[request]node.Refusal      // objects that rollouts would need
	rollouts map[request]node.Refusal      // finalizers and ConfigMaps that rollouts need
	asks     map[askKey]node.Refusal       // objects of handovers
}

// addRefused adds the refused requests to what was observed.
func (v *observer) addRefused(o *Objects, now time.Time) {
	out := refusedRequests{tasks: map[rollout.Ref]node.Refusals{}, nodes: map[string]node.Refusal{}, dryRuns: map[request]node.Refusal{}, rollouts: map[request]node.Refusal{}, asks: map[askKey]node.Refusal{}}
	for q, refused := range v.refused.view(now) {
		isWaiting := now.Before(refused.RetryAt())
		if isWaiting {
			o.RetryAt = node.Earlier(o.RetryAt, refused.RetryAt())
		}
		switch {
		case q.task != "":
			if out.tasks[q.rollout] == nil {
				out.tasks[q.rollout] = node.Refusals{}
			}
			out.tasks[q.rollout].Add(q.node, q.task, refused)
		case q.object == objectDryRun && isWaiting:
			out.dryRuns[q] = refused
		case q.object == string(rollout.VerbAsk) && isWaiting:
			out.asks[askKey{q.rollout, q.node}] = refused
		case q.object != "" || !isWaiting:
		case q.node != "":
			out.nodes[q.node] = refused
		default:
			out.rollouts[q] = refused
		}
	}
	o.refused = out
}

// blockRefused blocks the targets of a rollout for which a request was refused a moment ago: those on a node that may not be
// changed, and all that have not begun when the rollout lacks its finalizer or a ConfigMap, or when its objects would be refused.
// A node whose annotations are full is blocked too. Work in flight that lacks a finalizer or a ConfigMap starts no further task.
// It returns what is wrong with the rollout's object; empty for nothing. Another observer than the operator knows of the latter
// two what the operator reported.
func (o *Objects) blockRefused(r *rollout.Rollout, generation int64, reported []metav1.Condition) (problem string) {
	blockedNodes := o.refused.nodes
	q := request{rollout: r.Ref, generation: generation}
	lacks, isLacking := o.refused.rollouts[q]
	q.object = objectDryRun
	wouldBe, wouldBeRefused := o.refused.dryRuns[q]
	if isOperator := o.durations != nil; !isOperator {
		wouldBe, wouldBeRefused = findReportedRefusal(reported, generation)
	}
	anyIsFull := slices.ContainsFunc(o.Nodes, (*node.Node).IsFull)
	for i, t := range r.Targets {
		if refused, ok := blockedNodes[t.Node]; ok && t.Blocked == nil {
			t = r.CopyTarget(i)
			t.Blocked = blockingReason("the node cannot be changed: ", refused, "Node "+t.Node)
		}
		if anyIsFull && t.Blocked == nil && !t.Visit.Admitted {
			if n := o.Node(t.Node); n != nil && n.IsFull() {
				t = r.CopyTarget(i)
				t.Blocked = n.FullReason()
			}
		}
		switch {
		case t.Blocked != nil || t.Leaving:
		case isLacking && t.Visit.Admitted:
			t = r.CopyTarget(i)
			t.Tasks = slices.Clone(t.Tasks) // the next pass may take over what they were compiled to
			for j := range t.Tasks {
				holdTask(&t.Tasks[j], lacks.Why())
			}
		case isLacking:
			r.CopyTarget(i).Blocked = blockingReason("", lacks, "")
		case wouldBeRefused && !t.Visit.Admitted:
			r.CopyTarget(i).Blocked = blockingReason("", wouldBe, "")
		}
	}
	switch {
	case isLacking:
		return lacks.Why().Text
	case wouldBeRefused:
		return wouldBe.Why().Text
	}
	return ""
}

// findReportedRefusal returns what the operator reported that it was refused for this generation of an object.
func findReportedRefusal(conditions []metav1.Condition, generation int64) (refused node.Refusal, isFound bool) {
	c := meta.FindStatusCondition(conditions, v1alpha1.ConditionAccepted)
	isRefusal := c != nil && c.Status == metav1.ConditionFalse && c.Reason == string(rollout.ReasonRefused)
	if !isRefusal || c.ObservedGeneration != generation {
		return node.Refusal{}, false
	}
	text, _, _ := strings.Cut(c.Message, "; it is retried")
	return node.Refusal{Text: text, At: c.LastTransitionTime.Time, Count: 1}, true
}

func blockingReason(prefix string, refused node.Refusal, about string) *rollout.Why {
	why := refused.Why()
	why.Text, why.About = prefix+why.Text, about
	return &why
}

// holdTask keeps a task from starting.
func holdTask(task *rollout.Task, why rollout.Why) {
	isOver := task.State == rollout.StateDone || task.State == rollout.StateSucceeded
	if task.Object.Name == "" && !isOver {
		task.Object.Leaving, task.Why = true, &why
	}
}
