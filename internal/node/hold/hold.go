// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package hold is the one rule about cordons with an owner: what a new one remembers, and when a node becomes
// schedulable again. It works on plain values, so that the operator, the plugin and the simulator share it.
package hold

import (
	"slices"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Cordon is the part of a node that holds depend on: whether it is unschedulable, and the holds on it.
type Cordon struct {
	Unschedulable bool
	Kept          bool // the node stays cordoned after the last hold, until a person makes it schedulable
	Holds         []rollout.Hold
}

// Place adds a hold of owner and makes the node unschedulable. The hold remembers whether an administrator had cordoned the
// node before the first of our holds: a later hold inherits that from the existing holds. When a person made the
// node schedulable although it is held, no cordon is older than our holds any more.
func (c Cordon) Place(owner rollout.Ref, now time.Time) Cordon {
	out := Cordon{Unschedulable: true, Kept: c.Kept && c.Unschedulable, Holds: slices.Clone(c.Holds)}
	wasCordoned := c.Unschedulable && len(c.Holds) == 0
	for i := range out.Holds {
		out.Holds[i].WasCordoned = out.Holds[i].WasCordoned && c.Unschedulable
		wasCordoned = wasCordoned || out.Holds[i].WasCordoned
	}
	if !out.isHeldBy(owner) {
		out.Holds = append(out.Holds, rollout.Hold{Owner: owner, WasCordoned: wasCordoned, Since: now})
	}
	return out
}

// Release removes the hold of owner. The node becomes schedulable with the last hold, and only if it was before the first
// and is not kept cordoned.
func (c Cordon) Release(owner rollout.Ref) Cordon {
	if !c.isHeldBy(owner) {
		return c
	}
	out := Cordon{Unschedulable: c.Unschedulable, Kept: c.Kept, Holds: without(c.Holds, owner)}
	if len(out.Holds) == 0 {
		out.Unschedulable = c.Unschedulable && (c.Kept || c.Of(owner).WasCordoned)
	}
	return out
}

// Of is the hold of owner; the zero Hold when there is none.
func (c Cordon) Of(owner rollout.Ref) rollout.Hold {
	for _, h := range c.Holds {
		if h.Owner == owner {
			return h
		}
	}
	return rollout.Hold{}
}

// With replaces the hold of h.Owner by h: for an owner whose own record is newer than the list.
func (c Cordon) With(h rollout.Hold) Cordon {
	c.Holds = append(without(c.Holds, h.Owner), h)
	return c
}

// Without removes the hold of owner and changes nothing else.
func (c Cordon) Without(owner rollout.Ref) Cordon {
	c.Holds = without(c.Holds, owner)
	return c
}

func (c Cordon) isHeldBy(owner rollout.Ref) bool {
	return slices.ContainsFunc(c.Holds, func(h rollout.Hold) bool { return h.Owner == owner })
}

func without(holds []rollout.Hold, owner rollout.Ref) []rollout.Hold {
	return slices.DeleteFunc(slices.Clone(holds), func(h rollout.Hold) bool { return h.Owner == owner })
}
