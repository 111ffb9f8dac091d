// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skyhook-k8s/skyhook/test/e2e/suite"
)

// TestQuickStart follows the README, and checks what its commands print.
func TestQuickStart(t *testing.T) {
	const name = "demo"
	nodes := cluster.Nodes(t, 3)
	selected := nodes[:2]
	cluster.Label(t, "skyhook.nvidia.com/test-node=demo", selected...)
	pods := collectPodNames(t)
	manifest, err := os.ReadFile(filepath.Join(suite.Root(), "examples", "simple.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	cluster.Apply(t, string(manifest))
	cluster.WaitComplete(t, name)

	var stages, want []string
	for _, n := range nodes {
		for _, stage := range []string{"apply", "config", "upgrade", "uninstall", "interrupt", "post-interrupt"} {
			for _, pod := range pods.list() {
				if strings.HasPrefix(pod, "demo-tuning-1-2-0-"+stage+"-"+n+"-") {
					stages = append(stages, stage+" on "+n)
				}
			}
		}
	}
	for _, n := range selected {
		want = append(want, "apply on "+n, "config on "+n)
		if got, want := cluster.Exec(t, n, "cat /skyhook-hello-world"), "hello world\na config is run"; got != want {
			t.Errorf("file on %s: got %q, want %q", n, got, want)
		}
	}
	if !slices.Equal(stages, want) {
		t.Errorf("one pod per stage and node: got %s, want %s", stages, want)
	}
	if got := cluster.Exec(t, nodes[2], "ls /skyhook-hello-world 2>&1 || true"); !strings.Contains(got, "No such file") {
		t.Errorf("node %s is not selected, but has the file", nodes[2])
	}

	describe := cluster.Kubectl(t, "describe", "skyhooks.skyhook.nvidia.com/demo")
	for _, want := range []string{"tuning|1.2.0", "Complete Nodes:", "2/2", "complete"} {
		if !strings.Contains(describe, want) {
			t.Errorf("kubectl describe does not show %q:\n%s", want, describe)
		}
	}
	state := cluster.Kubectl(t, "get", "nodes", "-o", `jsonpath={range .items[?(@.metadata.labels.skyhook\.nvidia\.com/test-node=="demo")]}{.metadata.annotations.skyhook\.nvidia\.com/nodeState_demo}{"\n"}{end}`)
	line := cluster.Localize(`{"tuning|1.2.0":{"name":"tuning","version":"1.2.0","image":"` + shellscript + `","stage":"config","state":"complete"}}`)
	if want := line + "\n" + line; state != want {
		t.Errorf("the documented jsonpath query shows\n%s\nwant\n%s", state, want)
	}
	cluster.EventuallyPrints(t, "no pod is left", func(pods string) bool { return pods == "" },
		"get", "pods", "-n", suite.OperatorNamespace, "-l", "skyhook.nvidia.com/name=demo", "-o", "name")
	cluster.RemoveSkyhook(t, name)
	for _, n := range selected {
		cluster.Exec(t, n, "rm -f /skyhook-hello-world")
	}
}
