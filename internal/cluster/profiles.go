// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster/handover"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/profile"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// chooseProfiles chooses the profile of each object. Of all it has copies, and of those that are Recommended their absent fields are filled
// in: they are compiled, and what was listed stays as it is.
func (o *Objects) chooseProfiles() {
	o.Handovers = map[rollout.Ref]handover.Asker{}
	o.Profiles, o.Defaults, o.Avoid = map[rollout.Ref]*profile.Chosen{}, map[rollout.Ref]rollout.Defaults{}, map[rollout.Ref]*v1alpha1.Avoid{}
	choose := func(spec v1alpha1.Profile, recorded *v1alpha1.ProfileStatus, hasStatus bool) *profile.Chosen {
		return &profile.Chosen{ProfileStatus: profile.Choose(spec, recorded, hasStatus, o.Config.Profile)}
	}
	o.Policies = fillCopies(o.Policies, func(p *v1alpha1.DeploymentPolicy) {
		chosen := choose(p.Spec.Profile, p.Status.Profile, p.Status.ObservedGeneration > 0 || len(p.Status.Conditions) > 0)
		if chosen.Name == v1alpha1.ProfileRecommended {
			p.Spec, chosen.Fills = profile.FillPolicy(p.Spec)
		}
		o.noteProfile(policy.Ref(p), chosen, nil)
	})
	o.Skyhooks = fillCopies(o.Skyhooks, func(s *v1alpha1.Skyhook) {
		chosen := choose(s.Spec.Profile, s.Status.Profile, s.Status.Status != "" || len(s.Status.Conditions) > 0)
		p, _ := o.policyOfSkyhook(s)
		if chosen.Name == v1alpha1.ProfileRecommended {
			s.Spec, chosen.Fills = profile.FillSkyhook(s.Spec, p, o.Config.PinImages != nil)
		}
		profile.DropNone(&s.Spec)
		o.noteProfile(plan.Ref(s.Name), chosen, p)
		o.noteHandover(plan.Ref(s.Name), "", p)
	})
	o.NodeOps = fillCopies(o.NodeOps, func(op *opv1.NodeOp) {
		chosen := choose(op.Spec.Profile, op.Status.Profile, op.Status.Phase != "" || len(op.Status.Conditions) > 0)
		if chosen.Name == v1alpha1.ProfileRecommended {
			op.Spec, chosen.Fills = profile.FillNodeOp(op.Spec)
		}
		p, _ := o.policyNamed(op.Spec.DeploymentPolicy)
		o.noteProfile(nodeop.Ref(op), chosen, p)
		o.noteHandover(nodeop.Ref(op), string(op.UID), p)
	})
}

// noteProfile notes the profile of an object, and what it decided. What that of its policy, which may be nil, decided is the object's, too.
func (o *Objects) noteProfile(ref rollout.Ref, chosen *profile.Chosen, p *v1alpha1.DeploymentPolicy) {
	by, ofPolicy := string(chosen.Name), rollout.Defaults(nil)
	if ref.Kind == policy.Kind {
		by += " of " + ref.Title()
	}
	switch {
	case p != nil && p.Spec.Avoid != nil:
		o.Avoid[ref] = p.Spec.Avoid
	case chosen.Fills.Has(profile.FieldAvoid):
		o.Avoid[ref] = &profile.Avoid
	}
	if p != nil {
		ofPolicy = o.Defaults[policy.Ref(p)]
	}
	o.Profiles[ref], o.Defaults[ref] = chosen, chosen.Fills.Defaults(by, ofPolicy)
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
	if chosen := o.Profiles[ref]; chosen != nil {
		return &chosen.ProfileStatus
	}
	return nil
}
