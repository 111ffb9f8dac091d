// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// AdmissionStatus converts a ledger to the status of its NodeOp.
func AdmissionStatus(l rollout.Ledger) *v1alpha1.Admission {
	out := &v1alpha1.Admission{Epoch: l.Epoch}
	for _, s := range l.Admitting {
		seat := v1alpha1.Seat{Node: s.Node, Batch: s.Batch, Since: metav1.NewTime(node.WholeSeconds(s.Since))}
		if s.Rollout != l.Owner {
			seat.Rollout = s.Rollout.String()
		}
		if name := s.Group.Compartment; name != v1alpha1.DefaultCompartment {
			seat.Compartment = name
		}
		out.Seats = append(out.Seats, seat)
	}
	return out
}

// ReadBatchState converts the batch state of a status to the memory of a group.
func ReadBatchState(b *v1alpha1.BatchState) rollout.Memory {
	if b == nil {
		return rollout.Memory{}
	}
	return rollout.Memory{
		Batch: b.CurrentBatch, ConsecutiveFailures: b.ConsecutiveFailures, Completed: b.CompletedNodes, Failed: b.FailedNodes,
		LastSize: b.LastBatchSize, LastFailed: b.LastBatchFailed, Stopped: b.ShouldStop, Open: b.Open, From: b.From,
		StoppedBy: b.StoppedBy, Resumed: b.Resumed,
	}
}
