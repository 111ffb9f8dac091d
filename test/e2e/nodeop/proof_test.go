// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop_test

import (
	"strings"
	"testing"

	"github.com/skyhook-k8s/skyhook/test/e2e/suite"
)

// TestProof reboots a node that is not as it should be afterwards. The node stays cordoned and the operation runs, also when the proof is
// late, until a validator has set its condition.
func TestProof(t *testing.T) {
	n := cluster.ShareInterruptibleNodes(t, 1)[0]
	cluster.Label(t, "e2e=proven-op", n)
	before := cluster.BootID(t, n)
	cluster.Apply(t, `
apiVersion: operator.kairos.io/v1alpha1
kind: NodeOp
metadata: {name: proven}
spec:
  nodeSelector: {matchLabels: {e2e: proven-op}}
  image: busybox:latest
  command: [sh, -c, "true"]
  cordon: true
  rebootOnSuccess: true
  deploymentPolicy: proven-op
---
apiVersion: skyhook.nvidia.com/v1alpha1
kind: DeploymentPolicy
metadata: {name: proven-op}
spec:
  default: {budget: {count: 1}, strategy: {fixed: {}}}
  proof:
    timeout: 5s
    nodeConditions: [example.com/OpValidated]
`)
	waitFor := func(what string) {
		t.Helper()
		cluster.EventuallyPrints(t, "the operation waits: "+what, func(out string) bool {
			return strings.HasPrefix(out, "true Running Running completed: ") && strings.Contains(out, what)
		}, "get", "node/"+n, "nodeop/proven", "-o", `jsonpath={.items[0].spec.unschedulable} {.items[1].status.phase} `+
			strings.ReplaceAll(nodePath(n, "phase")+" "+nodePath(n, "rebootStatus")+": "+nodePath(n, "message"), "{.", "{.items[1]."))
	}
	waitFor("condition example.com/OpValidated of the node is absent")
	waitFor("for 5s; the node is not given back")
	plugin := suite.BuildPlugin(t)
	if out, err := cluster.Command(plugin, "why", n).CombinedOutput(); err != nil || !strings.Contains(string(out), "ProofFailed") {
		t.Errorf("why: %v: %s", err, out)
	}
	cluster.Kubectl(t, "patch", "node", n, "--subresource=status", "--type=strategic", "-p",
		`{"status": {"conditions": [{"type": "example.com/OpValidated", "status": "True", "reason": "Tested"}]}}`)
	got := waitPhase(t, "nodeop", "proven", "Completed")
	if got.Completed != 1 || got.NodeStatuses[n].Message != "Job and reboot completed successfully" {
		t.Errorf("it ended with %+v", got)
	}
	requireReleased(t, n)
	if pods := cluster.Kubectl(t, "get", "pods", "-l", "kairos.io/reboot=true,kairos.io/nodeop=proven", "-o", "name"); strings.Count(pods, "pod/") != 1 {
		t.Errorf("it rebooted by the pods %s", pods)
	}
	if cluster.BootID(t, n) == before {
		t.Error("the node did not reboot")
	}
	remove(t, "nodeop", "proven")
	remove(t, "deploymentpolicy", "proven-op")
}
