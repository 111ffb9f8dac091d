// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skyhook-k8s/skyhook/test/e2e/suite"
)

// release is an operator with its chart, its agent and its plugin. They need not be of one version.
type release struct {
	chart           string // directory
	operator, agent string // tags
	plugin          string // of the operator's version
}

func (r release) install(t *testing.T) {
	t.Helper()
	cluster.InstallChart(t, r.chart,
		"--set", "controllerManager.manager.image.tag="+r.operator,
		"--set", "controllerManager.manager.agent.tag="+r.agent)
}

// findReleases returns the release of this tree, and the previous one, which `make skew` builds. Its images get a tag of their own.
func findReleases(t *testing.T) (this, previous release) {
	t.Helper()
	dir := os.Getenv("SKYHOOK_E2E_PREVIOUS")
	if dir == "" {
		t.Skip("SKYHOOK_E2E_PREVIOUS names no directory with the previous release; `make skew` builds one")
	}
	for _, program := range []string{"operator", "agent"} {
		cluster.PushArchive(t, filepath.Join(dir, "dist", "images", program+".tar"), suite.Images+"/"+program+":previous")
	}
	this = release{chart: filepath.Join(suite.Root(), "chart"), operator: suite.ChartTag, agent: suite.ChartTag, plugin: suite.BuildPlugin(t)}
	previous = release{chart: filepath.Join(dir, "chart"), operator: "previous", agent: "previous", plugin: filepath.Join(dir, "bin", "kubectl-skyhook")}
	return this, previous
}

// TestPreviousRelease lets another release take over in the middle of a rollout, forwards and back, and mixes operator, agent and
// plugin of both. Each node reboots once, one at a time, and no stage runs twice or is left out.
func TestPreviousRelease(t *testing.T) {
	nodes := cluster.InterruptibleNodes(t, 3)
	this, previous := findReleases(t)
	t.Cleanup(func() { cluster.InstallChart(t, this.chart) })
	newAgent, oldAgent := previous, this
	newAgent.agent, oldAgent.agent = this.agent, previous.agent
	for _, c := range []struct {
		name          string
		before, after release
		nodes         int
	}{
		{"upgrade", previous, this, 3},
		{"downgrade", this, previous, 3},
		{"upgrade-of-the-agent", previous, newAgent, 1},
		{"downgrade-of-the-agent", this, oldAgent, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			nodes := nodes[:c.nodes]
			selectNodes(t, c.name, nodes...)
			c.before.install(t)
			watch := watchNodes(t, nodes...)
			cluster.Apply(t, suite.Manifest(c.name, "\n  interruptionBudget: {count: 1}", interruptingPackage("{type: reboot}")))
			watch.waitForReboot(t)
			c.after.install(t)
			cluster.WaitComplete(t, c.name)
			watch.requireOneReboot(t)
			for _, n := range nodes {
				requireStages(t, n, "apply config post-interrupt")
			}
			for _, plugin := range []string{this.plugin, previous.plugin} {
				requirePluginKnows(t, plugin, c.name, nodes)
			}

			// What the first release recorded and froze serves the second one: only the stages of this edit run.
			cluster.Kubectl(t, "patch", "skyhook", c.name, "--type=merge", "-p", `{"spec": {"packages": {"driver": {"configMap": {"config.sh": "echo second >> /var/log/driver"}}}}}`)
			cluster.WaitComplete(t, c.name)
			for _, n := range nodes {
				requireStages(t, n, "apply config post-interrupt second")
			}
			cluster.RemoveSkyhook(t, c.name)
		})
	}
}

// TestPreviousReleaseNodeOp lets another release take over a NodeOp between its two nodes, forwards and back. The command runs once on each
// node, and each reboots once, one at a time.
func TestPreviousReleaseNodeOp(t *testing.T) {
	nodes := cluster.InterruptibleNodes(t, 2)
	this, previous := findReleases(t)
	t.Cleanup(func() { cluster.InstallChart(t, this.chart) })
	for _, c := range []struct {
		name          string
		before, after release
	}{
		{"op-upgrade", previous, this},
		{"op-downgrade", this, previous},
	} {
		t.Run(c.name, func(t *testing.T) {
			selectNodes(t, c.name, nodes...)
			c.before.install(t)
			watch := watchNodes(t, nodes...)
			cluster.Apply(t, `
apiVersion: operator.kairos.io/v1alpha1
kind: NodeOp
metadata: {name: `+c.name+`}
spec:
  nodeSelector: {matchLabels: {e2e: `+c.name+`}}
  image: busybox:latest
  command: [sh, -c, "echo ran >> /host/var/log/stages"]
  concurrency: 1
  cordon: true
  rebootOnSuccess: true
`)
			watch.waitForReboot(t)
			c.after.install(t)
			isComplete := func(out string) bool { return out == "Completed 2" }
			cluster.EventuallyPrints(t, "the NodeOp completes", isComplete, "get", "nodeop", c.name, "-o", "jsonpath={.status.phase} {.status.completed}")
			watch.requireOneReboot(t)
			for _, n := range nodes {
				if ran := strings.Fields(cluster.Exec(t, n, "cat /var/log/stages")); len(ran) != 1 {
					t.Errorf("on %s the command ran %d times", n, len(ran))
				}
				for _, plugin := range []string{this.plugin, previous.plugin} {
					if out, err := cluster.Command(plugin, "why", n).CombinedOutput(); err != nil {
						t.Errorf("%s why %s: %v: %s", plugin, n, err, out)
					}
				}
			}
			cluster.Kubectl(t, "delete", "nodeop", c.name, "--timeout="+suite.Timeout.String())
		})
	}
}

// requirePluginKnows checks that a plugin reads what the operator of another release wrote.
func requirePluginKnows(t *testing.T, plugin, name string, nodes []string) {
	t.Helper()
	for _, args := range []string{"status " + name + " -o json", "plan", "why " + nodes[0], "node status " + nodes[0]} {
		out, err := cluster.Command(plugin, strings.Fields(args)...).CombinedOutput()
		if err != nil {
			t.Errorf("%s %s: %v: %s", plugin, args, err, out)
		}
		if strings.HasPrefix(args, "status") && !strings.Contains(string(out), `"complete"`) {
			t.Errorf("%s %s does not say that it is complete: %s", plugin, args, out)
		}
	}
}
