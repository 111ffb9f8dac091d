// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package nodeop tests NodeOps and upgrades on real systemd nodes: nodes really drain, commands really run on hosts, hosts really
// reboot.
package nodeop_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/test/cluster/faults"
	"github.com/skyhook-k8s/skyhook/test/e2e/suite"
)

var cluster *suite.Cluster

func TestMain(m *testing.M) { suite.Main(m, &cluster, suite.WithOperator) }

// status is what tests read of a NodeOp or NodeOpUpgrade.
type status struct {
	Phase                             string
	Total, Completed, Failed, Skipped int
	Message                           string
	NodeStatuses                      map[string]struct {
		Phase, JobName, Message, RebootStatus, Output, CurrentVersion, TargetVersion string
		ExitCode                                                                     *int
		StartTime, CompletionTime                                                    time.Time
	}
}

// waitPhase waits until an operation has ended, and fails the test unless it ended in this phase.
func waitPhase(t *testing.T, kind, name, phase string) status {
	t.Helper()
	var o struct{ Status status }
	suite.Eventually(t, kind+" "+name+" ends", func() error {
		o.Status = status{}
		err := cluster.Get(&o, kind, name)
		if err == nil && o.Status.Phase != "Completed" && o.Status.Phase != "Failed" {
			err = fmt.Errorf("its status is %+v", o.Status)
		}
		return err
	})
	if o.Status.Phase != phase {
		t.Fatalf("%s %s ended with %+v, want %s", kind, name, o.Status, phase)
	}
	return o.Status
}

func remove(t *testing.T, kind, name string) {
	t.Helper()
	cluster.Kubectl(t, "delete", kind, name, "--timeout="+suite.Timeout.String())
}

// requireReleased waits until a node is schedulable and has no record of a NodeOp.
func requireReleased(t *testing.T, nodes ...string) {
	t.Helper()
	for _, n := range nodes {
		cluster.EventuallyPrints(t, n+" is released", func(out string) bool {
			return !strings.HasPrefix(out, "true") && !strings.Contains(out, "operator.kairos.io/record-") && !strings.Contains(out, "operator.kairos.io/cordoned-by")
		}, "get", "node", n, "-o", "jsonpath={.spec.unschedulable} {.metadata.annotations}")
	}
}

// bootIDs returns the boot id of each node.
func bootIDs(t *testing.T, nodes ...string) map[string]string {
	t.Helper()
	ids := map[string]string{}
	for _, n := range nodes {
		ids[n] = cluster.BootID(t, n)
	}
	return ids
}

// example is the documented NodeOp, word for word but for its comments.
const example = `
apiVersion: operator.kairos.io/v1alpha1
kind: NodeOp
metadata:
  name: example-nodeop
  namespace: default
spec:
  nodeSelector:
    matchLabels:
      kairos.io/managed: "true"
    matchExpressions:
    - key: node-role.kubernetes.io/control-plane
      operator: In
      values: ["true"]
  image: busybox:latest
  imagePullSecrets:
  - name: private-registry-secret
  command:
    - sh
    - -c
    - |
      echo "Running on node $(hostname)"
      ls -la /host/etc/kairos-release
      cat /host/etc/kairos-release
  hostMountPath: /host
  cordon: true
  drainOptions:
    enabled: true
    force: false
    gracePeriodSeconds: 30
    ignoreDaemonSets: true
    deleteEmptyDirData: false
    timeoutSeconds: 300
  rebootOnSuccess: true
  backoffLimit: 3
  concurrency: 1
  stopOnFailure: true
`

const controlPlane = "node-role.kubernetes.io/control-plane=true"

// TestExample applies the documented example: of the nodes that run Kairos it selects the control plane.
func TestExample(t *testing.T) {
	nodes := cluster.InterruptibleNodes(t, 2)
	cluster.Label(t, controlPlane, nodes[0])
	installKairos(t, oldRelease, nodes...)
	before := bootIDs(t, nodes...)
	cluster.Apply(t, example)
	got := waitPhase(t, "nodeop", "example-nodeop", "Completed")
	if got.Completed != 1 || got.NodeStatuses[nodes[0]].Message != "Job and reboot completed successfully" {
		t.Errorf("it ended with %+v", got)
	}
	if after := bootIDs(t, nodes...); after[nodes[0]] == before[nodes[0]] || after[nodes[1]] != before[nodes[1]] {
		t.Error("only the control plane was expected to reboot")
	}
	requireReleased(t, nodes...)
	remove(t, "nodeop", "example-nodeop")
}

// privateImage is the documented example of a private registry, word for word but for its comments.
const privateImage = `
apiVersion: operator.kairos.io/v1alpha1
kind: NodeOp
metadata:
  name: operation-with-private-image
  namespace: default
spec:
  image: private-registry.example.com/kairos/opensuse:leap-15.6-standard-amd64-generic-v3.4.2-k3sv1.30.11-k3s1
  imagePullSecrets:
  - name: private-registry-secret
  nodeSelector:
    matchLabels:
      kairos.io/managed: "true"
  concurrency: 1
  stopOnFailure: true
  rebootOnSuccess: true
  cordon: true
  drainOptions:
    enabled: true
    force: false
    gracePeriodSeconds: 30
    ignoreDaemonSets: true
    deleteEmptyDirData: false
    timeoutSeconds: 300
  command:
    - /bin/sh
    - -c
    - |
      #!/bin/bash
      echo "Running on node $(hostname)"
      ls -la /host/etc/kairos-release
      cat /host/etc/kairos-release
`

