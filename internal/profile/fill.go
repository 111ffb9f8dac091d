// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// FillSkyhook returns the spec of a Recommended Skyhook with its absent fields filled in, and their names. What its policy, which may be
// nil, says of a subject is not filled in beside it; nor are pins, if the operator has a setting of its own for them.
func FillSkyhook(spec v1alpha1.SkyhookSpec, p *v1alpha1.DeploymentPolicy, hasPins bool) (v1alpha1.SkyhookSpec, Fields) {
	var names Fields
	spec.Profile = v1alpha1.ProfileRecommended
	hasBudget := spec.InterruptionBudget.Percent != nil || spec.InterruptionBudget.Count != nil
	switch {
	case hasBudget:
		fill(&names, "interruptionBudget.countUnavailable", &spec.InterruptionBudget.CountUnavailable, true)
	case p == nil && spec.DeploymentPolicy == "":
		names = append(names, fieldBudget) // see Budget
	}
	drain := v1alpha1.DrainConfig{}
	if spec.DrainConfig != nil {
		drain = *spec.DrainConfig
	}
	fillDrain(&names, "drainConfig", &drain.DrainPodOptions)
	spec.DrainConfig = &drain
	if p == nil || p.Spec.NodeMarks == nil {
		fill(&names, fieldMarks, &spec.NodeMarks, Marks)
	}
	if p == nil || p.Spec.Avoid == nil {
		names = append(names, FieldAvoid) // see Avoid
	}
	fill(&names, fieldReboots, &spec.ShareReboots, true)
	if spec.Preflight == "" {
		spec.Preflight = v1alpha1.PreflightAsk
		names = append(names, fieldPreflight)
	}
	if p == nil || p.Spec.Proof == nil {
		fill(&names, fieldProof, &spec.Proof, Proof)
	}
	fill(&names, fieldRollback, &spec.Rollback, v1alpha1.Rollback{})
	fill(&names, "drift", &spec.Drift, v1alpha1.Drift{Mode: v1alpha1.DriftReport})
	if !hasPins {
		names = append(names, fieldPins) // see plan.Facts.PinsImages
	}
	return spec, names
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

// FillNodeOp is FillSkyhook for a NodeOp. What it does to nodes stays: only how carefully is filled in. Marks and a proof it has by its
// policy, or else by the profile.
func FillNodeOp(spec opv1.NodeOpSpec) (opv1.NodeOpSpec, Fields) {
	var names Fields
	spec.Profile = v1alpha1.ProfileRecommended
	hasPolicy := spec.DeploymentPolicy != ""
	switch {
	case ptr.Deref(spec.Concurrency, 0) > 0:
		fill(&names, "countUnavailable", &spec.CountUnavailable, true)
	case spec.Concurrency == nil && !hasPolicy:
		names = append(names, fieldConcurrency) // see Budget
	}
	if spec.DrainOptions != nil {
		drain := *spec.DrainOptions
		fillDrain(&names, "drainOptions", &drain.DrainPodOptions)
		spec.DrainOptions = &drain
	}
	if !hasPolicy {
		names = append(names, fieldMarks, fieldProof, FieldAvoid)
	}
	if ptr.Deref(spec.Cordon, false) && ptr.Deref(spec.RebootOnSuccess, false) {
		fill(&names, fieldReboots, &spec.ShareReboots, true)
	}
	return spec, names
}

// FillPolicy returns the spec of a Recommended policy with its absent fields filled in, and their names.
func FillPolicy(spec v1alpha1.DeploymentPolicySpec) (v1alpha1.DeploymentPolicySpec, Fields) {
	names := Fields{fieldThreshold} // where a compartment leaves it out: see rollout.Pace
	spec.Profile = v1alpha1.ProfileRecommended
	fill(&names, fieldUnavailable, &spec.Default.Budget.CountUnavailable, true)
	spec.Compartments = append([]v1alpha1.Compartment(nil), spec.Compartments...)
	for i := range spec.Compartments {
		fill(&names, fieldUnavailable, &spec.Compartments[i].Budget.CountUnavailable, true)
	}
	fill(&names, fieldMarks, &spec.NodeMarks, Marks)
	fill(&names, fieldProof, &spec.Proof, Proof)
	fill(&names, FieldAvoid, &spec.Avoid, Avoid)
	return spec, names
}

// Budget is that of an object without a policy and a budget.
var Budget = v1alpha1.Budget{Percent: new(int32(10)), CountUnavailable: new(true)}

// Avoid are nodes in the care of others: those cordoned by them, under maintenance or remediation by medik8s, quarantined by NVSentinel, or
// about to be removed by an autoscaler.
var Avoid = v1alpha1.Avoid{
	Taints: []string{corev1.TaintNodeUnschedulable, corev1.TaintNodeOutOfService, "medik8s.io/drain", "medik8s.io/remediation", "ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"},
	Labels: []string{"dgxc.nvidia.com/nvsentinel-state"},
}

// Proof is what must be true of a node before it is given back.
var Proof = v1alpha1.Proof{AsBefore: true}

// Marks are those of held nodes: load balancers send nothing there, and autoscalers do not remove the node.
var Marks = v1alpha1.NodeMarks{Marks: []v1alpha1.NodeMark{v1alpha1.MarkExcludeFromLoadBalancers, v1alpha1.MarkDisableScaleDown, v1alpha1.MarkDoNotDisrupt}}

// fillDrain has protected pods waited for while their node is schedulable, and pods of the lowest priority evicted first.
func fillDrain(names *Fields, field string, d *v1alpha1.DrainPodOptions) {
	if d.Wait == "" {
		d.Wait = v1alpha1.WaitBeforeCordon
		*names = append(*names, field+fieldWait)
	}
	if d.Order == "" {
		d.Order = v1alpha1.DrainByPriority
		*names = append(*names, field+".order")
	}
}

// fill sets a field that is absent, and notes its name once.
func fill[T any](names *Fields, name string, field **T, value T) {
	if *field != nil {
		return
	}
	*field = &value
	if !slices.Contains(*names, name) {
		*names = append(*names, name)
	}
}
