// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// group gives every target its budget: the NodeOp's own window, or the compartments of its policy. Failed is a node
// on which it failed.
func (c *Compiled) group(failed string) {
	o := c.in.NodeOp
	var frozen *rollout.Why
	if failed != "" && on(o.Spec.StopOnFailure) {
		frozen = &rollout.Why{Reason: rollout.ReasonStopped, About: "Node " + failed, Text: "node " + failed + " failed, and stopOnFailure is set"}
	}
	own := c.Rollout.Name + "/" + v1alpha1.DefaultCompartment
	of := func(string) string { return own }
	if b := c.in.Budget; b != nil {
		c.Groups = append(c.Groups, b.Groups...)
		c.takeFailed()
		c.Rollout.Limit = int(o.Spec.Concurrency)
		of = func(node string) string { return cmp.Or(b.Of[node], own) }
	} else {
		limit := int(o.Spec.Concurrency)
		if limit == 0 {
			limit = rollout.Unlimited
		}
		g := rollout.Group{Name: own, Ledger: c.Rollout.Name, Limit: limit, Pace: rollout.Pace{Kind: rollout.Window},
			Memory: Remembered(o.Status.CompartmentStatuses[v1alpha1.DefaultCompartment].BatchState), Frozen: frozen}
		if on(o.Spec.StopOnFailure) {
			g.Pace.StopAfter, g.Pace.SafetyLimit = 1, 101
		}
		c.Groups = []rollout.Group{g}
	}
	for i := range c.Rollout.Targets {
		t := &c.Rollout.Targets[i]
		t.Group = of(t.Node)
		if b := c.in.Budget; b != nil {
			t.Place = b.Place[t.Node]
		}
		if frozen != nil && c.in.Budget != nil && !t.Admitted && !t.Skipped && len(t.Tasks) > 0 {
			t.Blocked = frozen // the groups are not this NodeOp's alone
		}
	}
}

// takeFailed counts, in the groups of a policy, the nodes that are away because this NodeOp failed there: still cordoned in
// its name, or not ready. Otherwise one node after the other would be lost.
func (c *Compiled) takeFailed() {
	for _, t := range c.order {
		r := t.rec.Result
		if r == nil || r.Phase != v1alpha1.PhaseFailed || t.rec.Admitted || t.node.Ready && (t.rec.Held == nil || !t.node.Unschedulable) {
			continue
		}
		in := func(g rollout.Group) bool { return g.Name == c.in.Budget.Of[t.node.Name] }
		if at := slices.IndexFunc(c.Groups, in); at >= 0 {
			c.Groups[at].Taken = append(slices.Clip(c.Groups[at].Taken), t.node.Name)
		}
	}
}

// ledger is what this NodeOp's status says is being admitted.
func (c *Compiled) ledger() rollout.Ledger {
	l := rollout.Ledger{Name: c.Rollout.Name}
	a := c.in.NodeOp.Status.Admission
	if a == nil {
		return l
	}
	l.Epoch = a.Epoch
	for _, s := range a.Seats {
		l.Admitting = append(l.Admitting, rollout.Seat{
			Rollout: cmp.Or(s.Rollout, c.Rollout.Name), Node: s.Node, Batch: s.Batch, Since: s.Since.Time,
			Group: c.Rollout.Name + "/" + cmp.Or(s.Compartment, v1alpha1.DefaultCompartment),
		})
	}
	return l
}

// Admission is a ledger as the status of its NodeOp holds it.
func Admission(l rollout.Ledger) *v1alpha1.Admission {
	out := &v1alpha1.Admission{Epoch: l.Epoch}
	for _, s := range l.Admitting {
		seat := v1alpha1.Seat{Node: s.Node, Batch: s.Batch, Since: metav1.NewTime(whole(s.Since))}
		if s.Rollout != l.Name {
			seat.Rollout = s.Rollout
		}
		if name := strings.TrimPrefix(s.Group, l.Name+"/"); name != v1alpha1.DefaultCompartment {
			seat.Compartment = name
		}
		out.Seats = append(out.Seats, seat)
	}
	return out
}

// Remembered is what the status keeps of earlier batches, as the engine knows it.
func Remembered(b *v1alpha1.BatchState) rollout.Memory {
	if b == nil {
		return rollout.Memory{}
	}
	return rollout.Memory{
		Batch: b.CurrentBatch, ConsecutiveFailures: b.ConsecutiveFailures, Completed: b.CompletedNodes, Failed: b.FailedNodes,
		LastSize: b.LastBatchSize, LastFailed: b.LastBatchFailed, Stopped: b.ShouldStop, Open: b.Open, From: b.From,
	}
}

func batches(m rollout.Memory) *v1alpha1.BatchState {
	if m == (rollout.Memory{}) {
		return nil
	}
	return &v1alpha1.BatchState{
		CurrentBatch: m.Batch, ConsecutiveFailures: m.ConsecutiveFailures, CompletedNodes: m.Completed, FailedNodes: m.Failed,
		LastBatchSize: m.LastSize, LastBatchFailed: m.LastFailed, ShouldStop: m.Stopped, Open: m.Open, From: m.From,
	}
}