// TestTwoNodes applies the documented example to all nodes that run Kairos: the control plane reboots first, then the other
// node, each once. While the first one reboots the API server is unavailable too, where the cluster can simulate that. The operator
// is on neither: it may go down with its node before it has reported that this reboots.
func TestTwoNodes(t *testing.T) {
	const name = "operation-with-private-image"
	nodes := slices.Clone(cluster.InterruptibleNodes(t, 3))
	if i := slices.Index(nodes, cluster.OperatorNodes(t)[0]); i >= 0 {
		nodes[i], nodes[2] = nodes[2], nodes[i]
	}
	selected, other := nodes[:2], nodes[2]
	cluster.Label(t, controlPlane, nodes[0])
	installKairos(t, oldRelease, selected...)
	before := bootIDs(t, nodes...)
	cluster.Apply(t, privateImage)
	cluster.EventuallyPrints(t, "the first node reboots", func(out string) bool { return out == "Completed pending" },
		"get", "nodeop", name, "-o", "jsonpath="+nodePath(nodes[0], "phase")+" "+nodePath(nodes[0], "rebootStatus")+" "+nodePath(nodes[1], "phase"))
	if cluster.IsOurs() {
		interruptAPIServer(t, 20*time.Second)
	}
	got := waitPhase(t, "nodeop", name, "Completed")
	if got.Completed != 2 {
		t.Errorf("it ended with %+v", got)
	}
	after := bootIDs(t, nodes...)
	for _, n := range selected {
		status := got.NodeStatuses[n]
		if after[n] == before[n] || status.Message != "Job and reboot completed successfully" {
			t.Errorf("%s did not reboot: %+v", n, status)
		}
		if log := cluster.Kubectl(t, "logs", "job/"+status.JobName, "-c", "nodeop"); !strings.Contains(log, "KAIROS_VERSION=v3.0.0") {
			t.Errorf("the logs of %s are %q", n, log)
		}
		if files := cluster.Exec(t, n, "ls /usr/local/.kairos | wc -l"); files != "0" {
			t.Errorf("%s files are left on %s", files, n)
		}
	}
	if first, second := got.NodeStatuses[nodes[0]], got.NodeStatuses[nodes[1]]; second.StartTime.Before(first.CompletionTime.Truncate(time.Second)) {
		t.Errorf("the second node started at %s, and the first ended at %s", second.StartTime, first.CompletionTime)
	}
	if after[other] != before[other] {
		t.Errorf("%s rebooted, and is not selected", other)
	}
	requireReleased(t, nodes...)
	if jobs := cluster.Kubectl(t, "get", "jobs", "-o", "name"); strings.Count(jobs, "\n")+1 != 2 {
		t.Errorf("there are the Jobs %s", jobs)
	}
	remove(t, "nodeop", name)
}

// nodePath is the JSON path of a field of a node's status.
func nodePath(node, field string) string {
	return "{.status.nodeStatuses." + strings.ReplaceAll(node, ".", `\.`) + "." + field + "}"
}

// interruptAPIServer has the API server refuse all requests for a while.
func interruptAPIServer(t *testing.T, d time.Duration) {
	t.Helper()
	machines := cluster.LocalCluster(t, "interrupting the API server")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute+d)
	defer cancel()
	if err := machines.SetFaults(ctx, faults.Fault{Status: 503}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := machines.SetFaults(ctx); err != nil {
			t.Fatal(err)
		}
	}()
	time.Sleep(d)
}

// guardedDeployment is a Deployment whose disruption budget allows no eviction at first.
const guardedDeployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      nodeSelector: {e2e: drain}
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, nodeTaintsPolicy: Honor, labelSelector: {matchLabels: {app: web}}}
      containers: [{name: web, image: "registry.k8s.io/pause:3.10"}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 2, selector: {matchLabels: {app: web}}}
`

// TestDrain waits for a disruption budget, reports the pod that it waits for, and continues when the budget allows it. The
// command runs after the node's pods were evicted.
func TestDrain(t *testing.T) {
	nodes := cluster.InterruptibleNodes(t, 3)
	drained := nodes[1]
	cluster.Label(t, "e2e=drain", nodes[1:]...)
	cluster.Label(t, "e2e-drained=true", drained)
	cluster.ApplyUntilCleanup(t, guardedDeployment)
	cluster.Kubectl(t, "rollout", "status", "deployment/web", "--timeout="+suite.Timeout.String())
	cluster.Apply(t, `
apiVersion: operator.kairos.io/v1alpha1
kind: NodeOp
metadata: {name: drains}
spec:
  nodeSelector: {matchLabels: {e2e-drained: "true"}}
  image: busybox:latest
  command: [sh, -c, "true"]
  cordon: true
  drainOptions: {enabled: true, gracePeriodSeconds: 5}
