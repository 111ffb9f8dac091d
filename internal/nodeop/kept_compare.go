// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop

import (
	"fmt"
	"reflect"
)

// Difference says in what two Compiled of one input differ; empty if in nothing. A pass that takes over nodes must not differ from one
// that compiles all of them.
func (c *Compiled) Difference(o *Compiled) string {
	for i := range min(len(c.Rollout.Targets), len(o.Rollout.Targets)) {
		if a, b := c.Rollout.Targets[i], o.Rollout.Targets[i]; !reflect.DeepEqual(a, b) {
			return fmt.Sprintf("target %s of %s is\n%+v\nand not\n%+v", a.Node, c.Rollout.Ref, a, b)
		}
	}
	for i := range min(len(c.order), len(o.order)) {
		a, b := *c.order[i], *o.order[i]
		a.op, b.op = nil, nil // it is compared once
		if c.order[i].op != c.op || !reflect.DeepEqual(a, b) {
			return fmt.Sprintf("node %s of %s is\n%+v\nand not\n%+v", a.node.Name, c.Rollout.Ref, a, b)
		}
	}
	for _, part := range []struct {
		name string
		a, b any
	}{
		{"the rollout", c.Rollout, o.Rollout}, {"its groups", c.Groups, o.Groups}, {"its ledger", c.Ledger, o.Ledger},
		{"its problems", c.Problems, o.Problems}, {"its edits", c.Edits, o.Edits}, {"its limits", c.Limits, o.Limits},
		{"whether it is removed", c.Removed, o.Removed}, {"the number of its nodes", len(c.order), len(o.order)},
		{"its nodes by name", c.index, o.index}, {"its missing nodes", c.missing, o.missing}, {"the nodes of its start", c.start, o.start},
		{"how long a node usually takes", c.pass.usualVisit, o.pass.usualVisit}, {"the operation", c.op, o.op},
	} {
		if !reflect.DeepEqual(part.a, part.b) {
			return fmt.Sprintf("of %s: %s: %+v and not %+v", c.Rollout.Ref, part.name, part.a, part.b)
		}
	}
	return ""
}
