// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Ledger returns the ledger in the status of the owner.
func (g *Grouping) Ledger() rollout.Ledger { return ReadLedger(g.owner, g.memory.Admission) }

// ReadLedger returns the ledger that an owner has in its status, whether groups name it or not.
func ReadLedger(owner rollout.Ref, a *v1alpha1.Admission) rollout.Ledger {
	l := rollout.Ledger{Owner: owner}
	if a == nil {
		return l
	}
	l.Epoch = a.Epoch
	for _, s := range a.Seats {
		l.Admitting = append(l.Admitting, rollout.Reservation{
			Rollout: cmp.Or(rollout.ParseRef(s.Rollout), owner), Node: s.Node, Order: int(s.Order), Batch: s.Batch, Since: s.Since.Time,
			Group: rollout.GroupRef{Owner: owner, Compartment: cmp.Or(s.Compartment, v1alpha1.DefaultCompartment)},
		})
	}
	return l
}

// ToAdmission converts a ledger for the status of its owner.
func ToAdmission(l rollout.Ledger) *v1alpha1.Admission {
	out := &v1alpha1.Admission{Epoch: l.Epoch}
	for _, r := range l.Admitting {
		seat := v1alpha1.Seat{Node: r.Node, Order: int32(r.Order), Batch: r.Batch, Since: metav1.NewTime(r.Since.UTC().Truncate(time.Second))}
		if r.Rollout != l.Owner {
			seat.Rollout = r.Rollout.String()
		}
		if c := r.Group.Compartment; c != v1alpha1.DefaultCompartment {
			seat.Compartment = c
		}
		out.Seats = append(out.Seats, seat)
	}
	return out
}

// ReadMemory returns what a status says of the earlier batches of a compartment.
func ReadMemory(compartments map[string]v1alpha1.CompartmentStatus, memory v1alpha1.Memory, compartment string) rollout.Memory {
	m := memory.Batches[compartment]
	out := rollout.Memory{StoppedBy: m.StoppedBy, Open: int(m.Open), From: m.From, Gone: int(m.Gone), For: rollout.Versions(m.Rollout), Resumed: m.Resumed}
	if b := compartments[compartment].BatchState; b != nil {
		out.Batch, out.ConsecutiveFailures, out.Completed, out.Failed = int(b.CurrentBatch), int(b.ConsecutiveFailures), int(b.CompletedNodes), int(b.FailedNodes)
		out.LastSize, out.LastFailed, out.Stopped = int(b.LastBatchSize), b.LastBatchFailed, b.ShouldStop
	}
	return out
}

// toBatchState converts the memory of a group for a status. A group without batches yet is in its first one, as in the
// status of the predecessor.
func toBatchState(m rollout.Memory) *v1alpha1.BatchState {
	return &v1alpha1.BatchState{
		CurrentBatch: int32(max(1, m.Batch)), ConsecutiveFailures: int32(m.ConsecutiveFailures), CompletedNodes: int32(m.Completed), FailedNodes: int32(m.Failed),
		LastBatchSize: int32(m.LastSize), LastBatchFailed: m.LastFailed, ShouldStop: m.Stopped,
	}
}

// ToCompartmentStatus converts the report of a group for a status.
func ToCompartmentStatus(g rollout.GroupReport) v1alpha1.CompartmentStatus {
	out := v1alpha1.CompartmentStatus{
		Matched: int32(g.Matched), Ceiling: int64(g.Ceiling), InProgress: int32(g.Busy), Completed: int32(g.Finished), BatchState: toBatchState(g.Memory),
	}
	if g.Ceiling == rollout.Unlimited {
		out.Ceiling = int64(g.Matched)
	}
	if g.Matched > 0 {
		out.ProgressPercent = int32(100 * g.Finished / g.Matched)
	}
	if g.Why != nil {
		out.Reason, out.Message = string(g.Why.Reason), g.Why.Text
	}
	return out
}

// ToCompartmentStatuses converts the reports of the groups of an owner, by compartment; nil if there are none. What else is remembered of
// their batches is in the second map.
func ToCompartmentStatuses(owner rollout.Ref, groups []rollout.GroupReport) (out map[string]v1alpha1.CompartmentStatus, memory map[string]v1alpha1.BatchMemory) {
	for _, g := range groups {
		if g.Group.Owner != owner {
			continue
		}
		if out == nil {
			out, memory = map[string]v1alpha1.CompartmentStatus{}, map[string]v1alpha1.BatchMemory{}
		}
		m := g.Memory
		out[g.Group.Compartment] = ToCompartmentStatus(g)
		memory[g.Group.Compartment] = v1alpha1.BatchMemory{StoppedBy: m.StoppedBy, Open: int32(m.Open), From: m.From, Gone: int32(m.Gone), Rollout: string(m.For), Resumed: m.Resumed}
	}
	return out, memory
}
