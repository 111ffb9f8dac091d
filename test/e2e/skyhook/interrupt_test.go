// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

func interrupting(interrupt string) string {
	return fmt.Sprintf(`
    driver:
      version: 1.0.0
      image: %s
      interrupt: %s
      configMap:
        apply.sh: echo apply >> /var/log/driver
        config.sh: echo config >> /var/log/driver
        post_interrupt.sh: echo post-interrupt >> /var/log/driver`, shellscript, interrupt)
}

// TestServiceInterrupt restarts a service, and then the container runtime below the agent's own feet: exactly once each.
func TestServiceInterrupt(t *testing.T) {
	const name, n = "service", "n1"
	for _, unit := range []string{"cron", "containerd"} {
		t.Run(unit, func(t *testing.T) {
			label(t, name, n)
			on(t, n, "rm -f /var/log/driver")
			beat := service(t, n, "skyhook-beat")
			stop := sampled(func() (string, error) {
				return tryOn(n, "systemctl show -p InvocationID --value "+unit)
			})
			apply(t, story(name, "", interrupting("{type: service, services: ["+unit+"]}")))
			complete(t, name)
			if ids := stop(); len(ids) != 2 {
				t.Errorf("%s had %d lives, want 2, one before and one after a single restart: %v", unit, len(ids), ids)
			}
			if got := service(t, n, "skyhook-beat"); got != beat {
				t.Errorf("a service nobody named was restarted")
			}
			if got := on(t, n, "cat /var/log/driver | tr '\\n' ' '"); got != "apply config post-interrupt" {
				t.Errorf("the host was taken through %q", got)
			}
			remove(t, name)
		})
	}
}

const guarded = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 2
      topologySpreadConstraints: [{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: web}}}]
      containers: [{name: web, image: "registry.k8s.io/pause:3.10"}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web, namespace: default}
spec: {minAvailable: 2, selector: {matchLabels: {app: web}}}
---
apiVersion: v1
kind: Pod
metadata: {name: training, namespace: default, labels: {protect: "yes"}}
spec:
  nodeName: n1
  terminationGracePeriodSeconds: 1
  containers: [{name: training, image: "registry.k8s.io/pause:3.10"}]
`

// TestRebootInterrupt reboots two nodes, one at a time: a protected pod is waited for, a disruption budget is kept, and
// each node boots exactly once more.
func TestRebootInterrupt(t *testing.T) {
	const name = "reboot"
	label(t, name, "n1", "n2")
	for _, n := range nodes {
		on(t, n, "rm -f /var/log/driver")
	}
	apply(t, guarded)
	t.Cleanup(func() { _, _ = kube(guarded, "delete", "-f", "-", "--wait=false") })
	must(t, "rollout", "status", "deployment/web", "--timeout="+patience.String())
	must(t, "wait", "--for=condition=Ready", "pod/training", "--timeout="+patience.String())

	boots := map[string]*names{"n1": {}, "n2": {}}
	held, most := map[string]bool{}, 0
	stopNodes := follow(t, func(o thing, _ bool) {
		if seen := boots[o.Metadata.Name]; seen != nil {
			seen.add(o.Status.NodeInfo.BootID)
		}
		if delete(held, o.Metadata.Name); o.Spec.Unschedulable {
			held[o.Metadata.Name] = true
		}
		most = max(most, len(held))
	}, "nodes")
	fewest := 3
	stopWeb := follow(t, func(o thing, _ bool) { fewest = min(fewest, o.Status.AvailableReplicas) }, "deployments", "web")
	apply(t, story(name, `
  interruptionBudget: {count: 1}
  podNonInterruptLabels: {matchLabels: {protect: "yes"}}`, interrupting("{type: reboot}")))

	eventually(t, "n1 is held and says which pod it waits for", func() error {
		s, err := look(name)
		if err != nil {
			return err
		}
		text, err := json.Marshal(s.Status.Conditions)
		if err != nil {
			return err
		}
		held, err := kube("", "get", "node", "n1", "-o", "jsonpath={.spec.unschedulable}")
		if err != nil || held != "true" || !strings.Contains(string(text), "default/training") {
			return fmt.Errorf("unschedulable: %q, conditions: %s", held, text)
		}
		return nil
	})
	time.Sleep(5 * time.Second)
	if got := on(t, "n1", "cat /var/log/driver 2>/dev/null || true"); got != "" {
		t.Errorf("work began on n1 beside a protected pod: %s", got)
	}
	must(t, "delete", "pod", "training")
	complete(t, name)

	stopNodes()
	stopWeb()
	for n, seen := range boots {
		if ids := seen.list(); len(ids) != 2 {
			t.Errorf("node %s had %d boots, want 2: one before and one after a single reboot: %v", n, len(ids), ids)
		}
	}
	if fewest < 2 {
		t.Errorf("the disruption budget of the deployment was broken: %d replicas available", fewest)
	}
	if most > 1 {
		t.Errorf("the budget of one node was exceeded: %d were held together", most)
	}
	for _, n := range []string{"n1", "n2"} {
		if got := on(t, n, "cat /var/log/driver | tr '\\n' ' '"); got != "apply config post-interrupt" {
			t.Errorf("%s was taken through %q", n, got)
		}
	}
	remove(t, name)
}

// TestForeignCordon: a node that an administrator cordoned is still cordoned afterwards.
func TestForeignCordon(t *testing.T) {
	const name, n = "foreign", "n2"
	label(t, name, n)
	must(t, "cordon", n)
	t.Cleanup(func() { _, _ = kube("", "uncordon", n) })
	apply(t, story(name, "", interrupting("{type: service, services: [cron]}")))
	complete(t, name)
	if got := must(t, "get", "node", n, "-o", "jsonpath={.spec.unschedulable}"); got != "true" {
		t.Errorf("an administrator's cordon was taken away")
	}
	must(t, "uncordon", n)
	remove(t, name)
}
