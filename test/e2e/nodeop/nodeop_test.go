// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/test/cluster/faults"
)

// labelled gives nodes a label for the time of a test.
func labelled(t *testing.T, label string, on ...string) {
	t.Helper()
	key, _, _ := strings.Cut(label, "=")
	for _, n := range on {
		must(t, "label", "node", n, label, "--overwrite")
	}
	t.Cleanup(func() {
		for _, n := range on {
			if out, err := kube("", "label", "node", n, key+"-"); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		}
	})
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

// TestExample applies the documented example, and the documented one for all nodes, while a disruption budget protects
// what runs there: the control plane reboots first, then the other, each once, one after the other. While the first is
// down the API server is not there either.
func TestExample(t *testing.T) {
	labelled(t, "kairos.io/managed=true", "n1", "n2")
	for _, n := range []string{"n1", "n2"} {
		on(t, n, "echo KAIROS_VERSION=v1 > /etc/kairos-release")
	}
	apply(t, guarded)
	t.Cleanup(func() { _, _ = kube(guarded, "delete", "-f", "-", "--wait=false") })
	must(t, "rollout", "status", "deployment/web", "--timeout=240s")
	before := map[string]string{"n1": boot(t, "n1"), "n2": boot(t, "n2"), "n3": boot(t, "n3")}
	everywhere := strings.Replace(example, "    matchExpressions:\n    - key: node-role.kubernetes.io/control-plane\n      operator: In\n      values: [\"true\"]\n", "", 1)
	apply(t, everywhere)
	eventually(t, "n1 reboots", func() error {
		out, err := kube("", "get", "nodeop", "example-nodeop", "-o", "jsonpath={.status.nodeStatuses.n1.phase} {.status.nodeStatuses.n1.rebootStatus} {.status.nodeStatuses.n2.phase}")
		if err == nil && out != "Completed pending" {
			err = fmt.Errorf("%s", out)
		}
		return err
	})
	must(t, "get", "pdb", "web", "-o", "jsonpath={.status.currentHealthy}")
	down(t, 20*time.Second)
	got := ends(t, "nodeop", "example-nodeop", "Completed")
	if got.Completed != 2 {
		t.Errorf("it ended as %+v", got)
	}
	for _, n := range []string{"n1", "n2"} {
		if boot(t, n) == before[n] || got.NodeStatuses[n].Message != "Job and reboot completed successfully" {
			t.Errorf("%s did not reboot: %+v", n, got.NodeStatuses[n])
		}
		if said := must(t, "logs", "job/"+got.NodeStatuses[n].JobName, "-c", "nodeop"); !strings.Contains(said, "KAIROS_VERSION=v1") {
			t.Errorf("the logs of %s are %q", n, said)
		}
		if times := on(t, n, "ls /usr/local/.kairos | wc -l"); times != "0" {
			t.Errorf("%s files are left on %s", times, n)
		}
	}
	if boot(t, "n3") != before["n3"] {
		t.Error("n3 rebooted, and nobody selected it")
	}
	clean(t, nodes...)
	if jobs := must(t, "get", "jobs", "-o", "name"); strings.Count(jobs, "\n")+1 != 2 {
		t.Errorf("there are the Jobs %s", jobs)
	}
	must(t, "delete", "nodeop", "example-nodeop", "--timeout=240s")
}

const guarded = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: web, image: "registry.k8s.io/pause:3.10"}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web, namespace: default}
spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}
`

// down takes the API server away from everybody for a while.
func down(t *testing.T, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute+d)
	defer cancel()
	if err := cluster.SetFaults(ctx, faults.Fault{Status: 503}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cluster.SetFaults(ctx); err != nil {
			t.Fatal(err)
		}
	}()
	time.Sleep(d) // that is the story
}

// TestCanary stops at the first node that fails, and leaves it cordoned until the NodeOp is deleted.
func TestCanary(t *testing.T) {
	labelled(t, "story=canary", "n1", "n2")
	apply(t, `
apiVersion: operator.kairos.io/v1alpha1
kind: NodeOp
metadata: {name: canary, namespace: default}
spec:
  nodeSelector: {matchLabels: {story: canary}}
  image: busybox:latest
  command: [sh, -c, "echo no such disk; exit 3"]
  cordon: true
  backoffLimit: 0
  concurrency: 1
  stopOnFailure: true
