// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// stubborn are workloads of each kind: one that no budget lets go from n1, and on n2 one that takes its time, one that
// nothing recreates, and one that loses what it wrote.
const stubborn = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: store, namespace: default}
spec:
  serviceName: store
  replicas: 1
  selector: {matchLabels: {app: store}}
  template:
    metadata: {labels: {app: store}}
    spec:
      nodeSelector: {kubernetes.io/hostname: n1}
      terminationGracePeriodSeconds: 1
      containers: [{name: store, image: "registry.k8s.io/pause:3.10"}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: store, namespace: default}
spec: {maxUnavailable: 0, selector: {matchLabels: {app: store}}}
---
apiVersion: v1
kind: Pod
metadata: {name: slow, namespace: default}
spec:
  nodeName: n2
  terminationGracePeriodSeconds: 60
  containers:
  - {name: slow, image: "registry.k8s.io/pause:3.10", lifecycle: {preStop: {sleep: {seconds: 55}}}}
---
apiVersion: v1
kind: Pod
metadata: {name: scratch, namespace: default}
spec:
  nodeName: n2
  terminationGracePeriodSeconds: 1
  volumes: [{name: scratch, emptyDir: {}}]
  containers: [{name: scratch, image: "registry.k8s.io/pause:3.10", volumeMounts: [{name: scratch, mountPath: /scratch}]}]
`

// TestDrain: what a budget guards blocks its own node, says so, and nobody else; no interrupt comes before the last pod
// is gone, however long that takes.
func TestDrain(t *testing.T) {
	const name = "drain"
	label(t, name, "n1", "n2")
	for _, n := range []string{"n1", "n2"} {
		on(t, n, "rm -f /var/log/driver")
	}
	apply(t, stubborn)
	t.Cleanup(func() { _, _ = kube(stubborn, "delete", "-f", "-", "--wait=false") })
	must(t, "rollout", "status", "statefulset/store", "--timeout="+patience.String())
	must(t, "wait", "--for=condition=Ready", "pod/slow", "pod/scratch", "--timeout="+patience.String())
	apply(t, story(name, "", interrupting("{type: service, services: [cron]}")))

	early := ""
	eventually(t, "the slow pod is gone from n2", func() error {
		before := on(t, "n2", "cat /var/log/driver 2>/dev/null || true")
		out, err := kube("", "get", "pod", "slow", "--ignore-not-found", "-o", "name")
		if err != nil {
			return err
		}
		if strings.TrimSpace(out) == "" {
			return nil
		}
		early += before // it was still there after the host was looked at
		return fmt.Errorf("%s is there", out)
	})
	if early != "" {
		t.Errorf("work began on n2 beside a pod that had not gone: %s", early)
	}
	eventually(t, "n2 goes on without n1, which names the budget", func() error {
		out, err := kube("", "get", "skyhook", name, "-o", "jsonpath={.status.nodeStatus.n2} {.status.conditions}")
		if err != nil {
			return err
		}
		if !strings.HasPrefix(out, "complete ") || !strings.Contains(out, "default/store-0 cannot be evicted now") || !strings.Contains(out, "disruption budget store") {
			return fmt.Errorf("it says %s", out)
		}
		return nil
	})
	if got := must(t, "get", "pod", "scratch", "--ignore-not-found", "-o", "name"); got != "" {
		t.Errorf("%s was not moved away", got)
	}
	if got := on(t, "n1", "cat /var/log/driver 2>/dev/null || true"); got != "" {
		t.Errorf("work began on n1 beside a guarded pod: %s", got)
	}
	must(t, "delete", "poddisruptionbudget", "store")
	complete(t, name)
	remove(t, name)
}

const sharedPolicy = `
apiVersion: skyhook.nvidia.com/v1alpha1
kind: DeploymentPolicy
metadata: {name: one-at-a-time}
spec:
  scope: Policy
  default: {budget: {count: 1}, strategy: {fixed: {}}}
`

// TestSharedPolicy: two Skyhooks that reboot different nodes under one shared policy never have two nodes away together.
func TestSharedPolicy(t *testing.T) {
	apply(t, sharedPolicy)
	hooks := map[string]string{"share-a": "n1", "share-b": "n2"}
	boots, held, most := map[string]*names{"n1": {}, "n2": {}}, map[string]bool{}, 0
	for name, n := range hooks {
		label(t, name, n)
		on(t, n, "rm -f /var/log/driver")
	}
	stop := follow(t, func(o thing, _ bool) {
		if seen := boots[o.Metadata.Name]; seen != nil {
			seen.add(o.Status.NodeInfo.BootID)
		}
		if delete(held, o.Metadata.Name); o.Spec.Unschedulable {
			held[o.Metadata.Name] = true
		}
		most = max(most, len(held))
	}, "nodes")
	for name := range hooks {
		apply(t, story(name, "\n  deploymentPolicy: one-at-a-time", interrupting("{type: reboot}")))
	}
	for name := range hooks {
		complete(t, name)
	}
	stop()
	if most != 1 {
		t.Errorf("%d nodes were held together", most)
	}
	for n, seen := range boots {
		if ids := seen.list(); len(ids) != 2 {
			t.Errorf("node %s had %d boots, want 2: %v", n, len(ids), ids)
		}
	}
	must(t, "delete", "deploymentpolicy", "one-at-a-time", "--wait=false")
	eventually(t, "the policy says who keeps it", func() error {
		var p struct {
			Status struct {
				Conditions []struct{ Type, Message string }
			}
		}
		raw, err := kube("", "get", "deploymentpolicy", "one-at-a-time", "-o", "json")
		if err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(raw), &p); err != nil {
			return err
		}
		for _, c := range p.Status.Conditions {
			if c.Type == "DeletionBlocked" && strings.Contains(c.Message, "Skyhook/share-a, Skyhook/share-b") {
				return nil
			}
		}
		return fmt.Errorf("it says %s", raw)
	})
	for name := range hooks {
		remove(t, name)
	}
	must(t, "wait", "--for=delete", "deploymentpolicy/one-at-a-time", "--timeout="+patience.String())
}
