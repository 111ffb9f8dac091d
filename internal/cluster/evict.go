// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/internal/cluster/drain"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// evictPod evicts the pod that was observed and no later one of its name. With Force it is deleted, which no disruption budget
// refuses. A refusal is remembered and is no error: the node waits, and says for what.
func (w podWriter) evictPod(ctx context.Context, a rollout.Action) error {
	uid := types.UID(a.Pod.UID)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: a.Pod.Namespace, Name: a.Pod.Name}}
	options := &client.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}, GracePeriodSeconds: w.gracePeriod(a)}
	var err error
	if a.Force {
		err = w.options.Client.Delete(ctx, pod, options)
	} else {
		err = w.options.Client.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{DeleteOptions: options.AsDeleteOptions()})
	}
	switch {
	case err == nil || isGone(err):
		w.refusals.AddAccepted(uid, w.now)
		return nil
	case isEvictionRefused(err):
		retryAfter, _ := apierrors.SuggestsClientDelay(err)
		refused := drain.Refusal{Why: describeRefusal(err), Denied: isRefused(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)}
		w.refusals.Add(uid, refused, time.Duration(retryAfter)*time.Second, w.now)
		return nil
	case isUnanswered(err): // the pod was asked, and may leave
		w.refusals.AddAccepted(uid, w.now)
	}
	return fmt.Errorf("evicting pod %s/%s: %w", a.Pod.Namespace, a.Pod.Name, err)
}

// fullSeconds rounds a grace period up; nil for none.
func fullSeconds(d *metav1.Duration) *int64 {
	if d == nil {
		return nil
	}
	return new(int64((d.Duration + time.Second - 1) / time.Second))
}

// gracePeriod is the grace period that replaces the pod's own, if any.
func (w podWriter) gracePeriod(a rollout.Action) *int64 {
	for _, s := range w.objects.Skyhooks {
		if plan.Ref(s.Name) == a.Rollout && s.Spec.DrainConfig != nil {
			return fullSeconds(s.Spec.DrainConfig.GracePeriod)
		}
	}
	if op := w.compiled.NodeOps[a.Rollout]; op != nil {
		return nodeop.GracePeriod(op.Operation.Spec().DrainOptions)
	}
	return nil
}

// isEvictionRefused distinguishes an answer about this pod from a failing API server. Too many requests means that a disruption
// budget allows no eviction now, an internal error that two budgets select the pod; a namespace that is being deleted takes
// its pods along; an admission policy may answer with any code of a refusal.
func isEvictionRefused(err error) bool {
	return apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err) || isRefused(err)
}

// isUnanswered reports whether a request was sent and nobody knows what became of it.
func isUnanswered(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err)
}

// describeRefusal is the text of the API server, with the name of the disruption budget where it gives one.
func describeRefusal(err error) string {
	text := err.Error()
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			if cause.Type == policyv1.DisruptionBudgetCause && cause.Message != "" {
				text = cause.Message
			}
		}
	}
	return node.Truncate(strings.TrimSuffix(strings.TrimSpace(text), "."), 200)
}
