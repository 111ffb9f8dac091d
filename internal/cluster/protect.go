// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

// PolicyUsers are the objects that go by each policy, by its name, in the order in which they were compiled.
func (o *Objects) PolicyUsers(plan rollout.Plan) map[string][]policy.User {
	verdicts := make(map[rollout.Ref][]rollout.Verdict, len(plan.Reports))
	for _, r := range plan.Reports {
		verdicts[r.Rollout] = r.Verdicts
	}
	out := map[string][]policy.User{}
	for _, s := range o.Skyhooks {
		if name, _ := skyhook.PolicyName(s, o.Config); name != "" {
			user := skyhook.Ref(s.Name)
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

// protect keeps policies that are in use from being deleted, and lets go of the others.
func (r *round) protect(ctx context.Context, plan rollout.Plan) {
	users := r.o.PolicyUsers(plan)
	for _, p := range r.o.Policies {
		held, used := slices.Contains(p.Finalizers, v1alpha1.FinalizerDeploymentPolicy), len(users[p.Name]) > 0
		if held == used || used && p.DeletionTimestamp != nil {
			continue
		}
		if err := r.guard(ctx, p, used); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			r.fail(policy.Ref(p), fmt.Errorf("changing the finalizer: %w", err))
		}
	}
}

// guard puts our finalizer on a policy, or takes it away.
func (r *round) guard(ctx context.Context, p *v1alpha1.DeploymentPolicy, on bool) error {
	p = r.writes.Policies.Latest(p)
	changed := p.DeepCopy()
	changed.Finalizers = slices.DeleteFunc(changed.Finalizers, func(f string) bool { return f == v1alpha1.FinalizerDeploymentPolicy })
	if on {
		changed.Finalizers = append(changed.Finalizers, v1alpha1.FinalizerDeploymentPolicy)
	}
	if err := r.patch(ctx, p, changed); err != nil {
		return err
	}
	if p.DeletionTimestamp != nil && len(changed.Finalizers) == 0 {
		r.writes.Policies.Remove(p)
	}
	return nil
}
