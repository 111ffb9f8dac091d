// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/nodeop/kairos"
	"github.com/skyhook-k8s/skyhook/internal/nodeop/report"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// foreignNodeOp is the message of an upgrade whose name is taken.
const foreignNodeOp = "a NodeOp of this name exists and is not this upgrade's: delete it, or choose another name"

// upgradeMessage is the message of an upgrade, by the phase of its NodeOp.
func upgradeMessage(phase v1alpha1.Phase) string {
	switch phase {
	case v1alpha1.PhaseRunning:
		return "Upgrade operation is running"
	case v1alpha1.PhaseCompleted:
		return "Upgrade operation completed successfully"
	case v1alpha1.PhaseFailed:
		return "Upgrade operation failed"
	}
	return "Upgrade operation is pending"
}

// Status is the status of an upgrade whose NodeOp is o; nil when there is none. A NodeOp that was deleted is not created
// again, because it would upgrade every node again.
func Status(u *v1alpha1.NodeOpUpgrade, o *v1alpha1.NodeOp, nodes []*node.Node, now time.Time) v1alpha1.NodeOpUpgradeStatus {
	before := u.Status
	out := *before.DeepCopy()
	out.ObservedGeneration = u.Generation
	switch {
	case o != nil && !IsOf(o, u):
		out.Message, out.Phase = foreignNodeOp, v1alpha1.PhasePending
	case o == nil && IsFinished(u) && before.Verdict != "":
		return out
	case o == nil && IsFinished(u): // by an operator without verdicts
	case o == nil && before.NodeOpName != "":
		out.NodeOpName, out.Phase, out.Message = u.Name, v1alpha1.PhaseFailed, "its NodeOp was deleted: create another NodeOpUpgrade to upgrade again"
	case o == nil:
		out.Phase, out.Message = v1alpha1.PhasePending, upgradeMessage("")
	case o.Status.Phase == "":
		out.NodeOpName, out.Phase, out.Message = u.Name, v1alpha1.PhaseInitializing, "NodeOp created"
	default:
		out.NodeOpName = u.Name
		mirrorNodeOp(&out, o, nodes)
	}
	setConditions(&out, u, o, now)

	a, b := out.DeepCopy(), before.DeepCopy()
	for _, s := range []*v1alpha1.NodeOpUpgradeStatus{a, b} {
		s.LastUpdated = metav1.Time{}
		report.ClearTimes(s.Conditions, s.NodeStatuses)
	}
	if !equality.Semantic.DeepEqual(a, b) {
		out.LastUpdated = metav1.NewTime(node.WholeSeconds(now))
	}
	return out
}

// setConditions mirrors the verdict and the conditions of the NodeOp, if there is one that belongs to the upgrade and has them.
func setConditions(out *v1alpha1.NodeOpUpgradeStatus, u *v1alpha1.NodeOpUpgrade, o *v1alpha1.NodeOp, now time.Time) {
	s := &policy.ConditionSet{Stored: u.Status.Conditions, Generation: u.Generation, Now: now}
	isForeign := o != nil && !IsOf(o, u)
	if isForeign {
		s.Set(v1alpha1.ConditionAccepted, false, v1alpha1.ReasonInvalidSpec, foreignNodeOp)
	} else {
		s.Set(v1alpha1.ConditionAccepted, true, v1alpha1.ReasonAccepted, "the spec can be carried out")
	}
	if o != nil && !isForeign && o.Status.Verdict != "" {
		for _, c := range o.Status.Conditions {
			if c.Type != v1alpha1.ConditionAccepted {
				s.Set(c.Type, c.Status == metav1.ConditionTrue, c.Reason, c.Message)
			}
		}
		out.Outcome, out.Conditions = o.Status.Outcome, s.Conditions
		return
	}

	why := &rollout.Why{Reason: v1alpha1.ReasonWaiting, Text: out.Message}
	standing := policy.Standing{}
	switch {
	case isForeign:
		why.Reason, standing.Refused = v1alpha1.ReasonInvalidSpec, why
	case out.Phase == v1alpha1.PhaseFailed:
		why.Reason, standing.Failed = v1alpha1.ReasonFailed, why
	case out.Phase == v1alpha1.PhaseCompleted:
		why.Reason, standing.Ready = v1alpha1.ReasonCompleted, why
	}
	standing.Other = *why
	verdict := standing.Judge()
	s.Set(v1alpha1.ConditionProgressing, false, verdict.Reason, out.Message)
	s.Set(v1alpha1.ConditionReady, standing.Ready != nil, verdict.Reason, out.Message)
	verdict.SetConditions(s.Set)
	out.Outcome, out.Conditions = verdict.Outcome, s.Conditions
}

// mirrorNodeOp copies the entries of the NodeOp, and compares the version that a node runs with that of the image.
func mirrorNodeOp(out *v1alpha1.NodeOpUpgradeStatus, o *v1alpha1.NodeOp, nodes []*node.Node) {
	out.Phase, out.Counters, out.Message = o.Status.Phase, o.Status.Counters, upgradeMessage(o.Status.Phase)
	out.NodeStatuses = o.Status.DeepCopy().NodeStatuses
	for _, n := range nodes {
		e, ok := out.NodeStatuses[n.Name]
		version := kairos.VersionOf(n)
		// The reboot may have reported the same version with characters that a label cannot have.
		if ok && version != "" && kairos.Sanitize(version) != kairos.Sanitize(e.CurrentVersion) {
			e.CurrentVersion = version
			out.NodeStatuses[n.Name] = e
		}
	}
	if out.Phase != v1alpha1.PhaseCompleted {
		return
	}

	var behind []string
	for name, e := range out.NodeStatuses {
		rebooted := e.RebootStatus == v1alpha1.RebootCompleted
		isKnown := e.TargetVersion != "" && e.CurrentVersion != ""
		if rebooted && isKnown && kairos.Sanitize(e.TargetVersion) != kairos.Sanitize(e.CurrentVersion) {
			behind = append(behind, name)
		}
	}
	if len(behind) > 0 {
		out.Message += ", but these nodes booted another version: " + report.ListNames(behind)
	}
}
