// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/skyhook-k8s/skyhook/test/e2e/suite"
)

// longJob is a pod named like a Skyhook that must not be interrupted, and that ends by itself after a while.
const longJob = `
apiVersion: v1
kind: Pod
metadata: {name: NAME, annotations: {skyhook.nvidia.com/do-not-interrupt: "true"}}
spec:
  nodeName: NODE1
  restartPolicy: Never
  activeDeadlineSeconds: 75
  terminationGracePeriodSeconds: 1
  containers: [{name: job, image: "registry.k8s.io/pause:3.10"}]
`

// startLongJob starts the job of a Skyhook on a node.
func startLongJob(t *testing.T, name, node string) {
	t.Helper()
	cluster.ApplyUntilCleanup(t, suite.OnNodes(strings.ReplaceAll(longJob, "NAME", name), node))
	cluster.Kubectl(t, "wait", "--for=condition=Ready", "pod/"+name, "--timeout="+suite.Timeout.String())
}

// requireJobRuns fails when the job has ended.
func requireJobRuns(t *testing.T, name, when string) {
	t.Helper()
	if got := cluster.Kubectl(t, "get", "pod", name, "-o", "jsonpath={.status.phase}{.metadata.deletionTimestamp}"); got != "Running" {
		t.Errorf("%s the job is %s", when, got)
	}
}

// requireJobEnded fails when the job did not end by itself.
func requireJobEnded(t *testing.T, name string) {
	t.Helper()
	if got := cluster.Kubectl(t, "get", "pod", name, "-o", "jsonpath={.status.reason}"); got != "DeadlineExceeded" {
		t.Errorf("the job ended with %q", got)
	}
}

// TestLongJobBeforeCordon shows that a node with a long job is not cordoned and takes no seat of the budget: another node goes first, and it
// follows when the job has ended by itself.
func TestLongJobBeforeCordon(t *testing.T) {
	const name = "job-before"
	nodes := cluster.ShareInterruptibleNodes(t, 2)
	for _, n := range nodes {
		cluster.RequireService(t, n, "cron")
	}
	selectNodes(t, name, nodes...)
	startLongJob(t, name, nodes[0])
	cluster.Apply(t, suite.Manifest(name, "\n  interruptionBudget: {count: 1}\n  drainConfig: {wait: BeforeCordon}", interruptingPackage("{type: service, services: [cron]}")))
	cluster.EventuallyPrints(t, "the other node goes first", func(out string) bool { return out == "complete" },
		"get", "skyhook", name, "-o", "jsonpath={.status.nodeStatus."+strings.ReplaceAll(nodes[1], ".", `\.`)+"}")
	node := cluster.Kubectl(t, "get", "node", nodes[0], "-o", "jsonpath={.spec.unschedulable} {.metadata.annotations}")
	requireJobRuns(t, name, "when the other node is complete")
	if strings.HasPrefix(node, "true") || strings.Contains(node, "cordon_"+name) {
		t.Errorf("the node of the job is held: %s", node)
	}
	requireStages(t, nodes[0], "")
	cluster.WaitComplete(t, name)
	requireJobEnded(t, name)
	cluster.RemoveSkyhook(t, name)
}

// TestLongJobAfterCordon shows that a node with a long job is cordoned, that nothing begins there before the job has ended by itself, and
// that the status says what is waited for, and until when.
func TestLongJobAfterCordon(t *testing.T) {
	const name = "job-after"
	nodes := cluster.ShareInterruptibleNodes(t, 1)
	cluster.RequireService(t, nodes[0], "cron")
	selectNodes(t, name, nodes...)
	startLongJob(t, name, nodes[0])
	cluster.Apply(t, suite.Manifest(name, "\n  drainConfig: {wait: AfterCordon}", interruptingPackage("{type: service, services: [cron]}")))
	want := fmt.Sprintf("%s %s/%s ProtectedPod", nodes[0], suite.Namespace, name)
	cluster.EventuallyPrints(t, "the status says that the drain waits for the job, and until when", func(out string) bool {
		return strings.HasPrefix(out, want) && strings.HasSuffix(out, "Z")
	}, "get", "skyhook", name, "-o", "jsonpath={.status.drains[0].node} {.status.drains[0].slowest[0].pod} {.status.drains[0].slowest[0].reason} {.status.drains[0].slowest[0].expectedEnd}")
	if got := cluster.Kubectl(t, "get", "node", nodes[0], "-o", "jsonpath={.spec.unschedulable}"); got != "true" {
		t.Error("the node of the job is not cordoned")
	}
	requireStages(t, nodes[0], "")
	requireJobRuns(t, name, "while the drain waits")
	cluster.WaitComplete(t, name)
	requireJobEnded(t, name)
	if got := cluster.Kubectl(t, "get", "skyhook", name, "-o", "jsonpath={.status.drains}"); got != "" {
		t.Errorf("in the end the status has the drains %s", got)
	}
	cluster.RemoveSkyhook(t, name)
}
