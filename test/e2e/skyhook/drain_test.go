// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/skyhook-k8s/skyhook/test/e2e/suite"
)

// workloads has one pod of each kind: on the first node one that a disruption budget protects, on the second one that terminates
// slowly and one that nothing recreates, with an emptyDir.
const workloads = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: store}
spec:
  serviceName: store
  replicas: 1
  selector: {matchLabels: {app: store}}
  template:
    metadata: {labels: {app: store}}
    spec:
      nodeSelector: {kubernetes.io/hostname: NODE1}
      terminationGracePeriodSeconds: 1
      containers: [{name: store, image: "registry.k8s.io/pause:3.10"}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: store}
spec: {maxUnavailable: 0, selector: {matchLabels: {app: store}}}
---
apiVersion: v1
kind: Pod
metadata: {name: slow}
spec:
  nodeName: NODE2
  terminationGracePeriodSeconds: 60
  containers:
  - {name: slow, image: "registry.k8s.io/pause:3.10", lifecycle: {preStop: {sleep: {seconds: 55}}}}
---
apiVersion: v1
kind: Pod
metadata: {name: scratch}
spec:
  nodeName: NODE2
  terminationGracePeriodSeconds: 1
  volumes: [{name: scratch, emptyDir: {}}]
  containers: [{name: scratch, image: "registry.k8s.io/pause:3.10", volumeMounts: [{name: scratch, mountPath: /scratch}]}]
`

// TestDrain: a disruption budget blocks its own node only, and the status names it; no interrupt starts before the last pod is
// gone, however long that takes.
func TestDrain(t *testing.T) {
	const name = "drain"
	nodes := cluster.ShareInterruptibleNodes(t, 2)
	cluster.RequireService(t, nodes[1], "cron")
	selectNodes(t, name, nodes...)
	cluster.ApplyUntilCleanup(t, suite.OnNodes(workloads, nodes...))
	cluster.Kubectl(t, "rollout", "status", "statefulset/store", "--timeout="+suite.Timeout.String())
	cluster.Kubectl(t, "wait", "--for=condition=Ready", "pod/slow", "pod/scratch", "--timeout="+suite.Timeout.String())
	cluster.Apply(t, suite.Manifest(name, "", interruptingPackage("{type: service, services: [cron]}")))

	early := ""
	suite.Eventually(t, "the slow pod is gone", func() error {
		before := cluster.Exec(t, nodes[1], "cat /var/log/driver 2>/dev/null || true")
		out, err := cluster.TryKubectl("", "get", "pod", "slow", "--ignore-not-found", "-o", "name")
		if err == nil && out != "" {
			early += before // the pod was still there after the host was read
			err = fmt.Errorf("%s is there", out)
		}
		return err
	})
	if early != "" {
		t.Errorf("work began beside a pod that was still there: %s", early)
	}
	cluster.EventuallyPrints(t, "the second node completes without the first, whose status names the budget", func(out string) bool {
		return strings.HasPrefix(out, "complete ") && strings.Contains(out, suite.Namespace+"/store-0 cannot be evicted now") && strings.Contains(out, "disruption budget store")
	}, "get", "skyhook", name, "-o", "jsonpath={.status.nodeStatus."+strings.ReplaceAll(nodes[1], ".", `\.`)+"} {.status.conditions}")
	if got := cluster.Kubectl(t, "get", "pod", "scratch", "--ignore-not-found", "-o", "name"); got != "" {
		t.Errorf("%s was not evicted", got)
	}
	requireStages(t, nodes[0], "")
	cluster.Kubectl(t, "delete", "poddisruptionbudget", "store")
	cluster.WaitComplete(t, name)
	cluster.RemoveSkyhook(t, name)
}

const sharedPolicy = `
apiVersion: skyhook.nvidia.com/v1alpha1
kind: DeploymentPolicy
metadata: {name: one-at-a-time}
spec:
  scope: Policy
  default: {budget: {count: 1}, strategy: {fixed: {}}}
`

// TestSharedPolicy: two Skyhooks that reboot different nodes under one shared policy never interrupt two nodes at the same time.
func TestSharedPolicy(t *testing.T) {
	nodes := cluster.ShareInterruptibleNodes(t, 2)
	skyhooks := map[string]string{"share-a": nodes[0], "share-b": nodes[1]}
	cluster.Apply(t, sharedPolicy)
	for name, n := range skyhooks {
		selectNodes(t, name, n)
	}
	watch := watchNodes(t, nodes...)
	for name := range skyhooks {
		cluster.Apply(t, suite.Manifest(name, "\n  deploymentPolicy: one-at-a-time", interruptingPackage("{type: reboot}")))
	}
	for name := range skyhooks {
		cluster.WaitComplete(t, name)
	}
	watch.requireOneReboot(t)
	cluster.Kubectl(t, "delete", "deploymentpolicy", "one-at-a-time", "--wait=false")
	cluster.EventuallyPrints(t, "the policy names its users", func(message string) bool {
		return strings.Contains(message, "Skyhook/share-a, Skyhook/share-b")
	}, "get", "deploymentpolicy", "one-at-a-time", "-o", `jsonpath={.status.conditions[?(@.type=="DeletionBlocked")].message}`)
	for name := range skyhooks {
		cluster.RemoveSkyhook(t, name)
	}
	cluster.Kubectl(t, "wait", "--for=delete", "deploymentpolicy/one-at-a-time", "--timeout="+suite.Timeout.String())
}
