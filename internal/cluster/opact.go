// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster/writecache"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

// op is the NodeOp of a rollout, or what speaks for one that is gone; nil for anything else.
func (r *round) op(name rollout.Ref) *nodeop.Compiled {
	if c := r.o.ops[name]; c != nil || !r.o.Orphans[name] || name.Kind != nodeop.Kind {
		return c
	}
	return nodeop.Ghost(name, nodeop.Input{Nodes: r.o.opNodes, Config: r.o.opConfig, Now: r.now})
}

// changeOp is what an action of a NodeOp changes on its node.
func (r *round) changeOp(op *nodeop.Compiled, a rollout.Action, n *skyhook.Node) (skyhook.Edit, error) {
	e, err := op.Change(a, r.o.look(n), r.o.allHolds(n))
	if err != nil {
		return skyhook.Edit{}, err
	}
	out := fromOp(e)
	if a.Verb == rollout.VerbHold && !n.Unschedulable { // nobody's cordon is older than ours now
		after := n.With(out)
		out = out.Plus(skyhook.ClearFound(after)).Plus(fromOp(nodeop.ClearFound(r.o.look(after))))
	}
	return out, nil
}

// runOp creates a task's pods and its Job, in this order. What exists already and is ours is success.
func (r *round) runOp(ctx context.Context, op *nodeop.Compiled, a rollout.Action, n *skyhook.Node) error {
	objects, err := op.Objects(a.Task, r.o.look(n))
	if err != nil {
		return err
	}
	for _, p := range objects.Pods {
		if err := r.make(ctx, op, p, &corev1.Pod{}); err != nil {
			return err
		}
		r.writes.OpPods.PutCreated(StripOpPod(p))
	}
	if j := objects.Job; j != nil {
		if err := r.make(ctx, op, j, objects.Job.DeepCopy()); err != nil {
			return err
		}
		r.writes.Jobs.PutCreated(StripJob(j))
	}
	return nil
}

// make creates an object, or takes the one of that name when it is the same NodeOp's; then o becomes what is there.
func (r *round) make(ctx context.Context, op *nodeop.Compiled, o, into client.Object) error {
	kind := o.GetObjectKind().GroupVersionKind().Kind
	err := r.options.Client.Create(ctx, o)
	if !apierrors.IsAlreadyExists(err) {
		if err != nil {
			return fmt.Errorf("creating %s %s: %w", kind, o.GetName(), err)
		}
		return nil
	}
	if err := r.options.Live.Get(ctx, client.ObjectKeyFromObject(o), into); err != nil {
		return fmt.Errorf("reading %s %s, which exists already: %w", kind, o.GetName(), err)
	}
	owner := metav1.GetControllerOf(into)
	if owner == nil || string(owner.UID) != op.Rollout.UID {
		return fmt.Errorf("%s %s/%s exists and belongs to somebody else: delete it", kind, o.GetNamespace(), o.GetName())
	}
	if into.GetDeletionTimestamp() != nil {
		return apierrors.NewConflict(corev1.Resource(kind), o.GetName(), fmt.Errorf("an earlier one of this name has not gone yet"))
	}
	o.SetUID(into.GetUID())
	o.SetResourceVersion(into.GetResourceVersion())
	o.SetCreationTimestamp(into.GetCreationTimestamp())
	return nil
}

// sweepOp deletes a Job or pod of a NodeOp, unless it is kept for its logs.
func (r *round) sweepOp(ctx context.Context, op *nodeop.Compiled, a rollout.Action) error {
	if op.Keeps(a.Object) {
		return nil
	}
	name, job := nodeop.CutObject(a.Object)
	for _, j := range r.o.Jobs {
		if job && j.Name == name && j.DeletionTimestamp == nil && by(j, op.Rollout.UID) {
			return r.deleteJob(ctx, j)
		}
	}
	for _, p := range r.o.OpPods {
		if !job && p.Name == name && p.DeletionTimestamp == nil && by(p, op.Rollout.UID) {
			return r.deleteOpPod(ctx, p)
		}
	}
	return nil
}

// deleteJob deletes a Job, and its pods with it.
func (r *round) deleteJob(ctx context.Context, j *batchv1.Job) error {
	background := metav1.DeletePropagationBackground
	err := r.options.Client.Delete(ctx, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: j.Namespace, Name: j.Name}},
		&client.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &j.UID}, PropagationPolicy: &background})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting job %s: %w", j.Name, err)
	}
	writecache.PutDeleting(r.writes.Jobs, j)
	return nil
}

func by(m metav1.Object, uid string) bool {
	owner := metav1.GetControllerOf(m)
	return owner != nil && string(owner.UID) == uid
}

func (r *round) deleteOpPod(ctx context.Context, p *corev1.Pod) error {
	if err := r.deletePod(ctx, p); err != nil {
		return err
	}
	writecache.PutDeleting(r.writes.OpPods, p)
	return nil
}