`)
	got := ends(t, "nodeop", "canary", "Failed")
	n1 := got.NodeStatuses["n1"]
	if len(got.NodeStatuses) != 1 || n1.Message != "Job failed" || n1.ExitCode == nil || *n1.ExitCode != 3 || !strings.Contains(n1.Output, "no such disk") {
		t.Errorf("it ended as %+v", got)
	}
	if out := must(t, "get", "node", "n1", "-o", "jsonpath={.spec.unschedulable}"); out != "true" {
		t.Error("a node that failed is to stay cordoned")
	}
	must(t, "delete", "nodeop", "canary", "--timeout=240s")
	clean(t, nodes...)
}

// TestOperatorKilled kills the operator again and again while a NodeOp runs: its command runs once on each node.
func TestOperatorKilled(t *testing.T) {
	labelled(t, "story=killed", nodes...)
	for _, n := range nodes {
		on(t, n, "rm -f /var/log/nodeop")
	}
	apply(t, `
apiVersion: operator.kairos.io/v1alpha1
kind: NodeOp
metadata: {name: killed, namespace: default}
spec:
  nodeSelector: {matchLabels: {story: killed}}
  image: busybox:latest
  command: [sh, -c, "echo once >> /host/var/log/nodeop; sleep 3"]
  cordon: true
  concurrency: 1
  preflight: {command: [sh, -c, "echo ready"]}
`)
	steps := map[string]bool{}
	eventually(t, "it ends though the operator is killed at every step", func() error {
		out, err := kube("", "get", "nodeop", "killed", "-o", "jsonpath={.status.phase} {.status.nodeStatuses.*.phase}")
		if err != nil {
			return err
		}
		if !steps[out] {
			steps[out] = true
			if _, err := kube("", "-n", "skyhook", "delete", "pod", "-l", "app=skyhook-operator", "--force", "--grace-period=0"); err != nil {
				return err
			}
		}
		if !strings.HasPrefix(out, "Completed") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	if len(steps) < 4 {
		t.Errorf("it was killed at these steps only: %v", steps)
	}
	for _, n := range nodes {
		if got := on(t, n, "cat /var/log/nodeop"); got != "once" {
			t.Errorf("the command ran on %s: %q", n, got)
		}
	}
	clean(t, nodes...)
	must(t, "delete", "nodeop", "killed", "--timeout=240s")
}

// TestUpgrade upgrades a host that looks like Kairos, by every combination of flags. One that is up to date is skipped:
// no cordon, no Job, no reboot.
func TestUpgrade(t *testing.T) {
	labelled(t, "kairos.io/managed=true", "n3")
	upgrade := func(name, more string) status {
		t.Helper()
		apply(t, `
apiVersion: operator.kairos.io/v1alpha1
kind: NodeOpUpgrade
metadata: {name: `+name+`, namespace: default}
spec:
  image: `+kairos+`
  nodeSelector: {matchLabels: {kairos.io/managed: "true"}}
  concurrency: 1
  stopOnFailure: true
`+more)
		got := ends(t, "nodeopupgrade", name, "Completed")
		must(t, "delete", "nodeopupgrade", name, "--timeout=240s")
		return got
	}
	on(t, "n3", "echo KAIROS_VERSION=v3.0.0 > /etc/kairos-release; rm -f /var/log/kairos-agent")
	was := boot(t, "n3")
	got := upgrade("active", "")
	if n := got.NodeStatuses["n3"]; got.Completed != 1 || n.RebootStatus != "completed" || n.TargetVersion != "v3.4.2-k3sv1.30.11+k3s1" || boot(t, "n3") == was {
		t.Errorf("it ended as %+v", got)
	}
	was = boot(t, "n3")
	got = upgrade("again", "")
	if n := got.NodeStatuses["n3"]; got.Skipped != 1 || n.JobName != "" || n.Message != "Skipped by preflight: node is already at v3.4.2-k3sv1.30.11+k3s1" {
		t.Errorf("it ended as %+v", got)
	}
	got = upgrade("recovery", "  upgradeActive: false\n  upgradeRecovery: true\n")
	if got.Completed != 1 || boot(t, "n3") != was {
		t.Errorf("it ended as %+v, boot %s", got, boot(t, "n3"))
	}
	upgrade("both", "  upgradeRecovery: true\n")
	const plain, excludes = "upgrade --source dir:/", " --exclude-path /etc/hostname --exclude-path /etc/hosts"
	recovery := "upgrade --recovery --source dir:/" + excludes
	want := strings.Join([]string{plain + excludes, recovery, recovery, plain + excludes}, "\n")
	if calls := on(t, "n3", "cat /var/log/kairos-agent"); calls != want {
		t.Errorf("the agent was called\n%s\nwant\n%s", calls, want)
	}
	if _, err := kube(`{"apiVersion":"operator.kairos.io/v1alpha1","kind":"NodeOpUpgrade","metadata":{"name":"none","namespace":"default"},"spec":{"image":"x","upgradeActive":false}}`, "apply", "-f", "-"); err == nil || !strings.Contains(err.Error(), "nothing to upgrade") {
		t.Errorf("an upgrade of nothing is accepted: %v", err)
	}
	clean(t, nodes...)
}
