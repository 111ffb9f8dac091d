// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/skyhook-k8s/skyhook/test/e2e/suite"
)

// deviceDaemonSet is ready on a node while a file is there that a boot removes.
const deviceDaemonSet = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: device}
spec:
  selector: {matchLabels: {app: device}}
  template:
    metadata: {labels: {app: device}}
    spec:
      nodeSelector: {e2e: proven}
      terminationGracePeriodSeconds: 0
      containers:
      - name: device
        image: ` + suite.ToolsImage + `
        command: [sleep, "100000000"]
        readinessProbe: {exec: {command: [test, -e, /host/run/e2e-device]}, periodSeconds: 1}
        volumeMounts: [{name: run, mountPath: /host/run}]
      volumes: [{name: run, hostPath: {path: /run}}]
`

// TestProof reboots a node on which a DaemonSet does not come back. The node stays cordoned, and counts as failed after the timeout. It
// is given back when the pod is ready and an external validator has set its condition.
func TestProof(t *testing.T) {
	const name = "proven"
	n := cluster.InterruptibleNodes(t, 1)[0]
	selectNodes(t, name, n)
	cluster.Exec(t, n, "touch /run/e2e-device")
	cluster.ApplyUntilCleanup(t, deviceDaemonSet)
	cluster.Kubectl(t, "rollout", "status", "daemonset/device", "--timeout="+suite.Timeout.String())
	proof := fmt.Sprintf("\n  proof: {daemonSets: [{namespace: %s, name: device}], nodeConditions: [{type: example.com/Validated}], timeout: 20s}", suite.Namespace)
	watch := watchNodes(t, n)
	cluster.Apply(t, suite.Manifest(name, proof, interruptingPackage("{type: reboot}")))

	setCondition := func(status string) {
		t.Helper()
		cluster.Kubectl(t, "patch", "node", n, "--subresource=status", "--type=strategic", "-p",
			`{"status": {"conditions": [{"type": "example.com/Validated", "status": "`+status+`", "reason": "Tested"}]}}`)
	}
	cluster.WaitErroring(t, name, "condition example.com/Validated of the node is absent")
	setCondition("False")
	cluster.WaitErroring(t, name, "condition example.com/Validated of the node is False")
	setCondition("True")
	cluster.WaitErroring(t, name, "DaemonSet "+suite.Namespace+"/device has no ready pod on the node for 20s; the node is not given back")
	if cluster.Kubectl(t, "get", "node", n, "-o", "jsonpath={.spec.unschedulable}") != "true" {
		t.Error("the node is schedulable before it is proven")
	}
	plugin := suite.BuildPlugin(t)
	if out, err := cluster.Command(plugin, "why", n).CombinedOutput(); err != nil || !strings.Contains(string(out), "ProofFailed") {
		t.Errorf("why: %v: %s", err, out)
	}

	cluster.Exec(t, n, "touch /run/e2e-device")
	cluster.WaitComplete(t, name)
	watch.requireOneReboot(t)
	requireStages(t, n, "apply config post-interrupt")
	cluster.RemoveSkyhook(t, name)
}