// prepareOps makes the NodeOps of upgrades, and gives each NodeOp our finalizer before anything of it is on a node.
func (r *round) prepareOps(ctx context.Context) {
	for _, u := range r.o.Upgrades {
		exists := slices.ContainsFunc(r.o.NodeOps, func(o *opv1.NodeOp) bool { return o.Namespace == u.Namespace && o.Name == u.Name })
		if exists || u.DeletionTimestamp != nil || u.Status.NodeOpName != "" || nodeop.UpgradeFinal(u) {
			continue
		}
		child := nodeop.Child(u)
		err := r.options.Client.Create(ctx, child)
		switch {
		case err == nil:
			r.writes.NodeOps.PutCreated(child)
		case !apierrors.IsAlreadyExists(err):
			r.fail(rollout.Ref{Kind: nodeop.UpgradeKind, Namespace: u.Namespace, Name: u.Name}, fmt.Errorf("creating its NodeOp: %w", err))
			continue
		}
		r.later(r.now)
	}
	for _, o := range r.o.NodeOps {
		c := r.o.ops[nodeop.Ref(o)]
		if c == nil || c.Removed || c.Final() || o.DeletionTimestamp != nil || slices.Contains(o.Finalizers, opv1.FinalizerNodeOp) {
			continue
		}
		changed := o.DeepCopy()
		changed.Finalizers = append(slices.DeleteFunc(changed.Finalizers, func(f string) bool { return f == opv1.FinalizerReboot }), opv1.FinalizerNodeOp)
		if err := r.patch(ctx, o, changed); err != nil {
			r.stuck[c.Rollout.Ref] = true
			if apierrors.IsConflict(err) {
				r.later(r.now)
			} else {
				r.fail(c.Rollout.Ref, fmt.Errorf("putting the finalizer on it: %w", err))
			}
		}
	}
}

// tidyOps deletes the Jobs and pods of NodeOps that finished long enough ago, and takes our finalizer from those of which
// nothing is left on any node.
func (r *round) tidyOps(ctx context.Context) {
	for _, o := range r.o.NodeOps {
		c := r.o.ops[nodeop.Ref(o)]
		if c == nil || r.o.sends(c.Rollout.Ref) {
			continue
		}
		if expired, at := c.Expired(); expired {
			if err := r.expire(ctx, o); err != nil {
				r.fail(c.Rollout.Ref, err)
			}
		} else if !at.IsZero() {
			r.later(at.Time)
		}
		idle := c.Removed || c.Final() && len(c.Rollout.Targets) == 0 && len(c.Adopt) == 0
		ours := func(f string) bool { return f == opv1.FinalizerNodeOp || f == opv1.FinalizerReboot }
		if !idle || r.stuck[c.Rollout.Ref] || !slices.ContainsFunc(o.Finalizers, ours) {
			continue
		}
		o = r.writes.NodeOps.Latest(o)
		changed := o.DeepCopy()
		changed.Finalizers = slices.DeleteFunc(changed.Finalizers, ours)
		if err := r.patch(ctx, o, changed); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			r.fail(c.Rollout.Ref, fmt.Errorf("taking the finalizer away: %w", err))
		} else if err == nil && o.DeletionTimestamp != nil && len(changed.Finalizers) == 0 {
			r.writes.NodeOps.Remove(o)
		}
	}
}

// expire deletes what a finished NodeOp left.
func (r *round) expire(ctx context.Context, o *opv1.NodeOp) error {
	for _, j := range r.o.Jobs {
		if by(j, string(o.UID)) && j.DeletionTimestamp == nil {
			if err := r.deleteJob(ctx, j); err != nil {
				return err
			}
		}
	}
	for _, p := range r.o.OpPods {
		if by(p, string(o.UID)) && p.DeletionTimestamp == nil {
			if err := r.deleteOpPod(ctx, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// TellOp writes the status of a NodeOp when it differs from what is there. The ledger is kept.
func (c *Cluster) TellOp(ctx context.Context, o *opv1.NodeOp, status opv1.NodeOpStatus) (wrote bool, err error) {
	latest := c.writes.NodeOps.Latest(o)
	status.Admission = latest.Status.Admission
	changed := latest.DeepCopy()
	status.DeepCopyInto(&changed.Status)
	return c.tell(ctx, latest, changed, latest.Status, status)
}

// TellUpgrade writes the status of a NodeOpUpgrade when it differs from what is there.
func (c *Cluster) TellUpgrade(ctx context.Context, u *opv1.NodeOpUpgrade, status opv1.NodeOpUpgradeStatus) (wrote bool, err error) {
	u = c.writes.Upgrades.Latest(u)
	changed := u.DeepCopy()
	status.DeepCopyInto(&changed.Status)
	return c.tell(ctx, u, changed, u.Status, status)
}
