// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// Nodes returns nodes that a test may use but not interrupt, and skips the test if there are fewer. No other test runs meanwhile.
func (c *Cluster) Nodes(t *testing.T, count int) []string {
	t.Helper()
	c.requireNodes(t, count)
	t.Logf("alone on cluster %s, with the nodes %v", c.cluster.Name, c.nodes[:count])
	return c.nodes[:count:count]
}

// InterruptibleNodes returns nodes that a test may cordon, drain, restart and reboot, and skips the test if there are fewer. No other
// test runs meanwhile.
func (c *Cluster) InterruptibleNodes(t *testing.T, count int) []string {
	t.Helper()
	c.requireInterruptible(t)
	return c.Nodes(t, count)
}

// ShareNodes is Nodes for a test that runs beside others, each with nodes that no other has meanwhile. Such a test must be the first
// to call it, must not restart the operator or change its settings, must watch nothing but its nodes and objects with names of its
// own, and must not need the whole cluster to be quiet. The node of an operator that tests need is none of those, so that it stays.
func (c *Cluster) ShareNodes(t *testing.T, count int) []string {
	t.Helper()
	c.requireNodes(t, count)
	if count >= len(c.nodes) {
		return c.Nodes(t, count) // one more is for the operator
	}
	request := c.pool.Queue(t.Name(), count)
	t.Parallel()
	t.Cleanup(request.Release)
	if err := c.openPool(); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	nodes := request.Wait()
	t.Logf("beside other tests on cluster %s, with the nodes %v, for which it waited %s", c.cluster.Name, nodes, time.Since(begin).Round(time.Second))
	return nodes
}

// ShareInterruptibleNodes is ShareNodes for a test that cordons, drains, restarts or reboots its nodes.
func (c *Cluster) ShareInterruptibleNodes(t *testing.T, count int) []string {
	t.Helper()
	c.requireInterruptible(t)
	return c.ShareNodes(t, count)
}

func (c *Cluster) requireNodes(t *testing.T, count int) {
	t.Helper()
	if len(c.nodes) < count {
		t.Skipf("needs %d nodes, and the cluster offers %v", count, c.nodes)
	}
}

func (c *Cluster) requireInterruptible(t *testing.T) {
	t.Helper()
	if !c.interruptible {
		t.Skip("interrupts nodes: SKYHOOK_E2E_NODES does not name any that may be drained and rebooted")
	}
}

// fillPool opens the pool with all nodes, or, if the tests need the operator, waits until a single one runs, and leaves out its node.
func (c *Cluster) fillPool(operator Operator) error {
	if operator != WithOperator {
		c.pool.Open(c.nodes)
		return nil
	}
	if _, err := c.TryKubectl("", "-n", OperatorNamespace, "rollout", "status", "deployment/"+OperatorDeployment, "--timeout="+Timeout.String()); err != nil {
		return err
	}
	return poll(func() error {
		on, err := c.operatorNodes()
		if err != nil {
			return err
		}
		if len(on) != 1 {
			pods, _ := c.TryKubectl("", "-n", OperatorNamespace, "get", "pods", "-l", OperatorSelector, "-o", "wide")
			return fmt.Errorf("a single operator is expected, and these are there:\n%s", pods)
		}
		c.pool.Open(slices.DeleteFunc(slices.Clone(c.nodes), func(n string) bool { return n == on[0] }))
		return nil
	})
}

// OperatorNodes returns the node of each pod of the operator that runs, or may. Pods that a kubelet refused, such as one that got to a node
// while it rebooted, have failed, and the API server keeps them. A kubelet kills a pod when its grace period is over; one that is listed
// for longer has been lost while its node was off.
func (c *Cluster) OperatorNodes(t *testing.T) []string {
	t.Helper()
	on, err := c.operatorNodes()
	if err != nil {
		t.Fatal(err)
	}
	return on
}

func (c *Cluster) operatorNodes() (on []string, err error) {
	out, err := c.TryKubectl("", "-n", OperatorNamespace, "get", "pods", "-l", OperatorSelector, "-o",
		`jsonpath={range .items[*]}{.spec.nodeName},{.status.phase},{.metadata.deletionTimestamp}{"\n"}{end}`)
	for line := range strings.Lines(out) {
		pod := strings.Split(strings.TrimSpace(line), ",")
		if len(pod) != 3 || pod[0] == "" || pod[1] == "Failed" || pod[1] == "Succeeded" {
			continue
		}
		if killed, err := time.Parse(time.RFC3339, pod[2]); err == nil && time.Since(killed) > time.Minute {
			continue
		}
		on = append(on, pod[0])
	}
	return on, err
}

// hasOtherTest reports whether a test that is neither this one nor contains it has a node.
func (c *Cluster) hasOtherTest(t *testing.T, node string) bool {
	owner, _, _ := strings.Cut(t.Name(), "/")
	other := c.pool.Owner(node)
	return other != "" && other != owner
}

// runAllParallel lets as many tests run side by side as there are nodes for.
func runAllParallel() error {
	flag.Parse()
	if err := flag.Set("test.parallel", "1000"); err != nil {
		return fmt.Errorf("letting tests run side by side: %w", err)
	}
	return nil
}

// OnNodes replaces NODE1, NODE2 and so on in a manifest by the names of nodes.
func OnNodes(manifest string, nodes ...string) string {
	for i, n := range slices.Backward(nodes) {
		manifest = strings.ReplaceAll(manifest, fmt.Sprintf("NODE%d", i+1), n)
	}
	return manifest
}
