// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"time"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Holder is who holds nodes.
type Holder struct {
	Owner    rollout.Ref
	UID      string             // of a NodeOp
	Marks    v1alpha1.NodeMarks // that it puts on nodes
	Expected time.Duration      // how long the node should be held; 0 if unknown
}

// PlaceHold returns the edit that cordons the node for its holder. A new hold is recorded with record, and puts its marks on the node;
// record is nil when the hold is recorded already.
func (n *Node) PlaceHold(by Holder, holds []rollout.Hold, why string, now time.Time, record func(*Held) Edit) Edit {
	e := Edit{}
	if record != nil {
		placed := n.Cordon(holds).Place(by.Owner, now).Of(by.Owner)
		e = record(&Held{At: WholeSeconds(now), WasCordoned: placed.WasCordoned})
		d := Description{By: by.Owner.Title(), Why: why, Since: WholeSeconds(now)}
		if by.Expected > 0 {
			end := d.Since.Add(by.Expected)
			d.ExpectedEnd = &end
		}
		e = e.Plus(n.PlaceMarks(HolderOf(by.Owner, by.UID), NewMarks(by.Marks, d))).Plus(n.restartHandover(HolderOf(by.Owner, by.UID)))
	}
	if !n.Unschedulable {
		e = e.Plus(ClearWasCordoned(n.With(e)))
	}
	e.SetUnschedulable(n, true)
	return e
}

// ReleaseHold returns the edit that makes the node schedulable, unless another hold or a cordon from before the first one keeps it. Own is
// the hold as its owner records it.
func (n *Node) ReleaseHold(own rollout.Hold, holds []rollout.Hold) Edit {
	e := Edit{}
	e.SetUnschedulable(n, n.Cordon(holds).With(own).Release(own.Owner).Unschedulable)
	return e
}

// MarksOf returns the marks that an object and its policy, which may be nil, put on nodes.
func MarksOf(own *v1alpha1.NodeMarks, p *v1alpha1.DeploymentPolicy) v1alpha1.NodeMarks {
	if p == nil {
		return own.Union(nil)
	}
	return own.Union(p.Spec.NodeMarks)
}

// ProofsOf returns the proofs that an object and its policy, which may be nil, ask for.
func ProofsOf(own *v1alpha1.Proof, p *v1alpha1.DeploymentPolicy) Proofs {
	if p == nil {
		return NewProofs(own)
	}
	return NewProofs(own, p.Spec.Proof)
}
