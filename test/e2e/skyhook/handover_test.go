// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/test/e2e/suite"
)

// guardedDeployment is a Deployment with a disruption budget.
const guardedDeployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec:
      nodeSelector: {e2e: handover}
      terminationGracePeriodSeconds: 1
      containers: [{name: shop, image: "registry.k8s.io/pause:3.10"}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: shop}
spec: {minAvailable: 1, selector: {matchLabels: {app: shop}}}
`

// lease is the leader election lease of the operator.
type lease struct {
	Spec struct{ HolderIdentity, AcquireTime, RenewTime string }
}

func getLease() (l lease, err error) {
	return l, cluster.Get(&l, "-n", suite.OperatorNamespace, "lease", "3c22c1ae.nvidia.com")
}

// waitLeader waits until an operator leads that is not terminating, and returns its node.
func waitLeader(t *testing.T) (node string) {
	t.Helper()
	suite.Eventually(t, "an operator leads", func() error {
		l, err := getLease()
		if err != nil {
			return err
		}
		pod, _, _ := strings.Cut(l.Spec.HolderIdentity, "_")
		var o object
		if err := cluster.Get(&o, "-n", suite.OperatorNamespace, "pod", pod); err != nil {
			return err
		}
		if node = o.Spec.NodeName; node == "" || o.Metadata.DeletionTimestamp != "" {
			return fmt.Errorf("pod %s is %+v", pod, o)
		}
		return nil
	})
	return node
}

// collectHandovers records for each change of the leader how long the lease was not renewed.
func collectHandovers() (stop func() []time.Duration) {
	var gaps []time.Duration
	var last lease
	end := collectValues(func() (string, error) {
		now, err := getLease()
		if err != nil || now.Spec.HolderIdentity == "" {
			return "", err
		}
		if last.Spec.HolderIdentity != "" && last.Spec.HolderIdentity != now.Spec.HolderIdentity {
			from, err := time.Parse(time.RFC3339Nano, last.Spec.RenewTime)
			to, err2 := time.Parse(time.RFC3339Nano, now.Spec.AcquireTime)
			if err == nil && err2 == nil {
				gaps = append(gaps, to.Sub(from))
			}
		}
		last = now
		return now.Spec.HolderIdentity, nil
	})
	return func() []time.Duration { end(); return gaps }
}

// withOperators returns as many nodes, those of the operators among them.
func withOperators(t *testing.T, nodes []string) []string {
	t.Helper()
	chosen := cluster.OperatorNodes(t)
	slices.Sort(chosen)
	chosen = slices.Compact(chosen)
	for _, n := range nodes {
		if len(chosen) < len(nodes) && !slices.Contains(chosen, n) {
			chosen = append(chosen, n)
		}
	}
	return chosen
}

// TestHandover reboots three nodes, those of both operators included. The node of the leader comes last; when it goes down the
// standby takes over.
func TestHandover(t *testing.T) {
	const name = "handover"
	nodes := cluster.InterruptibleNodes(t, 3)
	cluster.ScaleOperator(t, 2)
	nodes = withOperators(t, nodes)
	selectNodes(t, name, nodes...)
	cluster.ApplyUntilCleanup(t, guardedDeployment)
	cluster.Kubectl(t, "rollout", "status", "deployment/shop", "--timeout="+suite.Timeout.String())
	home := waitLeader(t)

	watch := watchNodes(t, nodes...)
	least := 2
	stopShop := watchObjects(t, func(o object, _ bool) { least = min(least, o.Status.AvailableReplicas) }, "deployment", "shop")
	stopHandovers := collectHandovers()
	cluster.Apply(t, suite.Manifest(name, "\n  interruptionBudget: {count: 1}", interruptingPackage("{type: reboot}")))
	cluster.WaitComplete(t, name)
	watch.requireOneReboot(t)
	stopShop()
	gaps := stopHandovers()
	t.Logf("the leader was on %s; nodes rebooted in the order %v; the lease was taken over after %v without renewal", home, watch.rebooted, gaps)
	if last := watch.rebooted[len(watch.rebooted)-1]; last != home {
		t.Errorf("nodes rebooted in the order %v; %s was expected last", watch.rebooted, home)
	}
	if len(gaps) == 0 {
		t.Error("the lease was never taken over")
	}
	if len(gaps) > 0 && slices.Max(gaps) > suite.Timeout {
		t.Errorf("the lease was not renewed for %s", slices.Max(gaps))
	}
	if least < 1 {
		t.Error("the disruption budget of the deployment was violated")
	}
	cluster.RemoveSkyhook(t, name)
}

// TestRebootOnlyOperator reboots the node of the only operator, which continues afterwards.
func TestRebootOnlyOperator(t *testing.T) {
	const name = "alone"
	cluster.InterruptibleNodes(t, 1)
	home := waitLeader(t)
	selectNodes(t, name, home)
	watch := watchNodes(t, home)
	cluster.Apply(t, suite.Manifest(name, "", interruptingPackage("{type: reboot}")))
	cluster.WaitComplete(t, name)
	watch.requireOneReboot(t)
	if !slices.Equal(watch.rebooted, []string{home}) {
		t.Errorf("nodes rebooted: %v, want %s once", watch.rebooted, home)
	}
	cluster.RemoveSkyhook(t, name)
}