`)
	cluster.EventuallyPrints(t, "the budget refuses the eviction", func(out string) bool {
		return strings.HasPrefix(out, "Pending: ") && strings.Contains(out, suite.Namespace+"/web-") && strings.Contains(out, "budget")
	}, "get", "nodeop", "drains", "-o", "jsonpath="+nodePath(drained, "phase")+": "+nodePath(drained, "message"))
	if jobs := cluster.Kubectl(t, "get", "jobs", "-o", "name"); jobs != "" {
		t.Errorf("it does not wait: %s", jobs)
	}
	cluster.Kubectl(t, "patch", "pdb", "web", "--type=merge", "-p", `{"spec":{"minAvailable":1}}`)
	waitPhase(t, "nodeop", "drains", "Completed")
	cluster.Kubectl(t, "rollout", "status", "deployment/web", "--timeout="+suite.Timeout.String())
	if out := cluster.Kubectl(t, "get", "pods", "-l", "app=web", "--field-selector=spec.nodeName="+drained, "-o", "name"); out != "" {
		t.Errorf("%s still has %s", drained, out)
	}
	requireReleased(t, nodes...)
	remove(t, "nodeop", "drains")
}

// TestCanary stops at the first node that fails, and leaves it cordoned until the NodeOp is deleted.
func TestCanary(t *testing.T) {
	nodes := cluster.ShareInterruptibleNodes(t, 2)
	cluster.Label(t, controlPlane, nodes[0]) // so that it is first
	cluster.Label(t, "e2e=canary", nodes...)
	cluster.Apply(t, `
apiVersion: operator.kairos.io/v1alpha1
kind: NodeOp
metadata: {name: canary}
spec:
  nodeSelector: {matchLabels: {e2e: canary}}
  image: busybox:latest
  command: [sh, -c, "echo no such disk; exit 3"]
  cordon: true
  backoffLimit: 0
  concurrency: 1
  stopOnFailure: true
`)
	got := waitPhase(t, "nodeop", "canary", "Failed")
	first := got.NodeStatuses[nodes[0]]
	if len(got.NodeStatuses) != 1 || first.Message != "Job failed" || first.ExitCode == nil || *first.ExitCode != 3 || !strings.Contains(first.Output, "no such disk") {
		t.Errorf("it ended with %+v", got)
	}
	if cordoned := cluster.Kubectl(t, "get", "node", nodes[0], "-o", "jsonpath={.spec.unschedulable}"); cordoned != "true" {
		t.Error("the failed node is not cordoned any more")
	}
	remove(t, "nodeop", "canary")
	requireReleased(t, nodes...)
}

// TestOperatorKilled kills the operator at every step of a NodeOp that drains and reboots: its command runs once on each node,
// and each node reboots once.
func TestOperatorKilled(t *testing.T) {
	nodes := cluster.InterruptibleNodes(t, 3)
	selected := nodes[1:]
	cluster.Label(t, "e2e=killed", selected...)
	for _, n := range selected {
		cluster.Exec(t, n, "rm -f /var/log/nodeop")
	}
	before := bootIDs(t, selected...)
	cluster.Apply(t, `
apiVersion: operator.kairos.io/v1alpha1
kind: NodeOp
metadata: {name: killed}
spec:
  nodeSelector: {matchLabels: {e2e: killed}}
  image: busybox:latest
  command: [sh, -c, "echo once >> /host/var/log/nodeop; sleep 3"]
  cordon: true
  drainOptions: {enabled: true, deleteEmptyDirData: true}
  rebootOnSuccess: true
  concurrency: 1
  preflight: {command: [sh, -c, "echo ready"]}
`)
	steps := map[string]bool{}
	cluster.EventuallyPrints(t, "it ends though the operator is killed at every step", func(step string) bool {
		if !steps[step] {
			steps[step] = true
			cluster.KillOperators(t)
		}
		return strings.HasPrefix(step, "Completed")
	}, "get", "nodeop", "killed", "-o", "jsonpath={.status.phase} {.status.nodeStatuses.*.phase} {.status.nodeStatuses.*.rebootStatus}")
	if len(steps) < 5 {
		t.Errorf("the operator was killed at these steps only: %v", steps)
	}
	for _, n := range selected {
		if got := cluster.Exec(t, n, "cat /var/log/nodeop"); got != "once" {
			t.Errorf("the command ran on %s: %q", n, got)
		}
		message := cluster.Kubectl(t, "get", "pods", "-l", "kairos.io/reboot=true,kairos.io/nodeop=killed,kairos.io/node="+n, "-o", "jsonpath={.items[*].status.containerStatuses[0].state.terminated.message}")
		if want := fmt.Sprintf(`"bootIDs":{"from":"%s","to":"%s"}`, before[n], cluster.BootID(t, n)); !strings.Contains(message, want) {
			t.Errorf("%s rebooted more than once, or not: want %s in %s", n, want, message)
		}
	}
	requireReleased(t, nodes...)
	remove(t, "nodeop", "killed")
}
