// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Command is a program that runs in the repository, with kubectl and the kubeconfig of the cluster in its environment.
func (c *Cluster) Command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Dir = Root()
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig, "PATH="+filepath.Dir(c.kubectl)+":"+os.Getenv("PATH"))
	return cmd
}

// Kubeconfig is the path of the kubeconfig that all commands use.
func (c *Cluster) Kubeconfig() string { return c.kubeconfig }

// KubectlCommand is kubectl with these arguments, for tests that read its output while it runs.
func (c *Cluster) KubectlCommand(args ...string) *exec.Cmd { return c.Command(c.kubectl, args...) }

// Kubectl runs kubectl and returns what it printed.
func (c *Cluster) Kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := c.TryKubectl("", args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TryKubectl runs kubectl with a localized manifest as its input.
func (c *Cluster) TryKubectl(input string, args ...string) (string, error) {
	cmd := c.KubectlCommand(args...)
	cmd.Stdin = strings.NewReader(c.Localize(input))
	return runCommand(cmd)
}

// TryHelm runs Helm.
func (c *Cluster) TryHelm(args ...string) (string, error) {
	return runCommand(c.Command(c.helm, args...))
}

// Helm runs Helm and returns what it printed.
func (c *Cluster) Helm(t *testing.T, args ...string) string {
	t.Helper()
	out, err := c.TryHelm(args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Apply applies a manifest.
func (c *Cluster) Apply(t *testing.T, manifest string) {
	t.Helper()
	if _, err := c.TryKubectl(manifest, "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

// ApplyUntilCleanup applies a manifest, and deletes its objects at the end of the test.
func (c *Cluster) ApplyUntilCleanup(t *testing.T, manifest string) {
	t.Helper()
	t.Cleanup(func() { _, _ = c.TryKubectl(manifest, "delete", "-f", "-", "--wait=false", "--ignore-not-found") })
	c.Apply(t, manifest)
}

// Localize adapts a manifest to the cluster: the namespace default becomes Namespace, and on a cluster of somebody else images come
// from its registry.
func (c *Cluster) Localize(text string) string {
	pairs := []string{"namespace: default", "namespace: " + Namespace}
	return strings.NewReplacer(append(pairs, c.foreignImages()...)...).Replace(text)
}

// Label labels nodes with KEY=VALUE until the end of the test.
func (c *Cluster) Label(t *testing.T, label string, nodes ...string) {
	t.Helper()
	key, _, _ := strings.Cut(label, "=")
	c.Kubectl(t, slices.Concat([]string{"label", "--overwrite", "node"}, nodes, []string{label})...)
	t.Cleanup(func() {
		if _, err := c.TryKubectl("", slices.Concat([]string{"label", "node"}, nodes, []string{key + "-"})...); err != nil {
			t.Error(err)
		}
	})
}

// Eventually calls check until it succeeds, and fails the test after Timeout with its last error.
func Eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	if err := poll(check); err != nil {
		t.Fatalf("after %s: %s: %v", Timeout, what, err)
	}
}

// poll calls check four times a second at first, and once a second when it takes longer: each call is a process.
func poll(check func() error) error {
	pause := 250 * time.Millisecond
	for deadline := time.Now().Add(Timeout); ; time.Sleep(pause) {
		if err := check(); err == nil || time.Now().After(deadline) {
			return err
		}
		pause = min(pause*11/10, time.Second)
	}
}

// EventuallyPrints runs kubectl until accept holds for its output.
func (c *Cluster) EventuallyPrints(t *testing.T, what string, accept func(string) bool, args ...string) {
	t.Helper()
	Eventually(t, what, func() error {
		out, err := c.TryKubectl("", args...)
		if err == nil && !accept(out) {
			err = fmt.Errorf("kubectl printed %q", out)
		}
		return err
	})
}

// dump prints the state of the cluster after a failure.
func (c *Cluster) dump(to io.Writer) {
	section := func(what, out string, err error) {
		_, _ = fmt.Fprintf(to, "\n--- %s\n%s\n", what, out)
		if err != nil {
			_, _ = fmt.Fprintln(to, err)
		}
	}
	for _, args := range []string{
		"get skyhooks,deploymentpolicies,nodeops,nodeopupgrades -A -o yaml",
		"get nodes -o custom-columns=NAME:.metadata.name,BOOT:.status.nodeInfo.bootID,UNSCHEDULABLE:.spec.unschedulable,ANNOTATIONS:.metadata.annotations",
		"get pods,jobs -A -o wide",
		"get events -A --sort-by=.lastTimestamp",
		"-n " + OperatorNamespace + " describe pods",
		"-n " + OperatorNamespace + " logs --tail=200 -l " + OperatorSelector,
	} {
		out, err := c.TryKubectl("", strings.Fields(args)...)
		section("kubectl "+args, out, err)
	}
	for _, node := range c.nodes {
		const logs = `for f in $(ls -t $(find /var/log/skyhook -name '*.log') | head -n 6); do echo "== $f"; tail -n 40 $f; done; journalctl -n 40 --no-pager`
		out, err := c.TryExec(node, logs)
		section("logs on "+node, out, err)
	}
}

// BuildPlugin compiles the plugin of kubectl and returns its path.
func BuildPlugin(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "kubectl-skyhook")
	build := exec.Command("go", "build", "-o", program, "./cmd/kubectl-skyhook")
	build.Dir = Root()
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("compiling the plugin: %v: %s", err, out)
	}
	return program
}
