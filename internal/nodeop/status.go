// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
)

// IsEntryFinal reports whether the entry of a node in the status does not change any more.
func IsEntryFinal(e v1alpha1.NodeStatus) bool {
	awaitsReboot := e.RebootStatus == v1alpha1.RebootPending
	return e.Phase == v1alpha1.PhaseFailed || e.Phase == v1alpha1.PhaseCompleted && !awaitsReboot
}

// IsEntrySkipped reports whether the check skipped the node.
func IsEntrySkipped(e v1alpha1.NodeStatus) bool {
	return e.Phase == v1alpha1.PhaseCompleted && e.JobName == ""
}

// HasEndedOn reports whether a finished NodeOp was carried out on a node, which records nothing of it any more. A node that it did not
// begin with, because it failed elsewhere, may still be admitted by another operator. The status of a large one that has completed
// lists no nodes.
func (op *Operation) HasEndedOn(name string) bool {
	if !op.IsFinished() {
		return false
	}
	status := &op.NodeOp.Status
	if entry, isListed := status.NodeStatuses[name]; isListed {
		return IsEntryFinal(entry)
	}
	return status.Phase == v1alpha1.PhaseCompleted && len(status.NodeStatuses) < int(status.Total)
}

// IsExpired reports whether the Jobs and pods of a finished NodeOp have been kept for ttlSecondsAfterFinished, and until when
// they are kept. The time is zero when they are kept forever.
func (op *Operation) IsExpired(now time.Time) (expired bool, at metav1.Time) {
	ttl := op.Spec().TTLSecondsAfterFinished
	if ttl == nil || !op.IsFinished() || op.IsDeleting() {
		return false, metav1.Time{}
	}
	finished := op.NodeOp.Status.LastUpdated
	if cond := meta.FindStatusCondition(op.NodeOp.Status.Conditions, v1alpha1.ConditionProgressing); cond != nil && !cond.LastTransitionTime.IsZero() {
		finished = cond.LastTransitionTime
	}
	at = metav1.NewTime(finished.Add(time.Duration(*ttl) * time.Second))
	return !now.Before(at.Time), at
}
