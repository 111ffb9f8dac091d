// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

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
	for i := range min(len(c.all), len(o.all)) {
		a, b := *c.all[i], *o.all[i]
		if a.quiet = ""; !reflect.DeepEqual(a, b) {
			return fmt.Sprintf("node %s of %s is\n%+v\nand not\n%+v", a.node.Name, c.Rollout.Ref, a, b)
		}
	}
	for _, part := range []struct {
		name string
		a, b any
	}{
		{"the rollout", c.Rollout, o.Rollout}, {"its groups", c.Groups, o.Groups}, {"its ledger", c.Ledger, o.Ledger},
		{"its problems", c.Problems, o.Problems}, {"what is adopted", c.Adopt, o.Adopt}, {"whether it is removed", c.Removed, o.Removed},
		{"its definitions", c.defs, o.defs}, {"its other definitions", c.extra, o.extra}, {"its pods", c.pods, o.pods},
		{"its pods for drift", c.driftPods, o.driftPods}, {"the number of its nodes", len(c.all), len(o.all)}, {"its nodes by name", c.index, o.index},
		{"who went back", c.wentBack, o.wentBack}, {"its digests", c.pins, o.pins}, {"what was pulled", c.pulls, o.pulls},
		{"what was pulled without a digest", c.unnamed, o.unnamed},
	} {
		if !reflect.DeepEqual(part.a, part.b) {
			return fmt.Sprintf("of %s: %s: %+v and not %+v", c.Rollout.Ref, part.name, part.a, part.b)
		}
	}
	return ""
}
