// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	release = "skyhook-operator"
	// OperatorDeployment is the Deployment of the operator.
	OperatorDeployment = release + "-controller-manager"
	// OperatorSelector selects the pods of the operator.
	OperatorSelector = "control-plane=controller-manager"
)

// The names are those that charts of releases before know, too. A failed node is left within seconds, and one replica must not block the drain of its node.
const operatorValues = `
cleanup: {enabled: true}
controllerManager:
  replicas: 1
  podDisruptionBudget: null
  selectors: {` + nodeLabel + `: "true"}
  tolerations:
  - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 5}
  - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 5}
`

// Tests say what they want of an object. What a new user gets is tested by the quick start, `make chaos` and `make disasters`.
func (c *Cluster) installOperator(flags ...string) error {
	return c.installChart("chart", slices.Concat([]string{"--set", "profile=Compatible"}, flags)...)
}

// InstallChart installs the chart in a directory, or goes over to it.
func (c *Cluster) InstallChart(t *testing.T, chart string, flags ...string) {
	t.Helper()
	if err := c.installChart(chart, flags...); err != nil {
		t.Fatal(err)
	}
}

func (c *Cluster) installChart(chart string, flags ...string) error {
	cmd := c.Command(c.helm, slices.Concat([]string{"upgrade", "--install", release, chart, "--namespace", OperatorNamespace, "--create-namespace",
		"--wait", "--timeout", Timeout.String(), "--values", "-"}, c.ImageFlags(), flags)...)
	cmd.Stdin = strings.NewReader(operatorValues)
	_, err := runCommand(cmd)
	return err
}

// ImageFlags are flags of Helm that have the chart use the images of the suite.
func (c *Cluster) ImageFlags() []string {
	if c.IsOurs() {
		return nil // the cluster's registry has them under the chart's own names
	}
	var flags []string
	for value, image := range map[string]string{
		"controllerManager.manager.image.repository":       Images + "/operator",
		"controllerManager.manager.agent.repository":       Images + "/agent",
		"controllerManager.manager.env.pauseImage":         "registry.k8s.io/pause:3.10",
		"controllerManager.manager.env.nodeOpDefaultImage": "busybox:latest",
	} {
		flags = append(flags, "--set", value+"="+c.Localize(image))
	}
	return append(flags, "--set", "controllerManager.manager.image.pullPolicy=Always")
}

// ScaleOperator changes the number of operators, and perhaps other values of the chart, for the rest of the test.
func (c *Cluster) ScaleOperator(t *testing.T, replicas int, values ...string) {
	t.Helper()
	c.setOperator(t, nil, "--set", strings.Join(append(values, fmt.Sprintf("controllerManager.replicas=%d", replicas)), ","))
}

// SetOperator changes settings of the operator, such as podLayout=Compact, for the rest of the test. No other test may run meanwhile.
func (c *Cluster) SetOperator(t *testing.T, settings ...string) {
	t.Helper()
	c.setOperator(t, settings)
}

func (c *Cluster) setOperator(t *testing.T, settings []string, flags ...string) {
	t.Helper()
	for _, s := range settings {
		flags = append(flags, "--set-string", "controllerManager.manager.env."+s)
	}
	if err := c.installOperator(flags...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.installOperator(); err != nil {
			t.Error(err)
		}
	})
}

// removeOperator uninstalls the chart, and deletes CRDs and namespace.
func (c *Cluster) removeOperator() error {
	if _, err := c.TryHelm("uninstall", release, "--namespace", OperatorNamespace, "--ignore-not-found", "--wait", "--timeout", Timeout.String()); err != nil {
		return err
	}
	for _, args := range []string{"crd -l app.kubernetes.io/part-of=skyhook-operator", "namespace --ignore-not-found " + OperatorNamespace} {
		if _, err := c.TryKubectl("", strings.Fields("delete --timeout="+Timeout.String()+" "+args)...); err != nil {
			return err
		}
	}
	return nil
}

// deleteLeftovers deletes objects of tests that failed, so that other tests start clean.
func (c *Cluster) deleteLeftovers() error {
	const kinds = "skyhooks.skyhook.nvidia.com,deploymentpolicies.skyhook.nvidia.com,nodeops.operator.kairos.io,nodeopupgrades.operator.kairos.io"
	crds, err := c.TryKubectl("", "get", "crd", "-o", "name")
	if err != nil || !strings.Contains(crds, "skyhooks.skyhook.nvidia.com") {
		return err
	}
	list := func() ([]string, error) {
		out, err := c.TryKubectl("", "get", kinds, "-A", "-o", `jsonpath={range .items[*]}{.kind} {.metadata.name} {.metadata.namespace}{"\n"}{end}`)
		return strings.FieldsFunc(out, func(r rune) bool { return r == '\n' }), err
	}
	left, err := list()
	if err != nil || len(left) == 0 {
		return err
	}
	if _, err := c.TryKubectl("", "delete", kinds, "-A", "--all", "--wait=false"); err != nil {
		return err
	}
	for deadline := time.Now().Add(time.Minute); len(left) > 0 && time.Now().Before(deadline) && err == nil; time.Sleep(time.Second) {
		left, err = list()
	}
	for _, object := range left {
		kind, name, _ := strings.Cut(object, " ")
		name, namespace, _ := strings.Cut(name, " ")
		_, _ = c.TryKubectl("", "-n", namespace, "patch", kind, name, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`) // it may be gone
	}
	if err == nil {
		_, err = c.TryKubectl("", slices.Concat([]string{"uncordon"}, c.nodes)...)
	}
	return err
}

// KillOperators kills all operators at once.
func (c *Cluster) KillOperators(t *testing.T) {
	t.Helper()
	c.Kubectl(t, "-n", OperatorNamespace, "delete", "pod", "-l", OperatorSelector, "--force", "--grace-period=0", "--wait=false")
}
