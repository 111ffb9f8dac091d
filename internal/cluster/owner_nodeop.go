// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/nodeop/upgrade"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// nodeOpOwners maintains the NodeOps and upgrades themselves: their finalizers, child NodeOps and expired objects.
type nodeOpOwners struct{ *pass }

func isOurFinalizer(f string) bool { return f == opv1.FinalizerNodeOp || f == opv1.FinalizerReboot }

// prepareAll creates the NodeOps of upgrades, and gives each NodeOp our finalizer before anything of it is on a node.
func (w nodeOpOwners) prepareAll(ctx context.Context) {
	for _, u := range w.objects.Upgrades {
		w.createChild(ctx, u)
	}
	for _, o := range w.objects.NodeOps {
		name := nodeop.Ref(o)
		c := w.compiled.NodeOps[name]
		if c == nil || c.Removed || c.Operation.IsFinished() || o.DeletionTimestamp != nil || controllerutil.ContainsFinalizer(o, opv1.FinalizerNodeOp) {
			continue
		}
		changed := o.DeepCopy()
		controllerutil.RemoveFinalizer(changed, opv1.FinalizerReboot)
		controllerutil.AddFinalizer(changed, opv1.FinalizerNodeOp)
		w.makeReady(name, o, func() error {
			if err := w.patchOwner(ctx, o, changed); err != nil {
				return fmt.Errorf("putting the finalizer on it: %w", err)
			}
			return nil
		})
	}
}

// createChild creates the NodeOp of an upgrade, unless it exists or is not wanted any more.
func (w nodeOpOwners) createChild(ctx context.Context, u *opv1.NodeOpUpgrade) {
	exists := slices.ContainsFunc(w.objects.NodeOps, func(o *opv1.NodeOp) bool { return o.Namespace == u.Namespace && o.Name == u.Name })
	if exists || u.DeletionTimestamp != nil || u.Status.NodeOpName != "" || upgrade.IsFinished(u) {
		return
	}
	name := rollout.Ref{Kind: nodeop.UpgradeKind, Namespace: u.Namespace, Name: u.Name}
	done, err := w.try(request{rollout: name, generation: u.Generation, object: "NodeOp"}, func() error {
		child := upgrade.NewNodeOp(u)
		err := w.options.Client.Create(ctx, child)
		if err == nil {
			w.writes.NodeOps.PutCreated(child)
		}
		return err
	})
	switch {
	case done, apierrors.IsAlreadyExists(err):
		w.inFlight.retry(w.now)
	case err != nil:
		w.inFlight.recordError(name, fmt.Errorf("creating its NodeOp: %w", err))
	}
}

// cleanUpAll deletes the Jobs and pods of NodeOps that finished long enough ago, and removes our finalizer from those of
// which nothing is left on any node.
func (w nodeOpOwners) cleanUpAll(ctx context.Context) {
	for _, o := range w.objects.NodeOps {
		name := nodeop.Ref(o)
		c := w.compiled.NodeOps[name]
		if c == nil {
			continue
		}
		w.tryCleanUp(name, "backoffLimit", func() error { return w.limitAttempts(ctx, c) })
		if w.objects.hasInFlight(name) {
			continue
		}
		expired, at := c.Operation.IsExpired(c.Now)
		if expired {
			w.tryCleanUp(name, "objects", func() error {
				_, err := w.deleteOpObjects(ctx, string(o.UID), func(client.Object) bool { return true })
				return err
			})
		} else if !at.IsZero() {
			w.inFlight.retry(at.Time)
		}
		isOver := c.Removed || c.Operation.IsFinished() && len(c.Rollout.Targets) == 0 && len(c.Edits) == 0
		if isOver && !w.notReady[name] && slices.ContainsFunc(o.Finalizers, isOurFinalizer) {
			w.tryCleanUp(name, "finalizer", func() error { return w.removeFinalizers(ctx, o) })
		} else if isOver && expired && c.Operation.RemoveWithTTL {
			w.tryCleanUp(name, "NodeOp", func() error { return w.deleteExpired(ctx, o) })
		}
	}
}

// deleteExpired deletes a NodeOp of which nothing is left on any node, as it was when that was decided.
func (w nodeOpOwners) deleteExpired(ctx context.Context, o *opv1.NodeOp) error {
	latest := w.writes.NodeOps.Latest(o)
	uid, version := latest.UID, latest.ResourceVersion
	err := w.options.Client.Delete(ctx, latest, client.Preconditions{UID: &uid, ResourceVersion: &version}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // the next pass decides again
		return nil
	}
	if err != nil {
		return fmt.Errorf("deleting it after ttlSecondsAfterFinished: %w", err)
	}
	return nil
}

// tryCleanUp removes something of a NodeOp, unless that was refused a moment ago.
func (w nodeOpOwners) tryCleanUp(name rollout.Ref, object string, remove func() error) {
	if _, err := w.try(request{rollout: name, object: object}, remove); err != nil {
		w.inFlight.recordError(name, err)
	}
}

func (w nodeOpOwners) removeFinalizers(ctx context.Context, o *opv1.NodeOp) error {
	o = w.writes.NodeOps.Latest(o)
	changed := o.DeepCopy()
	changed.Finalizers = slices.DeleteFunc(changed.Finalizers, isOurFinalizer)
	err := w.patchOwner(ctx, o, changed)
	if err == nil && o.DeletionTimestamp != nil && len(changed.Finalizers) == 0 {
		w.writes.NodeOps.Remove(o)
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // the next pass decides again
		return nil
	}
	if err != nil {
		return fmt.Errorf("taking the finalizer away: %w", err)
	}
	return nil
}
