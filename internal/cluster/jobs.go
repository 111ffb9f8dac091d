// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/internal/cluster/writecache"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	oprender "github.com/skyhook-k8s/skyhook/internal/nodeop/render"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// runOpTask creates a NodeOp task's pods and its Job, in this order. What exists already and is ours is success.
func (w podWriter) runOpTask(ctx context.Context, op *nodeop.Compiled, a rollout.Action, n *node.Node) error {
	objects, err := oprender.TaskObjects(op.Operation, w.objects.opConfig, a.Task, n)
	if err != nil {
		return err
	}
	for _, p := range objects.Pods {
		if err := w.createOrAccept(ctx, op, p, &corev1.Pod{}); err != nil {
			return err
		}
		w.writes.OpPods.PutCreated(StripNodeOpPod(p))
	}
	if j := objects.Job; j != nil {
		if err := w.createOrAccept(ctx, op, j, j.DeepCopy()); err != nil {
			return err
		}
		w.writes.Jobs.PutCreated(StripJob(j))
	}
	return nil
}

// createOrAccept creates an object, or accepts an existing one of that name if it belongs to the same NodeOp.
func (w podWriter) createOrAccept(ctx context.Context, op *nodeop.Compiled, o, existing client.Object) error {
	kind := o.GetObjectKind().GroupVersionKind().Kind
	err := w.options.Client.Create(ctx, o)
	if err == nil {
		return nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating %s %s: %w", kind, o.GetName(), err)
	}
	if err := w.options.Live.Get(ctx, client.ObjectKeyFromObject(o), existing); err != nil {
		return fmt.Errorf("reading %s %s, which exists already: %w", kind, o.GetName(), err)
	}
	if !isControlledBy(existing, op.Rollout.UID) {
		return fmt.Errorf("%s %s/%s exists, and %w: delete it", kind, o.GetNamespace(), o.GetName(), errForeign)
	}
	if existing.GetDeletionTimestamp() != nil {
		return apierrors.NewConflict(corev1.Resource(kind), o.GetName(), fmt.Errorf("an earlier one of this name has not gone yet"))
	}
	o.SetUID(existing.GetUID())
	o.SetResourceVersion(existing.GetResourceVersion())
	o.SetCreationTimestamp(existing.GetCreationTimestamp())
	return nil
}

// limitAttempts lowers the backoffLimit of Jobs. A Job that has changed since it was observed is left to the next pass: with
// a failure that was not observed, the lower limit would end a running attempt.
func (w nodeOpOwners) limitAttempts(ctx context.Context, op *nodeop.Compiled) error {
	for _, limit := range op.Limits {
		j := limit.Job
		patch := fmt.Sprintf(`{"metadata":{"resourceVersion":%q,"uid":%q},"spec":{"backoffLimit":%d}}`, j.ResourceVersion, j.UID, limit.BackoffLimit)
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: j.Namespace, Name: j.Name}}
		err := w.options.Client.Patch(ctx, job, client.RawPatch(types.MergePatchType, []byte(patch)))
		switch {
		case err == nil, apierrors.IsNotFound(err):
		case apierrors.IsConflict(err) && w.inFlight.retryConflict(failureKey{rollout: op.Rollout.Ref}, w.now):
		default:
			return fmt.Errorf("limiting the attempts of job %s: %w", j.Name, err)
		}
	}
	return nil
}

// deleteOpObject deletes a Job or pod of a NodeOp, unless it is kept for its logs.
func (w podWriter) deleteOpObject(ctx context.Context, op *nodeop.Compiled, a rollout.Action) (isDeleted bool, err error) {
	name, isJob := nodeop.SplitObjectName(a.Object)
	return w.deleteOpObjects(ctx, op.Rollout.UID, func(o client.Object) bool {
		isKept := false
		j, isOfKind := o.(*batchv1.Job)
		if isOfKind {
			isKept = nodeop.IsJobKept(j)
		} else if p, isPod := o.(*corev1.Pod); isPod {
			isKept = nodeop.IsPodKept(p)
		}
		return isOfKind == isJob && o.GetName() == name && !isKept
	})
}

// deleteOpObjects deletes the matching Jobs and pods of a NodeOp. It reports whether there were any.
func (p *pass) deleteOpObjects(ctx context.Context, uid string, matches func(client.Object) bool) (isDeleted bool, err error) {
	for _, j := range p.objects.Jobs {
		if j.DeletionTimestamp == nil && isControlledBy(j, uid) && matches(j) {
			if err := p.deleteJob(ctx, j); err != nil {
				return isDeleted, err
			}
			isDeleted = true
		}
	}
	for _, pod := range p.objects.NodeOpPods {
		if pod.DeletionTimestamp == nil && isControlledBy(pod, uid) && matches(pod) {
			if err := p.deleteOpPod(ctx, pod); err != nil {
				return isDeleted, err
			}
			isDeleted = true
		}
	}
	return isDeleted, nil
}

// deleteJob deletes a Job, and its pods with it.
func (a apiWriter) deleteJob(ctx context.Context, j *batchv1.Job) error {
	err := a.options.Client.Delete(ctx, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: j.Namespace, Name: j.Name}},
		client.Preconditions{UID: &j.UID}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if err != nil && !isGone(err) {
		return fmt.Errorf("deleting job %s: %w", j.Name, err)
	}
	writecache.PutDeleting(a.writes.Jobs, j)
	return nil
}

func (a apiWriter) deleteOpPod(ctx context.Context, p *corev1.Pod) error {
	if err := a.deletePod(ctx, p); err != nil {
		return err
	}
	writecache.PutDeleting(a.writes.OpPods, p)
	return nil
}
