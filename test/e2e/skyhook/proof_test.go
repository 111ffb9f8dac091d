// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/test/e2e/suite"
)

// deviceDaemonSet is a DaemonSet for the nodes of a Skyhook, ready on a node while a file is there that a boot removes.
func deviceDaemonSet(skyhook string) string {
	return strings.ReplaceAll(`
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: device-SKYHOOK}
spec:
  selector: {matchLabels: {app: device-SKYHOOK}}
  template:
    metadata: {labels: {app: device-SKYHOOK}}
    spec:
      nodeSelector: {e2e: SKYHOOK}
      terminationGracePeriodSeconds: 0
      containers:
      - name: device
        image: `+suite.ToolsImage+`
        command: [sleep, "100000000"]
        readinessProbe: {exec: {command: [test, -e, /host/run/e2e-device]}, periodSeconds: 1}
        volumeMounts: [{name: run, mountPath: /host/run}]
      volumes: [{name: run, hostPath: {path: /run}}]
`, "SKYHOOK", skyhook)
}

// TestProof reboots a node on which a DaemonSet does not come back. The node stays cordoned, and counts as failed after the timeout. It
// is given back when the pod is ready and an external validator has set its condition.
func TestProof(t *testing.T) {
	const name = "proven"
	n := cluster.ShareInterruptibleNodes(t, 1)[0]
	selectNodes(t, name, n)
	cluster.Exec(t, n, "touch /run/e2e-device")
	cluster.ApplyUntilCleanup(t, deviceDaemonSet(name))
	cluster.Kubectl(t, "rollout", "status", "daemonset/device-"+name, "--timeout="+suite.Timeout.String())
	proof := fmt.Sprintf("\n  proof: {daemonSets: [%s/device-%s], nodeConditions: [example.com/Validated], timeout: 20s}", suite.Namespace, name)
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
	cluster.WaitErroring(t, name, "DaemonSet "+suite.Namespace+"/device-"+name+" has no ready pod on the node for 20s; the node is not given back")
	requireCordoned := func(before string) {
		t.Helper()
		if cluster.Kubectl(t, "get", "node", n, "-o", "jsonpath={.spec.unschedulable}") != "true" {
			t.Errorf("the node is schedulable before %s", before)
		}
	}
	requireCordoned("the DaemonSet is back")
	plugin := suite.BuildPlugin(t)
	if out, err := cluster.Command(plugin, "why", n).CombinedOutput(); err != nil || !strings.Contains(string(out), "ProofFailed") {
		t.Errorf("why: %v: %s", err, out)
	}

	setCondition("False") // the validator looks again, and is the last that is waited for
	cluster.Exec(t, n, "touch /run/e2e-device")
	cluster.WaitErroring(t, name, "condition example.com/Validated of the node is False")
	cluster.Kubectl(t, "rollout", "status", "daemonset/device-"+name, "--timeout="+suite.Timeout.String())
	requireCordoned("the validator has found it good")
	setCondition("True")
	cluster.WaitComplete(t, name)
	watch.requireOneReboot(t)
	requireStages(t, n, "apply config post-interrupt")
	cluster.RemoveSkyhook(t, name)
}

// lockDaemonSet has a pod on each node of a Skyhook with the label KEY=yes that holds a lock on a file of the host, as drivers are held.
const lockDaemonSet = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: lock-SKYHOOK}
spec:
  selector: {matchLabels: {app: lock-SKYHOOK}}
  template:
    metadata: {labels: {app: lock-SKYHOOK}}
    spec:
      nodeSelector: {e2e: SKYHOOK, KEY: "yes"}
      terminationGracePeriodSeconds: 2
      containers:
      - name: lock
        image: IMAGE
        command: [chroot, /host, flock, /run/e2e-lock, sleep, "100000000"]
        readinessProbe: {exec: {command: [sh, -c, "! chroot /host flock --nonblock /run/e2e-lock true"]}, periodSeconds: 1}
        securityContext: {privileged: true}
        volumeMounts: [{name: host, mountPath: /host}]
      volumes: [{name: host, hostPath: {path: /}}]
