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

// TestExample applies the documented example, word for word: of the nodes that run Kairos it is for the control plane.
func TestExample(t *testing.T) {
	runsKairos(t, oldRelease, "n1", "n2")
	before := map[string]string{"n1": boot(t, "n1"), "n2": boot(t, "n2")}
	apply(t, example)
	got := ends(t, "nodeop", "example-nodeop", "Completed")
	if got.Completed != 1 || got.NodeStatuses["n1"].Message != "Job and reboot completed successfully" {
		t.Errorf("it ended as %+v", got)
	}
	if boot(t, "n1") == before["n1"] || boot(t, "n2") != before["n2"] {
		t.Error("the control plane reboots, and nobody else")
	}
	clean(t, nodes...)
	must(t, "delete", "nodeop", "example-nodeop", "--timeout=240s")
}

// privately is the documented example of a private registry, word for word but for its comments.
const privately = `
apiVersion: operator.kairos.io/v1alpha1
kind: NodeOp
metadata:
  name: operation-with-private-image
  namespace: default
spec:
  image: ` + private + `
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

// TestTwoNodes applies the documented example for all nodes that run Kairos: the control plane reboots first, then the
// other, each once, one after the other. While the first is down the API server is not there either.
func TestTwoNodes(t *testing.T) {
	runsKairos(t, oldRelease, "n1", "n2")
	before := map[string]string{"n1": boot(t, "n1"), "n2": boot(t, "n2"), "n3": boot(t, "n3")}
	apply(t, privately)
	eventually(t, "n1 reboots", func() error {
		out, err := kube("", "get", "nodeop", "operation-with-private-image", "-o", "jsonpath={.status.nodeStatuses.n1.phase} {.status.nodeStatuses.n1.rebootStatus} {.status.nodeStatuses.n2.phase}")
		if err == nil && strings.TrimSpace(out) != "Completed pending" {
			err = fmt.Errorf("%s", out)
		}
		return err
	})
	down(t, 20*time.Second)
	got := ends(t, "nodeop", "operation-with-private-image", "Completed")
	if got.Completed != 2 {
		t.Errorf("it ended as %+v", got)
	}
	for _, n := range []string{"n1", "n2"} {
		if boot(t, n) == before[n] || got.NodeStatuses[n].Message != "Job and reboot completed successfully" {
			t.Errorf("%s did not reboot: %+v", n, got.NodeStatuses[n])
		}
		if said := must(t, "logs", "job/"+got.NodeStatuses[n].JobName, "-c", "nodeop"); !strings.Contains(said, "KAIROS_VERSION=v3.0.0") {
			t.Errorf("the logs of %s are %q", n, said)
		}
		if times := on(t, n, "ls /usr/local/.kairos | wc -l"); times != "0" {
			t.Errorf("%s files are left on %s", times, n)
		}
	}
	if first, second := got.NodeStatuses["n1"], got.NodeStatuses["n2"]; second.StartTime.Before(first.CompletionTime.Truncate(time.Second)) {
		t.Errorf("n2 began at %s, and n1 ended at %s", second.StartTime, first.CompletionTime)
	}
	if boot(t, "n3") != before["n3"] {
		t.Error("n3 rebooted, and nobody selected it")
	}
	clean(t, nodes...)
	if jobs := must(t, "get", "jobs", "-o", "name"); strings.Count(jobs, "\n")+1 != 2 {
		t.Errorf("there are the Jobs %s", jobs)
	}
	must(t, "delete", "nodeop", "operation-with-private-image", "--timeout=240s")
}

// TestDrain waits for a disruption budget, says for which pod, and goes on when the budget allows it. All of its pods are
// gone from the node before the command runs, and none is deleted against the budget.
func TestDrain(t *testing.T) {
	labelled(t, "story=drain", "n2", "n3")
	labelled(t, "turn=first", "n2")
	apply(t, guarded)
	t.Cleanup(func() { _, _ = kube(guarded, "delete", "-f", "-", "--wait=false") })
	must(t, "rollout", "status", "deployment/web", "--timeout=240s")
	apply(t, `
apiVersion: operator.kairos.io/v1alpha1
kind: NodeOp
metadata: {name: drains, namespace: default}
spec:
  nodeSelector: {matchLabels: {turn: first}}
  image: busybox:latest
  command: [sh, -c, "true"]
  cordon: true
  drainOptions: {enabled: true, gracePeriodSeconds: 5}
