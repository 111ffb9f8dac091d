// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/profile"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// chooseProfiles chooses the profile of each object. Of those that are Recommended it has copies with their absent fields filled in: they
// are compiled, and what was listed stays as it is.
func (o *Objects) chooseProfiles() {
	o.Profiles = make(map[rollout.Ref]v1alpha1.ProfileStatus, len(o.Skyhooks)+len(o.NodeOps)+len(o.Policies))
	isRecommended := func(ref rollout.Ref, spec v1alpha1.Profile, recorded *v1alpha1.ProfileStatus, hasStatus bool) bool {
		o.Profiles[ref] = profile.Choose(spec, recorded, hasStatus, o.Config.Profile)
		return o.Profiles[ref].Name == v1alpha1.ProfileRecommended
	}
	o.Policies = fillCopies(o.Policies, func(p *v1alpha1.DeploymentPolicy) {
		if isRecommended(policy.Ref(p), p.Spec.Profile, p.Status.Profile, p.Status.ObservedGeneration > 0 || len(p.Status.Conditions) > 0) {
			p.Spec = profile.FillPolicy(p.Spec)
		}
	})
	o.Skyhooks = fillCopies(o.Skyhooks, func(s *v1alpha1.Skyhook) {
		if isRecommended(plan.Ref(s.Name), s.Spec.Profile, s.Status.Profile, s.Status.Status != "" || len(s.Status.Conditions) > 0) {
			p, _ := o.policyOfSkyhook(s)
			s.Spec = profile.FillSkyhook(s.Spec, p)
		}
		profile.DropNone(&s.Spec)
	})
	o.NodeOps = fillCopies(o.NodeOps, func(op *opv1.NodeOp) {
		if isRecommended(nodeop.Ref(op), op.Spec.Profile, op.Status.Profile, op.Status.Phase != "" || len(op.Status.Conditions) > 0) {
			op.Spec = profile.FillNodeOp(op.Spec)
		}
	})
}

// fillCopies returns shallow copies of objects that were changed.
func fillCopies[T any](listed []*T, fill func(*T)) []*T {
	out := make([]*T, len(listed))
	for i, o := range listed {
		out[i] = new(*o)
		fill(out[i])
	}
	return out
}

// ProfileOf is the profile of an object as its status has it.
func (o *Objects) ProfileOf(ref rollout.Ref) *v1alpha1.ProfileStatus {
	chosen, isKnown := o.Profiles[ref]
	if !isKnown {
		return nil
	}
	return &chosen
}
