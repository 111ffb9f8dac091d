// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// sayOps brings the status and the events of each NodeOp and NodeOpUpgrade up to date.
func (l *Loop) sayOps(ctx context.Context, o *cluster.Objects, reports map[rollout.Ref]rollout.Report, groups []rollout.GroupReport, outcome cluster.Outcome, heard map[types.UID]time.Time) (later time.Time, err error) {
	var errs []error
	spoken := make(map[types.UID]opv1.NodeOpStatus, len(o.NodeOps))
	for _, op := range o.NodeOps {
		by := o.CompiledNodeOp(op)
		if by == nil || by.Removed {
			continue
		}
		name := by.Rollout.Ref
		status := by.Status(reports[name], groups)
		before, known := l.opsSpoken[op.UID]
		if !known {
			before = op.Status
		}
		spoken[op.UID] = status
		l.announceOp(o, op, by.Events(nil, before, status))
		l.tellWaits(o, opRef(op), &by.Rollout, reports[name])
		if text := outcome.Errors[name]; text != "" {
			l.events.Event(opRef(op), corev1.EventTypeWarning, "Error", bounded(text, 500))
		}
		last := l.said[op.UID]
		ended := status.Phase == opv1.PhaseCompleted || status.Phase == opv1.PhaseFailed
		if outcome.Incomplete[name] || ended && l.cluster.HasInFlight(o, name) { // it has ended when that has arrived, which wakes the loop
			heard[op.UID] = last
			continue
		}
		if due := last.Add(sayEvery); due.After(l.clock()) {
			heard[op.UID] = last
			later = sooner(later, due)
			continue
		}
		wrote, err := l.cluster.UpdateNodeOpStatus(ctx, op, status)
		if err != nil {
			errs = append(errs, err)
		}
		if wrote {
			heard[op.UID] = l.clock()
		}
	}
	l.opsSpoken = spoken
	for _, u := range o.Upgrades {
		if u.DeletionTimestamp != nil {
			continue
		}
		if due := l.said[u.UID].Add(sayEvery); due.After(l.clock()) {
			heard[u.UID] = l.said[u.UID]
			later = sooner(later, due)
			continue
		}
		var child *opv1.NodeOp
		for _, op := range o.NodeOps {
			if op.Namespace == u.Namespace && op.Name == u.Name {
				child = op
			}
		}
		wrote, err := l.cluster.UpdateUpgradeStatus(ctx, u, nodeop.UpgradeStatus(u, child, o.OpNodes(), l.clock()))
		if err != nil {
			errs = append(errs, err)
		}
		if wrote {
			heard[u.UID] = l.clock()
		}
	}
	return later, errors.Join(errs...)
}

// announceOp tells events on nodes and on the NodeOp.
func (l *Loop) announceOp(o *cluster.Objects, op *opv1.NodeOp, events []nodeop.Event) {
	for _, e := range events {
		if n := o.Node(e.Node); n != nil {
			l.events.Event(nodeRef(n), e.Type, e.Reason, e.Message)
		}
		l.events.Event(opRef(op), e.Type, e.Reason, e.Message)
	}
}

func opRef(o *opv1.NodeOp) runtime.Object {
	return &corev1.ObjectReference{APIVersion: opv1.GroupVersion.String(), Kind: nodeop.Kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion}
}
