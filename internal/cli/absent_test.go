// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"strings"
	"testing"
)

// TestOlderCRDs uses the CRDs of an earlier operator, without NodeOps and DeploymentPolicies: commands that need none of them
// work and print a warning; the others fail before they change anything.
func TestOlderCRDs(t *testing.T) {
	s := newTestCluster(t, 2)
	s.Apply(stuckBase)
	s.Patch(s.GetNode("n1"), `{"metadata":{"labels":{"kubernetes.io/hostname":"n1"}}}`)
	s.proxy.hidden = []string{"/apis/operator.kairos.io/v1alpha1/", "/apis/skyhook.nvidia.com/v1alpha1/deploymentpolicies"}
	for args, code := range map[string]int{"status": 0, "status base": 0, "why n1": 0, "why base": 0, "plan": 0, "simulate": 0, "dump": 0, "reset base --yes": 0, "cleanup --dry-run": 0} {
		out, said := s.runBoth(code, strings.Fields(args)...)
		looks := !strings.HasPrefix(args, "reset") && !strings.HasPrefix(args, "cleanup")
		if note := "warning: this cluster does not know DeploymentPolicy, NodeOp, NodeOpUpgrade: "; strings.Contains(said, note) != looks || looks && !strings.Contains(out, "base") {
			t.Errorf("%s prints\n%s\nand says\n%s", args, out, said)
		}
	}
	if _, said := s.runBoth(1, "node", "drain", "n1", "--yes"); !strings.Contains(said, "error: this cluster does not know NodeOps") || s.GetNode("n1").Spec.Unschedulable {
		t.Errorf("it says %s, and n1 is cordoned: %v", said, s.GetNode("n1").Spec.Unschedulable)
	}
	s.proxy.hidden = []string{"/apis/operator.kairos.io/v1alpha1/", "/apis/skyhook.nvidia.com/v1alpha1/"}
	for _, args := range []string{"status", "why n1", "plan", "dump", "pause base --yes", "node list --skyhook base"} {
		if _, said := s.runBoth(1, strings.Fields(args)...); !strings.Contains(said, "error: this cluster does not know Skyhooks: install the operator with its CRDs first") {
			t.Errorf("without any CRD %s says %s", args, said)
		}
	}
}
