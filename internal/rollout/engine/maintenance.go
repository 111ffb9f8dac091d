// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"slices"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// listMaintenance lists the targets of a rollout that other programs are told about.
func (r *rolloutState) listMaintenance() []rollout.Maintenance {
	var out []rollout.Maintenance
	if !r.Announce {
		return nil
	}
	for i := range r.targets {
		if state := r.targets[i].maintenanceState(); state != "" {
			out = append(out, rollout.Maintenance{Rollout: r.Ref, Node: r.targets[i].target.Node, State: state})
		}
	}
	return out
}

// maintenanceState is empty when there is nothing to say.
func (t *targetState) maintenanceState() rollout.MaintenanceState {
	switch {
	case !t.exists || t.invalid != nil:
		return ""
	case !t.isHeld:
		if t.isPlanned() {
			return rollout.NodePlanned
		}
		return ""
	case t.isDraining:
		return rollout.NodeDraining
	case t.isDrained || slices.ContainsFunc(t.target.Tasks, isDisturbing):
		return rollout.NodeDrained
	}
	return ""
}

// isPlanned reports whether the target has work that needs its node drained, and that will begin.
func (t *targetState) isPlanned() bool {
	willBegin := t.verdict.Phase == rollout.PhaseWaiting || t.verdict.Phase == rollout.PhaseInFlight || t.verdict.Phase == rollout.PhasePaused
	if !willBegin || t.target.Leaving || t.hasFailed || t.rollout.Broken != nil {
		return false
	}
	return slices.ContainsFunc(t.target.Tasks, func(k rollout.Task) bool { return k.Need >= rollout.NeedDrained && k.State != rollout.StateDone })
}

// isDisturbing reports whether a task that needs the node drained is running.
func isDisturbing(k rollout.Task) bool {
	return k.Need >= rollout.NeedDrained && (k.State == rollout.StateRunning || k.State == rollout.StateFailing) && k.Object.Name != ""
}

func compareMaintenance(a, b rollout.Maintenance) int {
	return cmp.Or(a.Rollout.Compare(b.Rollout), cmp.Compare(a.Node, b.Node))
}

// hasTimedHold reports whether the node records since when the rollout holds it. A hold of a predecessor has no time.
func (t *targetState) hasTimedHold() bool {
	return slices.ContainsFunc(t.node.Holds, func(h rollout.Hold) bool { return h.Owner == t.rollout.Ref && !h.Since.IsZero() })
}

// awaitLoadBalancers requests a pass for when load balancers send no more requests to the node, and reports whether they still may. A hold of a predecessor, whose time is not recorded, is long enough.
func (d drainer) awaitLoadBalancers() bool {
	t, delay := d.target, d.target.rollout.Drain.LoadBalancerDelay
	if delay <= 0 || !t.hasTimedHold() {
		return false
	}
	until := t.target.Drain.HeldAt.Add(delay)
	if !d.plan.now.Before(until) {
		return false
	}
	d.plan.requestNext(until)
	d.reportVerdict(weightWaiting, rollout.PhaseInFlight, rollout.Why{
		Reason: rollout.ReasonLoadBalancer,
		Text:   "load balancers have " + delay.String() + " to stop sending requests to the node",
		About:  "Node " + t.target.Node,
		Since:  t.target.Drain.HeldAt,
	})
	return true
}
