// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Two operators are never on one node.
const twoOperators = `{"spec": {"replicas": 2, "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}, "template": {"spec": {"affinity": {"podAntiAffinity":
  {"requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": {"matchLabels": {"app": "skyhook-operator"}}, "topologyKey": "kubernetes.io/hostname"}]}}}}}}`

const oneOperator = `{"spec": {"replicas": 1, "template": {"spec": {"affinity": null}}}}`

// shop is a Deployment that a disruption budget guards.
const shop = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop, namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: shop, image: "registry.k8s.io/pause:3.10"}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: shop, namespace: default}
spec: {minAvailable: 1, selector: {matchLabels: {app: shop}}}
`

// lease is who leads, and since when.
type lease struct {
	Spec struct{ HolderIdentity, AcquireTime, RenewTime string }
}

func leader() (l lease, pod string, err error) {
	raw, err := kube("", "-n", "skyhook", "get", "lease", "3c22c1ae.nvidia.com", "-o", "json")
	if err != nil {
		return l, "", err
	}
	if err := json.Unmarshal([]byte(raw), &l); err != nil {
		return l, "", err
	}
	pod, _, _ = strings.Cut(l.Spec.HolderIdentity, "_")
	return l, pod, nil
}

// leaderNode waits until somebody leads, and says where.
func leaderNode(t *testing.T) (node string) {
	t.Helper()
	eventually(t, "somebody leads", func() error {
		_, pod, err := leader()
		if err != nil {
			return err
		}
		node, err = kube("", "-n", "skyhook", "get", "pod", pod, "-o", "jsonpath={.spec.nodeName}")
		if err == nil && node == "" {
			err = fmt.Errorf("pod %s is nowhere", pod)
		}
		return err
	})
	return node
}

// boots follows the order in which nodes come up with another boot.
type boots struct {
	mu    sync.Mutex
	last  map[string]string
	order []string
}

func (b *boots) note(o thing, _ bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	id := o.Status.NodeInfo.BootID
	if was := b.last[o.Metadata.Name]; was != "" && was != id {
		b.order = append(b.order, o.Metadata.Name)
	}
	b.last[o.Metadata.Name] = id
}

func (b *boots) list() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.order)
}

// handovers notes how long nobody renewed the lease whenever another operator took it.
func handovers(t *testing.T) (stop func() []time.Duration) {
	t.Helper()
	var gaps []time.Duration
	var was lease
	end := sampled(func() (string, error) {
		is, _, err := leader()
		if err != nil || is.Spec.HolderIdentity == "" {
			return "", err
		}
		if was.Spec.HolderIdentity != "" && was.Spec.HolderIdentity != is.Spec.HolderIdentity {
			from, err := time.Parse(time.RFC3339Nano, was.Spec.RenewTime)
			to, err2 := time.Parse(time.RFC3339Nano, is.Spec.AcquireTime)
			if err == nil && err2 == nil {
				gaps = append(gaps, to.Sub(from))
			}
		}
		was = is
		return is.Spec.HolderIdentity, nil
	})
	return func() []time.Duration { end(); return gaps }
}

// TestHandover reboots every node, those of the operators too. The node of the leader comes last; when it goes down the
// standby takes over. Then the same with one operator, which goes on when its node is back.
func TestHandover(t *testing.T) {
	const name = "handover"
	must(t, "-n", "skyhook", "patch", "deployment", "skyhook-operator", "-p", twoOperators)
	t.Cleanup(func() {
		must(t, "-n", "skyhook", "patch", "deployment", "skyhook-operator", "-p", oneOperator)
		must(t, "-n", "skyhook", "rollout", "status", "deployment/skyhook-operator", "--timeout="+patience.String())
	})
	must(t, "-n", "skyhook", "rollout", "status", "deployment/skyhook-operator", "--timeout="+patience.String())
	apply(t, shop)
	t.Cleanup(func() { _, _ = kube(shop, "delete", "-f", "-", "--wait=false") })
	must(t, "rollout", "status", "deployment/shop", "--timeout="+patience.String())
	label(t, name, nodes...)
	home := leaderNode(t)

	seen := &boots{last: map[string]string{}}
	stop := follow(t, seen.note, "nodes")
	least := 2
	stopShop := follow(t, func(o thing, _ bool) { least = min(least, o.Status.AvailableReplicas) }, "deployment", "shop")
	gaps := handovers(t)
	apply(t, story(name, "\n  interruptionBudget: {count: 1}", interrupting("{type: reboot}")))
	complete(t, name)
	stop()
	stopShop()
	took := gaps()
	order := seen.list()
	t.Logf("the leader was on %s; nodes booted in the order %v; the lease changed hands %d times, without renewal for %v", home, order, len(took), took)
	if sorted := slices.Sorted(slices.Values(order)); !slices.Equal(sorted, nodes) || order[len(order)-1] != home {
		t.Errorf("nodes booted in the order %v; each once, and %s last, was expected", order, home)
	}
	if len(took) == 0 {
		t.Error("the lease never changed hands")
	}
	for _, d := range took {
		if d > patience {
			t.Errorf("nobody led for %s", d)
		}
	}
	if least < 1 {
		t.Error("the budget of the shop was not respected")
	}
	remove(t, name)

	const alone = "alone"
	must(t, "-n", "skyhook", "patch", "deployment", "skyhook-operator", "-p", oneOperator)
	must(t, "-n", "skyhook", "rollout", "status", "deployment/skyhook-operator", "--timeout="+patience.String())
	home = leaderNode(t)
	label(t, alone, home)
	seen = &boots{last: map[string]string{}}
	stop = follow(t, seen.note, "nodes")
	apply(t, story(alone, "", interrupting("{type: reboot}")))
	complete(t, alone)
	stop()
	if order := seen.list(); !slices.Equal(order, []string{home}) {
		t.Errorf("nodes booted: %v, want %s once", order, home)
	}
	remove(t, alone)
}