`)
	eventually(t, "the budget refuses", func() error {
		out, err := kube("", "get", "nodeop", "drains", "-o", "jsonpath={.status.nodeStatuses.n2.phase}: {.status.nodeStatuses.n2.message}")
		if err == nil && (!strings.HasPrefix(out, "Pending: ") || !strings.Contains(out, "default/web-") || !strings.Contains(out, "budget")) {
			err = fmt.Errorf("%s", out)
		}
		return err
	})
	if jobs := must(t, "get", "jobs", "-o", "name"); jobs != "" {
		t.Errorf("it does not wait: %s", jobs)
	}
	must(t, "patch", "pdb", "web", "--type=merge", "-p", `{"spec":{"minAvailable":1}}`)
	ends(t, "nodeop", "drains", "Completed")
	must(t, "rollout", "status", "deployment/web", "--timeout=240s")
	if out := must(t, "get", "pods", "-l", "app=web", "--field-selector=spec.nodeName=n2", "-o", "name"); out != "" {
		t.Errorf("on n2 there is still %s", out)
	}
	clean(t, nodes...)
	must(t, "delete", "nodeop", "drains", "--timeout=240s")
}

const guarded = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 2
  strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      nodeSelector: {story: drain}
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, nodeTaintsPolicy: Honor, labelSelector: {matchLabels: {app: web}}}
      containers: [{name: web, image: "registry.k8s.io/pause:3.10"}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web, namespace: default}
spec: {minAvailable: 2, selector: {matchLabels: {app: web}}}
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

// TestOperatorKilled kills the operator at every step of a NodeOp with everything: its command runs once on each node, and
// each node reboots once.
func TestOperatorKilled(t *testing.T) {
	worked := []string{"n2", "n3"}
	labelled(t, "story=killed", worked...)
	boots := map[string]string{}
	for _, n := range worked {
		on(t, n, "rm -f /var/log/nodeop")
		boots[n] = boot(t, n)
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
  drainOptions: {enabled: true, deleteEmptyDirData: true}
  rebootOnSuccess: true
  concurrency: 1
  preflight: {command: [sh, -c, "echo ready"]}
`)
	steps := map[string]bool{}
	eventually(t, "it ends though the operator is killed at every step", func() error {
		out, err := kube("", "get", "nodeop", "killed", "-o", "jsonpath={.status.phase} {.status.nodeStatuses.*.phase} {.status.nodeStatuses.*.rebootStatus}")
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
	if len(steps) < 5 {
		t.Errorf("it was killed at these steps only: %v", steps)
	}
	for _, n := range worked {
		if got := on(t, n, "cat /var/log/nodeop"); got != "once" {
			t.Errorf("the command ran on %s: %q", n, got)
		}
		proof := must(t, "get", "pods", "-l", "kairos.io/reboot=true,kairos.io/nodeop=killed,kairos.io/node="+n, "-o", "jsonpath={.items[*].status.containerStatuses[0].state.terminated.message}")
		if want := fmt.Sprintf(`"bootIDs":{"from":"%s","to":"%s"}`, boots[n], boot(t, n)); !strings.Contains(proof, want) {
			t.Errorf("%s rebooted more than once, or not: want %s in %s", n, want, proof)
		}
	}
	clean(t, nodes...)
	must(t, "delete", "nodeop", "killed", "--timeout=240s")
}

// TestUpgrade upgrades a host that looks like Kairos by the documented example, and then by every combination of flags. One
// that is up to date is skipped: no cordon, no Job, no reboot. What comes up is what was asked for, and is on the node's
// labels.
func TestUpgrade(t *testing.T) {
	runsKairos(t, newRelease, "n2")
	runsKairos(t, oldRelease, "n3")
	upgrade := func(name, more string) status {
		t.Helper()
		apply(t, `
apiVersion: operator.kairos.io/v1alpha1
kind: NodeOpUpgrade
metadata:
  name: `+name+`
  namespace: default
spec:
  image: `+kairos+`
  imagePullSecrets:
  - name: private-registry-secret
  nodeSelector:
    matchLabels:
      kairos.io/managed: "true"
  concurrency: 1
  stopOnFailure: true
`+more)
		got := ends(t, "nodeopupgrade", name, "Completed")
		must(t, "delete", "nodeopupgrade", name, "--timeout=240s")
		return got
	}
	before := map[string]string{"n2": boot(t, "n2"), "n3": boot(t, "n3")}
	got := upgrade("kairos-upgrade", "")
	n2, n3 := got.NodeStatuses["n2"], got.NodeStatuses["n3"]
	if got.Completed != 1 || n3.RebootStatus != "completed" || n3.TargetVersion != newVersion || n3.CurrentVersion != newVersion || boot(t, "n3") == before["n3"] {
		t.Errorf("it ended as %+v", got)
	}
	if got.Skipped != 1 || n2.JobName != "" || n2.Message != "Skipped by preflight: node is already at "+newVersion || boot(t, "n2") != before["n2"] {
		t.Errorf("it ended as %+v", got)
	}
	eventually(t, "the labels of n3 are those of what came up", func() error {
		out, err := kube("", "get", "node", "n3", "-o", `jsonpath={.metadata.annotations.kairos\.io/version} {.metadata.labels.kairos\.io/software-version}`)
		if err == nil && out != "v3.4.2 v1.30.11-k3s1" {
			err = fmt.Errorf("%s", out)
		}
		return err
	})
	must(t, "label", "node", "n2", "kairos.io/managed=false", "--overwrite") // opts out
	was := boot(t, "n3")
	if got = upgrade("again", ""); got.Skipped != 1 || got.Total != 1 {
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
	eventually(t, "the pods that looked at what came up are gone", func() error {
		out, err := kube("", "-n", "skyhook", "get", "pods", "-l", "app=kairos-node-labeler", "-o", "name")
		if err == nil && out != "" {
			err = fmt.Errorf("there are still %s", out)
		}
		return err
	})
	must(t, "label", "node", "n2", "kairos.io/managed=true", "--overwrite")
	clean(t, nodes...)
}
