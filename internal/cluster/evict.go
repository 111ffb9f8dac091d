// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

// evict asks a pod to leave, the one that was observed and no later one of its name; by force it is deleted, which no
// disruption budget refuses. A refusal is remembered and is no error: the node waits, and says for what.
func (r *round) evict(ctx context.Context, a rollout.Action) error {
	uid := types.UID(a.Pod.UID)
	only := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}, GracePeriodSeconds: r.grace(a)}
	pods := r.options.Core.Pods(a.Pod.Namespace)
	var err error
	if a.Force {
		err = pods.Delete(ctx, a.Pod.Name, only)
	} else {
		err = pods.EvictV1(ctx, &policyv1.Eviction{
			ObjectMeta: metav1.ObjectMeta{Namespace: a.Pod.Namespace, Name: a.Pod.Name}, DeleteOptions: &only,
		})
	}
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err): // it goes, or is gone
		r.refusals.AddAccepted(uid, r.now)
		return nil
	case refused(err):
		r.refusals.Add(uid, refusal(err), asked(err), r.now)
		return nil
	}
	return fmt.Errorf("evicting pod %s/%s: %w", a.Pod.Namespace, a.Pod.Name, err)
}

// grace is the grace period that replaces the pod's own, if any.
func (r *round) grace(a rollout.Action) *int64 {
	for _, s := range r.o.Skyhooks {
		if skyhook.Ref(s.Name) == a.Rollout && s.Spec.Drain != nil {
			return s.Spec.Drain.GracePeriodSeconds
		}
	}
	if op := r.o.ops[a.Rollout]; op != nil {
		return op.Grace()
	}
	return nil
}

// refused tells an answer about this pod from an API server in trouble. Too many requests is a disruption budget that
// allows none now, and an internal error two budgets on one pod; a namespace that goes takes its pods along.
func refused(err error) bool {
	return apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err) || apierrors.IsForbidden(err)
}

// refusal is what the API server said, with the name of the disruption budget where it gives one.
func refusal(err error) string {
	text := err.Error()
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			if cause.Type == policyv1.DisruptionBudgetCause && cause.Message != "" {
				text = cause.Message
			}
		}
	}
	text = strings.TrimSuffix(strings.TrimSpace(text), ".")
	if len(text) > 200 {
		text = strings.ToValidUTF8(text[:200], "")
	}
	return text
}

// asked is how long the API server asks to wait.
func asked(err error) time.Duration {
	seconds, _ := apierrors.SuggestsClientDelay(err)
	return time.Duration(seconds) * time.Second
}
