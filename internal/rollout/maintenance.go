// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"slices"
)

// MaintenanceState is how far the work on a node is that needs it drained.
type MaintenanceState string

// The states.
const (
	NodePlanned  MaintenanceState = "planned"  // its turn is still to come
	NodeDraining MaintenanceState = "draining" // the rollout holds it, and it is not drained
	NodeDrained  MaintenanceState = "drained"  // nothing is in the way of the work
)

// Maintenance is a target of a rollout with Announce whose work needs its node drained. A held node that is not listed is as far as it
// was.
type Maintenance struct {
	Rollout Ref
	Node    string
	State   MaintenanceState
}

// listMaintenance lists the targets of a rollout that other programs are told about.
func (r *rolloutState) listMaintenance() []Maintenance {
	var out []Maintenance
	if !r.Announce {
		return nil
	}
	for i := range r.targets {
		if state := r.targets[i].maintenanceState(); state != "" {
			out = append(out, Maintenance{Rollout: r.Ref, Node: r.targets[i].target.Node, State: state})
		}
	}
	return out
}

// maintenanceState is empty when there is nothing to say.
func (t *targetState) maintenanceState() MaintenanceState {
	switch {
	case !t.exists || t.invalid != nil:
		return ""
	case !t.isHeld:
		if t.isPlanned() {
			return NodePlanned
		}
		return ""
	case t.isDraining:
		return NodeDraining
	case t.isDrained || slices.ContainsFunc(t.target.Tasks, isDisturbing):
		return NodeDrained
	}
	return ""
}

// isPlanned reports whether the target has work that needs its node drained, and that will begin.
func (t *targetState) isPlanned() bool {
	willBegin := t.verdict.Phase == PhaseWaiting || t.verdict.Phase == PhaseInFlight || t.verdict.Phase == PhasePaused
	if !willBegin || t.target.Leaving || t.hasFailed || t.rollout.Broken != nil {
		return false
	}
	return slices.ContainsFunc(t.target.Tasks, func(k Task) bool { return k.Need >= NeedDrained && k.State != StateDone })
}

// isDisturbing reports whether a task that needs the node drained is running.
func isDisturbing(k Task) bool {
	return k.Need >= NeedDrained && (k.State == StateRunning || k.State == StateFailing) && k.Object.Name != ""
}

func compareMaintenance(a, b Maintenance) int {
	return cmp.Or(a.Rollout.Compare(b.Rollout), cmp.Compare(a.Node, b.Node))
}

// hasTimedHold reports whether the node records since when the rollout holds it. A hold of a predecessor has no time.
func (t *targetState) hasTimedHold() bool {
	return slices.ContainsFunc(t.node.Holds, func(h Hold) bool { return h.Owner == t.rollout.Ref && !h.Since.IsZero() })
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
	d.reportVerdict(weightWaiting, PhaseInFlight, Why{
		Reason: ReasonLoadBalancer,
		Text:   "load balancers have " + delay.String() + " to stop sending requests to the node",
		About:  "Node " + t.target.Node,
		Since:  t.target.Drain.HeldAt,
	})
	return true
}
