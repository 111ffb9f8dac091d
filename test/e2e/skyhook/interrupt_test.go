// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook_test

import (
	"strings"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/test/e2e/suite"
)

// TestServiceInterrupt restarts a service, and then the container runtime that runs the agent: exactly once each.
func TestServiceInterrupt(t *testing.T) {
	const name = "service"
	n := cluster.ShareInterruptibleNodes(t, 1)[0]
	for _, unit := range []string{"cron", "containerd"} {
		t.Run(unit, func(t *testing.T) {
			cluster.RequireService(t, n, unit)
			selectNodes(t, name, n)
			unrelated := invocation(t, n, "dbus")
			stop := collectValues(func() (string, error) {
				return cluster.TryExec(n, "systemctl show -p InvocationID --value "+unit)
			})
			cluster.Apply(t, suite.Manifest(name, "", interruptingPackage("{type: service, services: ["+unit+"]}")))
			cluster.WaitComplete(t, name)
			if ids := stop(); len(ids) != 2 {
				t.Errorf("%s had the invocations %v, want one before and one after a single restart", unit, ids)
			}
			if invocation(t, n, "dbus") != unrelated {
				t.Error("a service was restarted that the interrupt does not name")
			}
			requireStages(t, n, "apply config post-interrupt")
			cluster.RemoveSkyhook(t, name)
		})
	}
}

// protectedWorkloads are a Deployment with a disruption budget, and a pod that must not be interrupted.
const protectedWorkloads = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      nodeSelector: {e2e: reboot}
      terminationGracePeriodSeconds: 2
      topologySpreadConstraints: [{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: web}}}]
      containers: [{name: web, image: "registry.k8s.io/pause:3.10"}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 2, selector: {matchLabels: {app: web}}}
---
apiVersion: v1
kind: Pod
metadata: {name: training, labels: {protect: "yes"}}
spec:
  nodeName: NODE1
  terminationGracePeriodSeconds: 1
  containers: [{name: training, image: "registry.k8s.io/pause:3.10"}]
`

// TestRebootInterrupt reboots two nodes, one at a time: it waits for a protected pod, respects a disruption budget, and each
// node boots exactly once more.
func TestRebootInterrupt(t *testing.T) {
	const name = "reboot"
	nodes := cluster.ShareInterruptibleNodes(t, 2)
	selectNodes(t, name, nodes...)
	cluster.ApplyUntilCleanup(t, suite.OnNodes(protectedWorkloads, nodes...))
	cluster.Kubectl(t, "rollout", "status", "deployment/web", "--timeout="+suite.Timeout.String())
	cluster.Kubectl(t, "wait", "--for=condition=Ready", "pod/training", "--timeout="+suite.Timeout.String())

	watch := watchNodes(t, nodes...)
	fewest := 3
	stopWeb := watchObjects(t, func(o object, _ bool) { fewest = min(fewest, o.Status.AvailableReplicas) }, "deployments", "web")
	cluster.Apply(t, suite.Manifest(name, `
  interruptionBudget: {count: 1}
  podNonInterruptLabels: {matchLabels: {protect: "yes"}}`, interruptingPackage("{type: reboot}")))

	cluster.EventuallyPrints(t, "the first node is cordoned", func(cordoned string) bool { return cordoned == "true" },
		"get", "node", nodes[0], "-o", "jsonpath={.spec.unschedulable}")
	cluster.EventuallyPrints(t, "the status names the protected pod", func(conditions string) bool {
		return strings.Contains(conditions, suite.Namespace+"/training")
	}, "get", "skyhook", name, "-o", "jsonpath={.status.conditions}")
	time.Sleep(5 * time.Second)
	requireStages(t, nodes[0], "")
	cluster.Kubectl(t, "delete", "pod", "training")
	cluster.WaitComplete(t, name)

	watch.requireOneReboot(t)
	if stopWeb(); fewest < 2 {
		t.Errorf("the disruption budget of the deployment was violated: %d replicas available", fewest)
	}
	for _, n := range nodes {
		requireStages(t, n, "apply config post-interrupt")
	}
	cluster.RemoveSkyhook(t, name)
}

// TestForeignCordon: a node that an administrator cordoned is still cordoned afterwards.
func TestForeignCordon(t *testing.T) {
	const name = "foreign"
	n := cluster.ShareInterruptibleNodes(t, 1)[0]
	cluster.RequireService(t, n, "cron")
	selectNodes(t, name, n)
	cluster.Kubectl(t, "cordon", n)
	t.Cleanup(func() { _, _ = cluster.TryKubectl("", "uncordon", n) })
	cluster.Apply(t, suite.Manifest(name, "", interruptingPackage("{type: service, services: [cron]}")))
	cluster.WaitComplete(t, name)
	if got := cluster.Kubectl(t, "get", "node", n, "-o", "jsonpath={.spec.unschedulable}"); got != "true" {
		t.Error("an administrator's cordon was removed")
	}
	cluster.Kubectl(t, "uncordon", n)
	cluster.RemoveSkyhook(t, name)
}

// TestHandsOff: under Recommended a node is not rebooted that NVSentinel quarantines, with a cordon and a label. The other one is. It
// stays untouched while only the cordon is left, and its turn comes within seconds when it is released.
func TestHandsOff(t *testing.T) {
	const name, label = "hands-off", "dgxc.nvidia.com/nvsentinel-state"
	nodes := cluster.ShareInterruptibleNodes(t, 2)
	taken, other := nodes[0], nodes[1]
	boot, before := cluster.BootID(t, taken), cluster.BootID(t, other)
	selectNodes(t, name, nodes...)
	release := func() {
		_, _ = cluster.TryKubectl("", "label", "node", taken, label+"-")
		_, _ = cluster.TryKubectl("", "uncordon", taken)
	}
	t.Cleanup(release)
	cluster.Kubectl(t, "cordon", taken)
	cluster.Kubectl(t, "label", "node", taken, label+"=quarantined")
	cluster.Apply(t, suite.Manifest(name, "\n  profile: Recommended\n  interruptionBudget: {count: 2}", interruptingPackage("{type: reboot}")))
	cluster.WaitBoot(t, other, before)
	cluster.EventuallyPrints(t, "the other node is complete", func(out string) bool { return out == "complete" },
		"get", "node", other, "-o", `jsonpath={.metadata.annotations.skyhook\.nvidia\.com/status_`+name+`}`)
	out, err := cluster.Command(suite.BuildPlugin(t), "why", taken).CombinedOutput()
	if why := string(out); err != nil || !strings.Contains(why, "InOthersCare") || !strings.Contains(why, label) || cluster.BootID(t, taken) != boot {
		t.Errorf("the quarantined node: boot %s, before %s: %v\n%s", cluster.BootID(t, taken), boot, err, why)
	}
	cluster.Kubectl(t, "label", "node", taken, label+"-")
	time.Sleep(5 * time.Second)
	requireStages(t, taken, "")
	release()
	released := time.Now()
	cluster.EventuallyPrints(t, "the visit begins", func(record string) bool { return record != "" },
		"get", "node", taken, "-o", `jsonpath={.metadata.annotations.skyhook\.nvidia\.com/record_`+name+`}`)
	if late := time.Since(released); late > 5*time.Second {
		t.Errorf("the visit begins %s after the release", late)
	}
	cluster.WaitComplete(t, name)
	cluster.RemoveSkyhook(t, name)
}
