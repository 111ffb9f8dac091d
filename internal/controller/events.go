// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	opreport "github.com/skyhook-k8s/skyhook/internal/nodeop/report"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/report"
)

// recordActions emits the events of actions that were carried out, compiled from the objects they were decided for.
func (r *reporter) recordActions(d cluster.AppliedActions) {
	actions := map[rollout.Ref][]rollout.Action{}
	isOther := func(a rollout.Action) bool { return a.Rollout != d.Actions[0].Rollout }
	if len(d.Actions) > 0 && !slices.ContainsFunc(d.Actions, isOther) {
		actions[d.Actions[0].Rollout] = d.Actions
	} else {
		for _, a := range d.Actions {
			actions[a.Rollout] = append(actions[a.Rollout], a)
		}
	}
	for _, s := range d.From.Objects.Skyhooks {
		compiled := d.From.Skyhook(s)
		if compiled == nil || compiled.Removed {
			continue
		}
		if done := actions[compiled.Rollout.Ref]; len(done) > 0 {
			r.recordSkyhookEvents(d.From.Objects, s, compiled.Events(done, s.Status, s.Status))
		}
	}
	for _, op := range d.From.Objects.NodeOps {
		compiled := d.From.NodeOp(op)
		if compiled == nil || compiled.Removed {
			continue
		}
		if done := actions[compiled.Rollout.Ref]; len(done) > 0 {
			r.recordNodeOpEvents(d.From.Objects, op, opreport.Events(compiled, done, op.Status, op.Status))
		}
	}
}

// recordWaits emits an event for each new reason to wait.
func (r *reporter) recordWaits(o *cluster.Objects, owner runtime.Object, ro *rollout.Rollout, report rollout.Report) {
	for _, e := range r.waits.newEvents(ro, report, r.clock()) {
		about := owner
		if e.node != "" {
			n := o.Node(e.node)
			if n == nil {
				continue
			}
			about = nodeRef(n)
		}
		r.events.Event(about, e.eventType, e.reason, node.Truncate(e.text, 1000))
	}
}

// recordFailure emits a warning for what could not be carried out of a rollout in this pass.
func (p *passReport) recordFailure(owner runtime.Object, reason string, ref rollout.Ref) {
	if text := p.outcome.Errors[ref]; text != "" {
		p.events.Event(owner, corev1.EventTypeWarning, reason, node.Truncate(text, 500))
	}
}

// recordUntainted emits a warning on each node to which the runtime-required taint could not be added.
func (p *passReport) recordUntainted() {
	for _, name := range slices.Sorted(maps.Keys(p.outcome.Untainted)) {
		if n := p.objects.Node(name); n != nil {
			p.events.Event(nodeRef(n), corev1.EventTypeWarning, v1alpha1.EventAutoTaint,
				node.Truncate("the runtime-required taint cannot be added: "+p.outcome.Untainted[name], 500))
		}
	}
}

func (r *reporter) recordSkyhookEvents(o *cluster.Objects, s *v1alpha1.Skyhook, events []report.Event) {
	for _, e := range events {
		if n := o.Node(e.Node); n != nil {
			r.events.Event(nodeRef(n), e.Type, e.Reason, e.Message)
		}
		if e.OnSkyhook || e.Node == "" {
			r.events.Event(skyhookRef(s), e.Type, e.Reason, e.Message)
		}
	}
}

func (r *reporter) recordNodeOpEvents(o *cluster.Objects, op *opv1.NodeOp, events []opreport.Event) {
	for _, e := range events {
		if n := o.Node(e.Node); n != nil {
			r.events.Event(nodeRef(n), e.Type, e.Reason, e.Message)
		}
		r.events.Event(nodeOpRef(op), e.Type, e.Reason, e.Message)
	}
}

func nodeRef(n *node.Node) runtime.Object {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: types.UID(n.UID)}
}

func skyhookRef(s *v1alpha1.Skyhook) runtime.Object {
	return &corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: plan.Kind, Name: s.Name, UID: s.UID, ResourceVersion: s.ResourceVersion,
	}
}

func nodeOpRef(o *opv1.NodeOp) runtime.Object {
	return &corev1.ObjectReference{
		APIVersion: opv1.GroupVersion.String(), Kind: nodeop.Kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion,
	}
}

func policyRef(p *v1alpha1.DeploymentPolicy) runtime.Object {
	return &corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: policy.Kind, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion,
	}
}

// spamKey rate-limits the events of one object for each reason by itself, so that many of one kind do not hide another.
func spamKey(e *corev1.Event) string {
	return string(e.InvolvedObject.UID) + e.InvolvedObject.Kind + e.InvolvedObject.Name + e.Type + e.Reason
}
