// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/skyhook-k8s/skyhook/test/e2e/suite"
)

// example is what examples/README.md promises of a file, in the demo.
type example struct {
	skyhooks   []string          // are Ready in the end
	meanwhile  func(*testing.T)  // before that
	nodeOp     string            // ends as Completed
	rebooted   bool              // both nodes
	onTheHosts map[string]string // commands, and what they print
}

// TestExamples applies every example as it stands, one after the other, on two nodes with the labels that the demo gives.
func TestExamples(t *testing.T) {
	if testing.Short() {
		t.Skip("reboots two nodes three times")
	}
	nodes := cluster.InterruptibleNodes(t, 3)[1:]
	cluster.Label(t, "skyhook.nvidia.com/test-node=demo", nodes...)
	cluster.Label(t, "nvidia.com/gpu.present=true", nodes...)
	for i, labels := range []string{"example.org/rack=a topology.kubernetes.io/zone=zone-a pool=static", "example.org/rack=b topology.kubernetes.io/zone=zone-b pool=autoscaled"} {
		for _, label := range strings.Fields(labels) {
			cluster.Label(t, label, nodes[i])
		}
	}
	plugin := suite.BuildPlugin(t)
	motd := map[string]string{"cat /etc/motd": "managed by skyhook"}
	limit := map[string]string{"sysctl -n net.core.somaxconn": "4096"}
	examples := map[string]example{
		"simple.yaml":    {skyhooks: []string{"demo"}, onTheHosts: map[string]string{"cat /skyhook-hello-world": "hello world\na config is run"}},
		"interrupt.yaml": {skyhooks: []string{"interrupt"}},
		"interrupt-wait-for-pod.yaml": {skyhooks: []string{"wait-for-pod"}, rebooted: true, meanwhile: func(t *testing.T) {
			requireWhy(t, plugin, "wait-for-pod", "ProtectedPod")
			cluster.Kubectl(t, "delete", "pod", "important", "-n", suite.Namespace, "--grace-period=1")
		}},
		"depends-on.yaml":        {skyhooks: []string{"depends-on"}, rebooted: true},
		"config-interrupts.yaml": {skyhooks: []string{"config-interrupts"}, onTheHosts: map[string]string{"cat /etc/sysctl.d/90-skyhook.conf": "net.core.somaxconn = 4096"}},
		"canary.yaml":            {skyhooks: []string{"canary"}, onTheHosts: motd},
		"waves.yaml": {skyhooks: []string{"waves"}, onTheHosts: motd, meanwhile: func(t *testing.T) {
			requireWhy(t, plugin, "waves", "Approval")
			out, err := cluster.Command(plugin, "approve", "waves", "default").CombinedOutput()
			if err != nil {
				t.Fatalf("kubectl skyhook approve waves default: %v\n%s", err, out)
			}
		}},
		"per-rack.yaml":         {skyhooks: []string{"limits", "banner"}, onTheHosts: motd},
		"windows.yaml":          {meanwhile: func(t *testing.T) { requireWindow(t, plugin, "windows") }},
		"runtime-required.yaml": {skyhooks: []string{"node-base"}, onTheHosts: limit},
		"gpu-driver.yaml":       {skyhooks: []string{"gpu-driver"}},
		"nodeop.yaml":           {nodeOp: "nodeop/kernel-version"},
		"nodeop-reboot.yaml":    {nodeOp: "nodeop/open-files", rebooted: true, onTheHosts: map[string]string{"systemctl show --value --property DefaultLimitNOFILESoft": "65536"}},
		"kairos-upgrade.yaml":   {meanwhile: requireNoKairos},
	}
	requireDocumented(t, slices.Sorted(maps.Keys(examples)))
	for _, file := range slices.Sorted(maps.Keys(examples)) {
		t.Run(file, func(t *testing.T) { examples[file].run(t, file, nodes) })
	}
}

func (e example) run(t *testing.T, file string, nodes []string) {
	manifest, err := os.ReadFile(filepath.Join(suite.Root(), "examples", file))
	if err != nil {
		t.Fatal(err)
	}
	before := map[string]string{}
	for _, n := range nodes {
		before[n] = cluster.BootID(t, n)
	}
	cluster.ApplyUntilCleanup(t, string(manifest))
	if e.meanwhile != nil {
		e.meanwhile(t)
	}
	for _, name := range e.skyhooks {
		cluster.WaitComplete(t, name)
	}
	if e.nodeOp != "" {
		cluster.EventuallyPrints(t, e.nodeOp+" ends", func(phase string) bool { return phase == "Completed" },
			"get", e.nodeOp, "-n", suite.Namespace, "-o", "jsonpath={.status.phase}")
	}
	for _, n := range nodes {
		if isRebooted := cluster.BootID(t, n) != before[n]; isRebooted != e.rebooted {
			t.Errorf("%s was rebooted: %v, and the README says %v", n, isRebooted, e.rebooted)
		}
		for command, want := range e.onTheHosts {
			if got := cluster.Exec(t, n, command); got != want {
				t.Errorf("on %s, %s prints %q, want %q", n, command, got, want)
			}
		}
	}
	if _, err := cluster.TryKubectl(string(manifest), "delete", "-f", "-", "--ignore-not-found", "--timeout="+suite.Timeout.String()); err != nil {
		t.Fatal(err)
	}
}

// requireDocumented checks that files of the first table of the README, of the folder and of the test are the same.
func requireDocumented(t *testing.T, tested []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(suite.Root(), "examples", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, m := range regexp.MustCompile(`(?m)^\| \[([a-z-]+\.yaml)\]`).FindAllStringSubmatch(string(text), -1) {
		documented = append(documented, m[1])
	}
	found, err := filepath.Glob(filepath.Join(suite.Root(), "examples", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range found {
		found[i] = filepath.Base(found[i])
	}
	if slices.Sort(documented); !slices.Equal(documented, tested) || !slices.Equal(found, tested) {
		t.Fatalf("the README has %v, the folder %v, the test %v", documented, found, tested)
	}
}

// requireWhy waits until kubectl skyhook why gives a reason for a Skyhook.
func requireWhy(t *testing.T, plugin, name, reason string) {
	t.Helper()
	suite.Eventually(t, name+" waits: "+reason, func() error { return tryWhy(plugin, name, reason) })
}

func tryWhy(plugin, name, reason string) error {
	out, err := cluster.Command(plugin, "why", name).CombinedOutput()
	if err == nil && !strings.Contains(string(out), reason) {
		err = fmt.Errorf("kubectl skyhook why printed %q", out)
	}
	return err
}

// requireWindow waits until a Skyhook is complete, or waits for a window: that depends on the time of day.
func requireWindow(t *testing.T, plugin, name string) {
	t.Helper()
	suite.Eventually(t, name+" is complete, or waits for a window", func() error {
		status, err := cluster.TryKubectl("", "get", "skyhook", name, "-o", "jsonpath={.status.status}")
		if err != nil || status == "complete" {
			return err
		}
		return tryWhy(plugin, name, "Window")
	})
}

// requireNoKairos waits until the upgrade says that it has no node.
func requireNoKairos(t *testing.T) {
	t.Helper()
	cluster.EventuallyPrints(t, "the upgrade has no node", func(out string) bool { return strings.Contains(out, "no node") || strings.Contains(out, "NoNode") },
		"get", "nodeopupgrade", "kairos-upgrade", "-n", suite.Namespace, "-o", "jsonpath={.status}")
}
