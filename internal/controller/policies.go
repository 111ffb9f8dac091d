// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// sayPolicies writes who uses each policy, how far they are, and what the groups of a shared one learned: its next batch
// begins only when that is stored.
func (l *Loop) sayPolicies(ctx context.Context, o *cluster.Objects, plan rollout.Plan, heard map[types.UID]time.Time) (later time.Time, err error) {
	users := o.PolicyUsers(plan)
	var errs []error
	for _, p := range o.Policies {
		last := l.said[p.UID]
		if due := last.Add(sayEvery); due.After(l.clock()) {
			heard[p.UID] = last
			later = sooner(later, due)
			continue
		}
		status := policy.Status(p, users[p.Name], plan.Groups, l.clock())
		before := p.Status
		wrote, err := l.cluster.UpdatePolicyStatus(ctx, p, status)
		if err != nil {
			errs = append(errs, err)
		}
		if wrote {
			heard[p.UID] = l.clock()
			l.announcePolicy(p, before, status)
		}
	}
	return later, errors.Join(errs...)
}

// announcePolicy tells an event when a condition that asks for somebody's attention becomes true.
func (l *Loop) announcePolicy(p *v1alpha1.DeploymentPolicy, before, now v1alpha1.DeploymentPolicyStatus) {
	for _, kind := range []string{v1alpha1.ConditionRolloutStopped, v1alpha1.ConditionDeletionBlocked} {
		if c := meta.FindStatusCondition(now.Conditions, kind); c != nil && !meta.IsStatusConditionTrue(before.Conditions, kind) {
			l.events.Event(policyRef(p), corev1.EventTypeWarning, kind, bounded(c.Message, 500))
		}
	}
}

func policyRef(p *v1alpha1.DeploymentPolicy) runtime.Object {
	return &corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: policy.Kind, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion,
	}
}