`

// TestSetLabels: a package needs a lock that the pod of a DaemonSet holds, and gets it because labels turn the pod away while the node is
// held. The labels are as before whenever the Skyhook is complete, though the operator is killed fifty times, and after a deletion in the middle.
func TestSetLabels(t *testing.T) {
	const name, key = "unlocked", "e2e.example.com/deploy"
	kills, take := 50, cluster.InterruptibleNodes
	if testing.Short() {
		kills, take = 0, cluster.ShareInterruptibleNodes
	}
	n := take(t, 1)[0]
	cluster.RequireService(t, n, "cron")
	selectNodes(t, name, n)
	cluster.Label(t, key+"=yes", n)
	cluster.ApplyUntilCleanup(t, strings.NewReplacer("SKYHOOK", name, "KEY", key, "IMAGE", suite.ToolsImage).Replace(lockDaemonSet))
	requireLocked := func() {
		t.Helper()
		cluster.Kubectl(t, "rollout", "status", "daemonset/lock-"+name, "--timeout="+suite.Timeout.String())
		if _, err := cluster.TryExec(n, "flock --nonblock /run/e2e-lock true"); err == nil {
			t.Error("nobody holds the lock")
		}
	}
	label := func() string {
		return cluster.Kubectl(t, "get", "node", n, "-o", `jsonpath={.metadata.labels.e2e\.example\.com/deploy}`)
	}
	rollOut := func(round int, script string) {
		cluster.Apply(t, suite.Manifest(name, "\n  profile: Recommended\n  nodeMarks: {labels: {"+key+": paused}}", fmt.Sprintf(`
    driver:
      version: 1.%d.0
      image: %s
      retries: 0
      interrupt: {type: service, services: [cron]}
      configMap: {apply.sh: %[3]q, upgrade.sh: %[3]q}`, round%2, shellscript, script)))
	}
	requireLocked()
	random := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	for round := 0; round == 0 || kills > 0; round++ {
		rollOut(round, fmt.Sprintf("flock --nonblock /run/e2e-lock sleep 1 && echo %d >> /var/log/stages", round))
		for range min(kills, 4) {
			time.Sleep(time.Duration(200+random.IntN(6000)) * time.Millisecond)
			cluster.KillOperators(t)
			kills--
		}
		cluster.WaitComplete(t, name)
		if got := label(); got != "yes" {
			t.Fatalf("after round %d the label is %q", round, got)
		}
		requireLocked()
		if got := cluster.Exec(t, n, "tail -n 1 /var/log/stages"); got != strconv.Itoa(round) {
			t.Fatalf("the last package that had the lock was that of round %s, want %d", got, round)
		}
	}

	rollOut(1, "sleep 100000000")
	cluster.EventuallyPrints(t, "the label is set", func(out string) bool { return out == "paused" },
		"get", "node", n, "-o", `jsonpath={.metadata.labels.e2e\.example\.com/deploy}`)
	cluster.RemoveSkyhook(t, name)
	if got := label(); got != "yes" {
		t.Errorf("after the deletion the label is %q", got)
	}
	requireLocked()
}

// lens is a kind that the operator knows nothing of.
const lens = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: lenses.e2e.example.com}
spec:
  group: e2e.example.com
  names: {kind: Lens, listKind: LensList, plural: lenses, singular: lens}
  scope: Cluster
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// lensReader grants the operator the right to read them.
const lensReader = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: e2e-reads-lenses, labels: {skyhook.nvidia.com/aggregate-to-operator: "true"}}
rules: [{apiGroups: [e2e.example.com], resources: [lenses], verbs: [get, list]}]
`

// TestProofOfObjects asks about an object of a foreign kind, named like the node. The node stays until an administrator grants the right
// to read it, the object exists, and the expression is true.
func TestProofOfObjects(t *testing.T) {
	const name = "focused"
	n := cluster.ShareInterruptibleNodes(t, 1)[0]
	selectNodes(t, name, n)
	cluster.ApplyUntilCleanup(t, lens)
	cluster.Kubectl(t, "wait", "--for=condition=Established", "crd/lenses.e2e.example.com", "--timeout="+suite.Timeout.String())
	proof := `
  proof: {objects: [{apiVersion: e2e.example.com/v1, kind: Lens, name: $(NODE_NAME), cel: "object.serial == node.status.nodeInfo.machineID"}], timeout: 1s}`
	cluster.Apply(t, suite.Manifest(name, proof, "{lens: {version: 1.0.0, image: "+shellscript+", configMap: {apply.sh: \"true\"}}}"))
	cluster.WaitErroring(t, name, `may not be read: grant "get" on lenses.e2e.example.com in a ClusterRole with the label skyhook.nvidia.com/aggregate-to-operator=true`)
	cluster.ApplyUntilCleanup(t, lensReader)
	cluster.WaitErroring(t, name, "Lens "+n+" does not exist")
	cluster.ApplyUntilCleanup(t, "apiVersion: e2e.example.com/v1\nkind: Lens\nmetadata: {name: "+n+"}\nserial: other")
	cluster.WaitErroring(t, name, "Lens "+n+" does not meet object.serial == node.status.nodeInfo.machineID")
	id := cluster.Kubectl(t, "get", "node", n, "-o", "jsonpath={.status.nodeInfo.machineID}")
	cluster.Kubectl(t, "patch", "lens", n, "--type=merge", "-p", `{"serial": "`+id+`"}`)
	cluster.WaitComplete(t, name)
	cluster.RemoveSkyhook(t, name)
}
