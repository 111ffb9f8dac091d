// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop

import (
	"slices"
	"testing"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// A node that is no longer selected is in no group of the policy. It is given back by the NodeOp's own group.
func TestGroupOfANodeThatIsNoLongerSelected(t *testing.T) {
	w := newEnvironment(t, "n1")
	w.node("n1").Labels["pool"] = "gpu"
	o := w.applyYAML(`
metadata: {name: check}
spec:
  command: ["true"]
  cordon: true
  deploymentPolicy: careful
  nodeSelector: {matchLabels: {pool: gpu}}
`)
	w.tick()
	w.tick()
	delete(w.node("n1").Labels, "pool")
	in := w.input(o)
	in.Budget = &Budget{}
	c := Compile(in)
	if len(c.Rollout.Targets) != 1 || !c.Rollout.Targets[0].Admitted {
		t.Fatalf("the targets are %+v", c.Rollout.Targets)
	}
	group := c.Rollout.Targets[0].Group
	if !slices.ContainsFunc(c.Groups, func(g rollout.Group) bool { return g.Ref == group }) {
		t.Errorf("the group %s of the node is unknown", group)
	}
}
