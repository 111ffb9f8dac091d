// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/test/cluster/testcluster"
)

// shellManifest runs a privileged pod on each node. Draining leaves pods of a DaemonSet alone.
const shellManifest = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: node-shell}
spec:
  selector: {matchLabels: {app: node-shell}}
  template:
    metadata: {labels: {app: node-shell}}
    spec:
      nodeSelector: {` + nodeLabel + `: "true"}
      tolerations: [{operator: Exists}]
      hostPID: true
      hostIPC: true
      hostNetwork: true
      terminationGracePeriodSeconds: 0
      containers:
      - name: shell
        image: ` + ToolsImage + `
        command: [sleep, "100000000"]
        securityContext: {privileged: true}
        volumeMounts: [{name: host, mountPath: /host, mountPropagation: HostToContainer}]
      volumes: [{name: host, hostPath: {path: /}}]
`

// startShells gives the suite a shell on the nodes of a cluster of somebody else.
func (c *Cluster) startShells(context.Context) error {
	if c.IsOurs() {
		return nil
	}
	if _, err := c.TryKubectl(shellManifest, "apply", "-f", "-"); err != nil {
		return err
	}
	if _, err := c.TryKubectl("", "rollout", "status", "daemonset/node-shell", "--timeout="+Timeout.String()); err != nil {
		return err
	}
	for _, n := range c.nodes {
		pod, err := c.TryKubectl("", "get", "pods", "-l", "app=node-shell", "--field-selector=spec.nodeName="+n, "-o", "jsonpath={.items[0].metadata.name}")
		if err != nil {
			return err
		}
		c.shells[n] = pod
	}
	return nil
}

// TryExec runs a script of bash on a node, as root of the host.
func (c *Cluster) TryExec(node, script string) (string, error) {
	if !c.IsOurs() {
		return c.TryKubectl("", "exec", c.shells[node], "--", "chroot", "/host", "/bin/bash", "-c", script)
	}
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	defer cancel()
	out, err := c.cluster.Exec(ctx, node, "/bin/bash", "-c", script)
	return strings.TrimSpace(out), err
}

// Exec runs a script of bash on a node, as root of the host. The shell on a cluster of somebody else may need a moment after a
// reboot of the node.
func (c *Cluster) Exec(t *testing.T, node, script string) string {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Second) {
		out, err := c.TryExec(node, script)
		if err == nil {
			return out
		}
		if scriptFailed := strings.Contains(err.Error(), "command terminated with exit code"); c.IsOurs() || scriptFailed || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// RequireService skips the test if a systemd service does not run on a node.
func (c *Cluster) RequireService(t *testing.T, node, service string) {
	t.Helper()
	if state := c.Exec(t, node, "systemctl is-active "+service+" || true"); state != "active" {
		t.Skipf("needs the service %s on node %s, which is %s", service, node, state)
	}
}

// BootID returns the boot id of a node as the API server has it.
func (c *Cluster) BootID(t *testing.T, node string) string {
	t.Helper()
	return c.Kubectl(t, "get", "node", node, "-o", "jsonpath={.status.nodeInfo.bootID}")
}

// WaitBoot waits until a node accepts pods after another boot than the given one.
func (c *Cluster) WaitBoot(t *testing.T, node, before string) {
	t.Helper()
	Eventually(t, "node "+node+" has rebooted", func() error {
		n, err := c.cluster.Client.CoreV1().Nodes().Get(context.Background(), node, metav1.GetOptions{})
		if err == nil && (n.Status.NodeInfo.BootID == before || !testcluster.AcceptsPods(n)) {
			err = fmt.Errorf("boot id %s, taints %v", n.Status.NodeInfo.BootID, n.Spec.Taints)
		}
		return err
	})
}
