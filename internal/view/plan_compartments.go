// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"slices"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// CompartmentPlan is one compartment of a rollout whose compartments begin after each other.
type CompartmentPlan struct {
	Order    int      `json:"order"` // compartments of one order do not wait for each other
	Name     string   `json:"name"`
	After    []string `json:"after,omitempty"`
	Approval bool     `json:"approval,omitempty"` // a person must approve it
	Nodes    []string `json:"nodes"`
	Left     int      `json:"left"`              // of these: with work
	Waits    string   `json:"waiting,omitempty"` // why no node of it starts now
}

// listCompartments lists the compartments of a rollout in the order in which they begin; none when they do not wait for anything.
func (b *planBuilder) listCompartments(r *rollout.Rollout) []CompartmentPlan {
	groups := map[rollout.GroupRef]*rollout.Group{}
	owner, hasOrder := b.ownerOf(r), false
	for i := range b.Snapshot.Groups {
		if g := &b.Snapshot.Groups[i]; g.Ref.Owner == owner {
			groups[g.Ref] = g
			hasOrder = hasOrder || len(g.After) > 0 || g.Approval.Required
		}
	}
	if !hasOrder {
		return nil
	}
	var out []CompartmentPlan
	orders := map[rollout.GroupRef]int{}
	for ref, g := range groups {
		c := CompartmentPlan{Order: findOrder(groups, orders, ref), Name: groupName(r, ref), Approval: g.Approval.Required, Nodes: []string{}}
		for _, before := range g.After {
			c.After = append(c.After, before.Name())
		}
		b.addMembers(&c, r, ref)
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b CompartmentPlan) int {
		return cmp.Or(cmp.Compare(a.Order, b.Order), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// ownerOf returns the owner of the groups of a rollout.
func (b *planBuilder) ownerOf(r *rollout.Rollout) rollout.Ref {
	if owner := b.policyOwner(r); !owner.IsZero() {
		return owner
	}
	return r.Ref
}

// findOrder returns how many compartments begin one after the other up to this one, and notes it for each of them.
func findOrder(groups map[rollout.GroupRef]*rollout.Group, orders map[rollout.GroupRef]int, ref rollout.GroupRef) int {
	if orders[ref] > 0 {
		return orders[ref]
	}
	order := 1
	orders[ref] = order // until it is known: ends circles
	if g := groups[ref]; g != nil {
		for _, before := range g.After {
			order = max(order, 1+findOrder(groups, orders, before))
		}
	}
	orders[ref] = order
	return order
}

// addMembers adds the nodes of a rollout that are in a compartment, and why none of them starts.
func (b *planBuilder) addMembers(c *CompartmentPlan, r *rollout.Rollout, group rollout.GroupRef) {
	for _, t := range r.Targets {
		if t.Group != group || t.Leaving || t.Gone {
			continue
		}
		c.Nodes = append(c.Nodes, t.Node)
		if hasOpenTasks(t) || t.Visit.Admitted {
			c.Left++
		}
		verdict, _ := b.findVerdict(r.Ref, t.Node)
		isWaiting := verdict.Why.Reason == rollout.ReasonWave || verdict.Why.Reason == rollout.ReasonApproval
		if c.Waits != "" || !isWaiting {
			continue
		}
		c.Waits = verdict.Why.Text
		if verdict.Why.Reason == rollout.ReasonApproval {
			c.Waits += ": " + verdict.Why.Remedy(ShortName(r.Ref), t.Node, "")
		}
	}
	slices.Sort(c.Nodes)
}
