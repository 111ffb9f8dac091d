// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
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

// seen collects the different values that ask gives until stop is called.
func seen(ask func() (string, error)) (stop func() []string) {
	values, end := map[string]bool{}, make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			if v, err := ask(); err == nil && v != "" {
				values[v] = true
			}
			select {
			case <-end:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	return func() []string {
		close(end)
		wg.Wait()
		return slices.Sorted(maps.Keys(values))
	}
}

// TestServiceInterrupt restarts a service, and then the container runtime below the agent's own feet: exactly once each.
func TestServiceInterrupt(t *testing.T) {
	const name, n = "service", "n1"
	for _, unit := range []string{"cron", "containerd"} {
		t.Run(unit, func(t *testing.T) {
			label(t, name, n)
			on(t, n, "rm -f /var/log/driver")
			beat := service(t, n, "skyhook-beat")
			stop := seen(func() (string, error) {
				return tryOn(n, "systemctl show -p InvocationID --value "+unit)
			})
			apply(t, story(name, "", interrupting("{type: service, services: ["+unit+"]}")))
			complete(t, name, 3*time.Minute)
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
	must(t, "rollout", "status", "deployment/web", "--timeout=60s")
	must(t, "wait", "--for=condition=Ready", "pod/training", "--timeout=60s")

	boots := map[string]func() []string{}
	for _, n := range []string{"n1", "n2"} {
		boots[n] = seen(func() (string, error) { return kube("", "get", "node", n, "-o", "jsonpath={.status.nodeInfo.bootID}") })
	}
	available := seen(func() (string, error) {
		return kube("", "get", "deployment", "web", "-o", "jsonpath={.status.availableReplicas}")
	})
	held := seen(func() (string, error) {
		return kube("", "get", "nodes", "-o", `jsonpath={range .items[?(@.spec.unschedulable)]}{.metadata.name} {end}`)
	})
	apply(t, story(name, `
  interruptionBudget: {count: 1}
  podNonInterruptLabels: {matchLabels: {protect: "yes"}}`, interrupting("{type: reboot}")))

	eventually(t, "n1 is held and says which pod it waits for", 3*time.Minute, func() error {
		s, err := look(name)
		if err != nil {
			return err
		}
		text, err := json.Marshal(s.Status.Conditions)
		if err != nil {
			return err
		}
		if must(t, "get", "node", "n1", "-o", "jsonpath={.spec.unschedulable}") != "true" || !strings.Contains(string(text), "default/training") {
			return fmt.Errorf("conditions: %s", text)
		}
		return nil
	})
	time.Sleep(5 * time.Second)
	if got := on(t, "n1", "cat /var/log/driver 2>/dev/null || true"); got != "" {
		t.Errorf("work began on n1 beside a protected pod: %s", got)
	}
	must(t, "delete", "pod", "training")
	complete(t, name, 5*time.Minute)

	for n, stop := range boots {
		if ids := stop(); len(ids) != 2 {
			t.Errorf("node %s had %d boots, want 2: one before and one after a single reboot: %v", n, len(ids), ids)
		}
	}
	for _, n := range available() {
		if n == "1" || n == "0" {
			t.Errorf("the disruption budget of the deployment was broken: %s replicas available", n)
		}
	}
	for _, names := range held() {
		if len(strings.Fields(names)) > 1 {
			t.Errorf("the budget of one node was exceeded: %s were held together", names)
		}
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
	complete(t, name, 2*time.Minute)
	if got := must(t, "get", "node", n, "-o", "jsonpath={.spec.unschedulable}"); got != "true" {
		t.Errorf("an administrator's cordon was taken away")
	}
	must(t, "uncordon", n)
	remove(t, name)
}
