// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/skyhook-k8s/skyhook/test/e2e/suite"
)

// sharingSkyhook is a Skyhook whose package records its stages in /var/log/stages and owes a reboot.
func sharingSkyhook(name string) string {
	return suite.Manifest(name, "\n  shareReboots: true", fmt.Sprintf(`
    %[1]s:
      version: 1.0.0
      image: %[2]s
      interrupt: {type: reboot}
      configMap:
        apply.sh: echo %[1]s-apply >> /var/log/stages
        config.sh: echo %[1]s-config >> /var/log/stages
        post_interrupt.sh: echo %[1]s-post >> /var/log/stages`, name, shellscript))
}

// sharingNodeOp is a NodeOp that owes a reboot on the nodes that have the label e2e-shared=yes.
const sharingNodeOp = `
apiVersion: operator.kairos.io/v1alpha1
kind: NodeOp
metadata: {name: shared-op}
spec:
  nodeSelector: {matchLabels: {e2e-shared: "yes"}}
  command: [sh, -c, "echo op >> /host/var/log/stages"]
  cordon: true
  rebootOnSuccess: true
  shareReboots: true
  backoffLimit: 0
`

// TestSharedReboot shows that two Skyhooks and a NodeOp which owe a reboot on one node reboot it once: each does what comes before, then
// the node boots, then each does what comes after.
func TestSharedReboot(t *testing.T) {
	n := cluster.ShareInterruptibleNodes(t, 1)[0]
	selectNodes(t, "none", n)
	cluster.Label(t, "e2e-shared=yes", n)
	manifest := strings.Join([]string{sharingSkyhook("kernel"), sharingSkyhook("firmware"), sharingNodeOp}, "\n---")
	manifest = strings.NewReplacer("{e2e: kernel}", `{e2e-shared: "yes"}`, "{e2e: firmware}", `{e2e-shared: "yes"}`).Replace(manifest)

	watch := watchNodes(t, n)
	cluster.Apply(t, manifest)
	cluster.WaitComplete(t, "kernel")
	cluster.WaitComplete(t, "firmware")
	cluster.EventuallyPrints(t, "the NodeOp is complete", func(out string) bool { return out == "Completed" },
		"get", "nodeop", "shared-op", "-o", "jsonpath={.status.phase}")

	watch.requireOneReboot(t)
	stages := strings.Fields(cluster.Exec(t, n, "cat /var/log/stages"))
	before, after := map[string]bool{}, map[string]bool{}
	for i, stage := range stages {
		into := before
		if i >= 5 {
			into = after
		}
		into[stage] = true
	}
	for _, stage := range []string{"kernel-apply", "kernel-config", "firmware-apply", "firmware-config", "op"} {
		if !before[stage] {
			t.Errorf("%s did not run before the reboot: %v", stage, stages)
		}
	}
	if len(stages) != 7 || !after["kernel-post"] || !after["firmware-post"] {
		t.Errorf("the stages were %v, want each once, and the posts after the reboot", stages)
	}
	if got := cluster.Kubectl(t, "get", "node", n, "-o", "jsonpath={.spec.unschedulable}"); got != "" {
		t.Error("the node is still cordoned")
	}
	cluster.Kubectl(t, "delete", "nodeop", "shared-op", "--timeout="+suite.Timeout.String())
	cluster.RemoveSkyhook(t, "kernel")
	cluster.RemoveSkyhook(t, "firmware")
}
