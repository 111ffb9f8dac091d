// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// PolicyUsers are the objects that go by each policy, by its name, in the order in which they were compiled.
func (o *Objects) PolicyUsers(decided rollout.Plan) map[string][]policy.User {
	verdicts := make(map[rollout.Ref][]rollout.Verdict, len(decided.Reports))
	for _, r := range decided.Reports {
		verdicts[r.Rollout] = r.Verdicts
	}
	out := map[string][]policy.User{}
	for _, s := range o.Skyhooks {
		if name, _ := plan.PolicyName(s, o.Config); name != "" {
			user := plan.Ref(s.Name)
			out[name] = append(out[name], policy.User{Ref: user, Verdicts: verdicts[user]})
		}
	}
	for _, op := range o.NodeOps {
		if name := op.Spec.DeploymentPolicy; name != "" {
			user := nodeop.Ref(op)
			out[name] = append(out[name], policy.User{Ref: user, Verdicts: verdicts[user]})
		}
	}
	return out
}

// protectPolicies puts our finalizer on policies that are in use, so that they cannot be deleted, and removes it from others.
// A policy whose admissions may be on the way to nodes is in use: its status is where they are written.
func (p *pass) protectPolicies(ctx context.Context, plan rollout.Plan) {
	users := p.objects.PolicyUsers(plan)
	for _, d := range p.objects.Policies {
		isUsed := len(users[d.Name]) > 0 || p.awaitAdmissions(d)
		if isUsed && d.DeletionTimestamp != nil {
			continue
		}
		_, err := p.try(request{rollout: policy.Ref(d), object: "finalizer"}, func() error { return p.setPolicyFinalizer(ctx, d, isUsed) })
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			p.inFlight.recordError(policy.Ref(d), fmt.Errorf("changing the finalizer: %w", err))
		}
	}
}

// awaitAdmissions asks for a pass when admissions in the status of a policy have reached their nodes or expired, and reports whether there
// are such admissions. One from further in the future was written by a wrong clock: nothing says how old it is, and its writer does not
// lead any more.
func (p *pass) awaitAdmissions(d *v1alpha1.DeploymentPolicy) bool {
	isRecent := false
	for _, r := range policy.ReadLedger(policy.Ref(d), d.Status.Internal.Admission).Admitting {
		isFuture := r.Since.After(p.now.Add(rollout.ReservationTerm))
		if expires := r.Since.Add(rollout.ReservationTerm); !isFuture && p.now.Before(expires) {
			isRecent = true
			p.inFlight.retry(expires)
		}
	}
	return isRecent
}

func (p *pass) setPolicyFinalizer(ctx context.Context, d *v1alpha1.DeploymentPolicy, isUsed bool) error {
	if isUsed == controllerutil.ContainsFinalizer(d, v1alpha1.FinalizerDeploymentPolicy) {
		return nil
	}
	d = p.writes.Policies.Latest(d)
	changed := d.DeepCopy()
	if isUsed {
		controllerutil.AddFinalizer(changed, v1alpha1.FinalizerDeploymentPolicy)
	} else {
		controllerutil.RemoveFinalizer(changed, v1alpha1.FinalizerDeploymentPolicy)
	}
	if err := p.patchOwner(ctx, d, changed); err != nil {
		return err
	}
	if d.DeletionTimestamp != nil && len(changed.Finalizers) == 0 {
		p.writes.Policies.Remove(d)
	}
	return nil
}
