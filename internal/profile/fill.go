// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package profile

import (
	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// FillSkyhook returns the spec of a Recommended Skyhook with its absent fields filled in. What its policy, which may be nil, says of a
// subject is not filled in beside it.
func FillSkyhook(spec v1alpha1.SkyhookSpec, p *v1alpha1.DeploymentPolicy) v1alpha1.SkyhookSpec {
	spec.Profile = v1alpha1.ProfileRecommended
	fill(&spec.ShareReboots, true)
	fill(&spec.Rollback, v1alpha1.Rollback{})
	fill(&spec.Drift, v1alpha1.Drift{Mode: v1alpha1.DriftReport})
	if b := &spec.InterruptionBudget; b.Percent != nil || b.Count != nil {
		fill(&b.CountUnavailable, true)
	}
	if p == nil || p.Spec.NodeMarks == nil {
		fill(&spec.NodeMarks, Marks)
	}
	if p == nil || p.Spec.Proof == nil {
		fill(&spec.Proof, Proof)
	}
	drain := v1alpha1.DrainConfig{}
	if spec.DrainConfig != nil {
		drain = *spec.DrainConfig
	}
	fillDrain(&drain.DrainPodOptions)
	spec.DrainConfig = &drain
	return spec
}

// DropNone removes what a spec says that is not to be done, which counts as absent once the profile has filled in what is absent.
func DropNone(spec *v1alpha1.SkyhookSpec) {
	if spec.Rollback != nil && spec.Rollback.Scope == v1alpha1.RollbackScopeNone {
		spec.Rollback = nil
	}
	if spec.Drift != nil && spec.Drift.Mode == v1alpha1.DriftNone {
		spec.Drift = nil
	}
}

// FillNodeOp is FillSkyhook for a NodeOp. What it does to nodes stays: only how carefully is filled in.
func FillNodeOp(spec opv1.NodeOpSpec) opv1.NodeOpSpec {
	spec.Profile = v1alpha1.ProfileRecommended
	fill(&spec.ShareReboots, true) // without a cordon and a reboot it says nothing
	if spec.Concurrency != nil && *spec.Concurrency > 0 {
		fill(&spec.CountUnavailable, true)
	}
	if spec.DrainOptions != nil {
		drain := *spec.DrainOptions
		fillDrain(&drain.DrainPodOptions)
		spec.DrainOptions = &drain
	}
	return spec
}

// FillPolicy returns the spec of a Recommended policy with its absent fields filled in.
func FillPolicy(spec v1alpha1.DeploymentPolicySpec) v1alpha1.DeploymentPolicySpec {
	spec.Profile = v1alpha1.ProfileRecommended
	fill(&spec.Default.Budget.CountUnavailable, true)
	spec.Compartments = append([]v1alpha1.Compartment(nil), spec.Compartments...)
	for i := range spec.Compartments {
		fill(&spec.Compartments[i].Budget.CountUnavailable, true)
	}
	fill(&spec.NodeMarks, Marks)
	fill(&spec.Proof, Proof)
	return spec
}

// Budget is that of an object without a policy and a budget.
var Budget = v1alpha1.Budget{Percent: new(10), CountUnavailable: new(true)}

// Proof is what must be true of a node before it is given back.
var Proof = v1alpha1.Proof{AsBefore: true}

// Marks are those of held nodes: load balancers send nothing there, and autoscalers do not remove the node.
var Marks = v1alpha1.NodeMarks{Marks: []v1alpha1.NodeMark{v1alpha1.MarkExcludeFromLoadBalancers, v1alpha1.MarkDisableScaleDown, v1alpha1.MarkDoNotDisrupt}}

// fillDrain has protected pods waited for while their node is schedulable, and pods of the lowest priority evicted first.
func fillDrain(d *v1alpha1.DrainPodOptions) {
	if d.Wait == "" {
		d.Wait = v1alpha1.WaitBeforeCordon
	}
	if d.Order == "" {
		d.Order = v1alpha1.DrainByPriority
	}
}

// fill sets a field that is absent.
func fill[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}
