// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/skyhook-k8s/skyhook/internal/published"
)

const (
	clusterName  = "visits"
	operatorNode = "operator"
	namespace    = "skyhook"
	deployment   = "skyhook-operator-controller-manager"
	nodeLabel    = "skyhook.test/visits"
)

// measuredNodes are the nodes that are visited.
var measuredNodes = []string{"node1", "node2"}

// testCluster is a cluster of test/cluster, used by its command.
type testCluster struct {
	name     string
	isOurs   bool
	dir      string // of programs and images
	client   *kubernetes.Clientset
	progress io.Writer
	verbose  bool
}

// bringUp brings the cluster up, or finds one that is up.
func bringUp(ctx context.Context, set settings, progress io.Writer) (*testCluster, error) {
	c := &testCluster{name: set.cluster, progress: progress, verbose: set.verbose}
	if c.isOurs = c.name == ""; c.isOurs {
		c.name = clusterName
	}
	var err error
	if c.dir, err = os.MkdirTemp("", "skyhook-visits-"); err != nil {
		return nil, err
	}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.takeDown(set.keep))
	}
	return c, nil
}

func (c *testCluster) start(ctx context.Context) error {
	source, err := filepath.Abs("test/cluster")
	if err != nil {
		return err
	}
	if _, err := c.command(ctx, "go", "build", "-C", "test/cluster", "-trimpath", "-ldflags",
		"-X github.com/skyhook-k8s/skyhook/test/cluster/build.sources="+source, "-o", c.program(), "."); err != nil {
		return fmt.Errorf("building test/cluster, run this in the root of the repository: %w", err)
	}
	if c.isOurs {
		if _, err := c.run(ctx, "up", "--nodes", strings.Join(append(slices.Clone(measuredNodes), operatorNode), ",")); err != nil {
			return err
		}
	}
	kubeconfig, err := c.run(ctx, "kubeconfig")
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig of cluster %s: %w", c.name, err)
	}
	config.QPS = -1
	c.client, err = kubernetes.NewForConfig(config)
	return err
}

func (c *testCluster) takeDown(keep bool) error {
	var err error
	if c.isOurs && !keep {
		if _, statErr := os.Stat(c.program()); statErr == nil {
			_, err = c.run(context.Background(), "down")
		}
	}
	return errors.Join(err, os.RemoveAll(c.dir))
}

func (c *testCluster) program() string { return filepath.Join(c.dir, "cluster") }

// run runs a command of test/cluster and returns what it printed.
func (c *testCluster) run(ctx context.Context, args ...string) (string, error) {
	return c.command(ctx, c.program(), append([]string{args[0], "--name", c.name}, args[1:]...)...)
}

// kubectl runs kubectl with a manifest as its input.
func (c *testCluster) kubectl(ctx context.Context, input string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.program(), append([]string{"kubectl", "--name", c.name}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	return c.output(cmd)
}

func (c *testCluster) command(ctx context.Context, program string, args ...string) (string, error) {
	return c.output(exec.CommandContext(ctx, program, args...))
}

func (c *testCluster) output(cmd *exec.Cmd) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(stdout.String()), nil
}

// install installs the operator of this tree on its node, and pushes its images and those of the packages.
func (c *testCluster) install(ctx context.Context) error {
	fmt.Fprintln(c.progress, "visits: building images")
	if _, err := c.command(ctx, "go", "run", "./hack/mkimage", "--only", "operator,agent,pause,packages/shellscript", "--out", c.dir,
		"--platform", "linux/"+runtime.GOARCH, "--version", "v0.1.0"); err != nil {
		return err
	}
	manifests, err := os.ReadFile("config/default/install.yaml")
	if err != nil {
		return err
	}
	for _, program := range []string{"operator", "agent"} {
		ref := published.Images + "/" + program + ":v0.1.0"
		digest, err := c.run(ctx, "image", "push", filepath.Join(c.dir, program+".tar"), ref)
		if err != nil {
			return err
		}
		manifests = regexp.MustCompile(regexp.QuoteMeta(published.Images+"/"+program)+`:[^ "\n]*`).ReplaceAllLiteral(manifests, []byte(ref+"@"+digest))
	}
	if _, err := c.run(ctx, "image", "push", filepath.Join(c.dir, "pause.tar"), "registry.k8s.io/pause:3.10"); err != nil {
		return err
	}
	if err := c.pushPackages(ctx); err != nil {
		return err
	}
	fmt.Fprintln(c.progress, "visits: installing the operator")
	for _, node := range measuredNodes {
		if _, err := c.kubectl(ctx, "", "label", "--overwrite", "node", node, nodeLabel+"=true"); err != nil {
			return err
		}
	}
	if _, err := c.kubectl(ctx, string(manifests), "apply", "--server-side", "--force-conflicts", "-f", "-"); err != nil {
		return err
	}
	place := fmt.Sprintf(`{"spec":{"replicas":1,"strategy":{"type":"Recreate","rollingUpdate":null},"template":{"spec":{"nodeSelector":{"kubernetes.io/hostname":%q}}}}}`, operatorNode)
	if _, err := c.kubectl(ctx, "", "-n", namespace, "patch", "deployment", deployment, "--type=merge", "-p", place); err != nil {
		return err
	}
	_, err = c.kubectl(ctx, "", "-n", namespace, "rollout", "status", "deployment", deployment, "--timeout=5m")
	return err
}

// useLayout has the operator make pods of a layout.
func (c *testCluster) useLayout(ctx context.Context, layout string) error {
	if _, err := c.kubectl(ctx, "", "-n", namespace, "set", "env", "deployment/"+deployment, "POD_LAYOUT="+layout); err != nil {
		return err
	}
	_, err := c.kubectl(ctx, "", "-n", namespace, "rollout", "status", "deployment", deployment, "--timeout=5m")
	return err
}

// removeImages makes the nodes pull all images again that a visit needs.
func (c *testCluster) removeImages(ctx context.Context) error {
	const script = `set -e
ctr() { /usr/local/bin/ctr --namespace=k8s.io "$@"; }
names=$(ctr images ls -q | grep -E '^(ghcr\.io/|registry\.k8s\.io/pause:3\.10$|registry\.k8s\.io/pause@)' || true)
ids=$(ctr images ls | awk '/ghcr\.io\// {print $3}' | sort -u)
for id in $ids; do names="$names $(ctr images ls | awk -v id="$id" '$3 == id {print $1}')"; done
for name in $(printf '%s\n' $names | sort -u); do ctr images rm --sync "$name" >/dev/null; done
! ctr images ls -q | grep '^ghcr\.io/'`
	for _, node := range measuredNodes {
		if _, err := c.run(ctx, "node", "exec", node, "--", "/bin/sh", "-c", script); err != nil {
			return err
		}
	}
	return nil
}
