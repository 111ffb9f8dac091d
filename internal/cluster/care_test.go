// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"strings"
	"testing"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// TestHandsOff: nothing begins on a node that NVSentinel quarantines, as it does with a cordon and a label, until it is released. What
// has begun is finished, and the cordon of others stays.
func TestHandsOff(t *testing.T) {
	s := newScenario(t, 2)
	s.Patch(s.GetNode("n1"), `{"metadata":{"labels":{"dgxc.nvidia.com/nvsentinel-state":"quarantined"}},"spec":{"unschedulable":true}}`)
	s.Apply(strings.Replace(driver, "  packages:", "  profile: Recommended\n  interruptionBudget: {count: 2}\n  packages:", 1))
	s.passes(2)
	s.Patch(s.GetNode("n2"), `{"metadata":{"labels":{"dgxc.nvidia.com/nvsentinel-state":"draining"}}}`)
	s.passes(60)
	s.requireVerdict("driver", "n1", "InOthersCare: the node is in the care of somebody else: its labels match dgxc.nvidia.com/nvsentinel-state (profile Recommended: avoid)")
	s.requireVerdict("driver", "n2", "Finished: ")
	if n := s.GetNode("n1"); n.Annotations[v1alpha1.PrefixRecord+"driver"] != "" {
		t.Errorf("something was begun on n1: %v", n.Annotations)
	}
	s.Patch(s.GetNode("n1"), `{"metadata":{"labels":{"dgxc.nvidia.com/nvsentinel-state":null}}}`)
	s.passes(2)
	s.requireVerdict("driver", "n1", "InOthersCare: the node is in the care of somebody else: it was cordoned, and not for a Skyhook or NodeOp")

	s.Patch(s.GetNode("n1"), `{"spec":{"unschedulable":false}}`)
	s.passes(2)
	if s.CountAdmitted() != 1 {
		t.Error("the visit does not begin with the release")
	}
	s.passUntilComplete("driver")
}

// TestAvoid: what a policy says of nodes in the care of others, for Skyhooks and NodeOps. They count against the budget.
func TestAvoid(t *testing.T) {
	const of = "InOthersCare: the node is in the care of somebody else: "
	for _, c := range []struct{ avoid, node, want string }{
		{`{taints: [example.com/repair]}`, `{"spec":{"taints":[{"key":"example.com/repair","value":"bmc","effect":"PreferNoSchedule"}]}}`, of + "it has the taint example.com/repair=bmc:PreferNoSchedule"},
		{`{taints: [example.com/lent]}`, `{"spec":{"taints":[{"key":"example.com/lent","effect":"NoSchedule"}]}}`, of + "it has the taint example.com/lent:NoSchedule"},
		{`{labels: ["state in (broken, lent)"]}`, `{"metadata":{"labels":{"state":"lent"}}}`, of + "its labels match state in (broken,lent)"},
		{`{labels: [state=broken]}`, `{"metadata":{"labels":{"state":"lent"}}}`, "Ledger"},
		{`{cel: "node.metadata.labels['state'] == 'lent' && !node.spec.unschedulable"}`, `{"metadata":{"labels":{"state":"lent"}}}`, of + "avoid.cel is true of it: node.metadata.labels['state'] == 'lent'"},
		{`{cel: "node.spec.taints.exists(t, t.key == 'a') || node.metadata.rack == 1"}`, `{}`, of + "avoid.cel cannot be evaluated: no such key: rack"},
		{`{taints: [node.kubernetes.io/unschedulable]}`, `{"spec":{"unschedulable":true}}`, of + "it was cordoned, and not for a Skyhook or NodeOp"},
		{`{}`, `{"spec":{"unschedulable":true}}`, "Ledger"},
	} {
		t.Run(c.avoid, func(t *testing.T) {
			s := newScenario(t, 2)
			s.Patch(s.GetNode("n1"), c.node)
			s.Apply(policyYAML("  avoid: " + c.avoid + "\n"))
			s.Apply(withPolicy(driver))
			s.createNodeOp("check", "deploymentPolicy: careful\n  cordon: true")
			s.requireVerdict("driver", "n1", c.want)
			s.passes(3)
			if isAvoided := strings.HasPrefix(c.want, of); isAvoided != (s.CountAdmitted() == 0) {
				t.Errorf("%d are admitted within a budget of one node: n1 is avoided: %v", s.CountAdmitted(), isAvoided)
			}
		})
	}
}
