// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/skyhook-k8s/skyhook/test/cluster/build"
	"github.com/skyhook-k8s/skyhook/test/cluster/testcluster"
)

// nodeLabel marks the nodes that the suite uses.
const nodeLabel = "skyhook.test/e2e"

func usesForeignCluster() bool {
	return os.Getenv("KUBECONFIG") != "" && os.Getenv("SKYHOOK_E2E_CLUSTER") == ""
}

// connect brings up a cluster, or finds the one that the environment names.
func (c *Cluster) connect(ctx context.Context) (err error) {
	if c.dir, err = os.MkdirTemp("", "skyhook-e2e-"); err != nil {
		return err
	}
	c.kubeconfig = filepath.Join(c.dir, "kubeconfig")
	if usesForeignCluster() {
		return c.connectForeign()
	}
	if name := os.Getenv("SKYHOOK_E2E_CLUSTER"); name != "" {
		c.cluster, err = testcluster.Open(name)
	} else {
		spec := testcluster.Spec{Name: fmt.Sprintf("e2e-%d", os.Getpid()), Nodes: []string{"n1", "n2", "n3", "n4", "n5", "n6"}, APIServerProxy: true, Tied: true}
		c.cluster, err = testcluster.Up(ctx, spec, os.Stderr)
		c.release = func(c *Cluster) error { return c.cluster.Down(context.Background()) }
	}
	if err != nil {
		c.release = func(*Cluster) error { return nil }
		return err
	}
	return c.writeKubeconfig(&clientcmd.ClientConfigLoadingRules{ExplicitPath: c.cluster.Kubeconfig})
}

func (c *Cluster) connectForeign() (err error) {
	if os.Getenv("SKYHOOK_E2E_REGISTRY") == "" {
		return fmt.Errorf("KUBECONFIG=%s names a cluster of yours: set SKYHOOK_E2E_REGISTRY to a repository prefix that its nodes can pull from, "+
			"or unset KUBECONFIG to bring up a cluster here", os.Getenv("KUBECONFIG"))
	}
	if err := c.writeKubeconfig(clientcmd.NewDefaultClientConfigLoadingRules()); err != nil {
		return err
	}
	c.cluster, err = testcluster.Connect(c.kubeconfig)
	return err
}

// writeKubeconfig writes a copy of a kubeconfig whose default namespace is that of the tests.
func (c *Cluster) writeKubeconfig(rules *clientcmd.ClientConfigLoadingRules) error {
	config, err := rules.Load()
	if err != nil {
		return err
	}
	if err := errors.Join(clientcmdapi.MinifyConfig(config), clientcmdapi.FlattenConfig(config)); err != nil {
		return err
	}
	config.Contexts[config.CurrentContext].Namespace = Namespace
	return clientcmd.WriteToFile(*config, c.kubeconfig)
}

// findPrograms finds kubectl, which is built with our clusters, and Helm, which is a tool of test/chart.
func (c *Cluster) findPrograms(ctx context.Context) (err error) {
	if c.kubectl, err = exec.LookPath("kubectl"); err != nil || c.IsOurs() {
		cache, err := build.Open(os.Stderr)
		if err != nil {
			return err
		}
		dir, err := cache.Kubernetes(ctx)
		if err != nil {
			return err
		}
		c.kubectl = filepath.Join(dir, "kubectl")
	}
	c.helm, err = runCommand(exec.CommandContext(ctx, "go", "tool", "-C", filepath.Join(Root(), "test", "chart"), "-n", "helm.sh/helm/v4/cmd/helm"))
	return err
}

// chooseNodes takes all nodes of a cluster of ours, or up to three of another one.
func (c *Cluster) chooseNodes(context.Context) error {
	wanted := strings.FieldsFunc(os.Getenv("SKYHOOK_E2E_NODES"), func(r rune) bool { return r == ',' })
	c.interruptible = c.IsOurs() || len(wanted) > 0
	err := poll(func() error {
		list, err := c.cluster.Client.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		c.nodes = nil
		for _, n := range list.Items {
			named := slices.Contains(wanted, n.Name)
			if len(wanted) > 0 && !named {
				continue
			}
			if isUsable(&n) {
				c.nodes = append(c.nodes, n.Name)
			} else if named || c.IsOurs() {
				return fmt.Errorf("node %s is not ready, is cordoned or tainted, or its host name is not its name", n.Name)
			}
		}
		if len(c.nodes) == 0 || len(c.nodes) < len(wanted) {
			return fmt.Errorf("usable nodes are %v, wanted %v", c.nodes, wanted)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if !c.IsOurs() && len(wanted) == 0 {
		c.nodes = c.nodes[:min(3, len(c.nodes))]
	}
	_, err = c.TryKubectl("", slices.Concat([]string{"label", "--overwrite", "node"}, c.nodes, []string{nodeLabel + "=true"})...)
	return err
}

// isUsable reports whether a pod of any test may run on a node, and can select it by its host name.
func isUsable(n *corev1.Node) bool {
	return testcluster.IsReady(n) && !n.Spec.Unschedulable && len(n.Spec.Taints) == 0 && n.Labels[corev1.LabelHostname] == n.Name
}

// claim creates the namespace of the tests, and cleans up after a run that did not end. It refuses a foreign cluster that has
// Skyhook already.
func (c *Cluster) claim(ctx context.Context) error {
	if c.IsOurs() {
		if err := c.cluster.SetFaults(ctx); err != nil {
			return err
		}
	} else {
		if err := c.refuseExisting(); err != nil {
			return err
		}
		c.release = (*Cluster).leaveForeign
	}
	if _, err := c.TryKubectl("apiVersion: v1\nkind: Namespace\nmetadata: {name: "+Namespace+"}\n", "apply", "-f", "-"); err != nil {
		return err
	}
	return c.deleteLeftovers()
}

func (c *Cluster) refuseExisting() error {
	found, err := c.TryKubectl("", "get", "namespace", Namespace, OperatorNamespace, "--ignore-not-found", "-o", "name")
	if err != nil || strings.Contains(found, "/"+Namespace) {
		return err // an earlier run of the suite created all there is
	}
	crds, err := c.TryKubectl("", "get", "crd", "skyhooks.skyhook.nvidia.com", "nodeops.operator.kairos.io", "--ignore-not-found", "-o", "name")
	if err != nil {
		return err
	}
	if found+crds != "" {
		return fmt.Errorf("the cluster has Skyhook already, and the tests would disturb it: %s", strings.Fields(found+"\n"+crds))
	}
	return nil
}

// leaveForeign removes everything that the suite created on a cluster of somebody else.
func (c *Cluster) leaveForeign() error {
	err := errors.Join(c.deleteLeftovers(), c.removeOperator())
	for _, args := range [][]string{
		{"delete", "namespace", Namespace, "--ignore-not-found", "--timeout=" + Timeout.String()},
		slices.Concat([]string{"label", "node"}, c.nodes, []string{nodeLabel + "-"}),
	} {
		_, failed := c.TryKubectl("", args...)
		err = errors.Join(err, failed)
	}
	return err
}

// runCommand returns what a program printed; its error output is part of the error.
func runCommand(cmd *exec.Cmd) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(stdout.String()), nil
}
