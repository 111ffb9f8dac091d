// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook_test

import (
	"fmt"
	"sort"
	"strings"
	"testing"
)

// TestQuickStart does what the README tells a new user to do, and reads what the user would read.
func TestQuickStart(t *testing.T) {
	for _, n := range nodes[:2] {
		must(t, "label", "node", n, "skyhook.nvidia.com/test-node=demo")
		t.Cleanup(func() { _, _ = kube("", "label", "node", n, "skyhook.nvidia.com/test-node-") })
	}
	pods := podsSeen(t)
	must(t, "apply", "-f", "testdata/demo.yaml")
	complete(t, "demo")

	var stages []string
	for _, name := range pods.list() {
		for _, n := range nodes {
			for _, stage := range []string{"apply", "config", "upgrade", "uninstall", "interrupt", "post-interrupt"} {
				if strings.HasPrefix(name, "demo-tuning-1-1-0-"+stage+"-"+n+"-") {
					stages = append(stages, stage+" on "+n)
				}
			}
		}
	}
	sort.Strings(stages)
	if got, want := strings.Join(stages, ", "), "apply on n1, apply on n2, config on n1, config on n2"; got != want {
		t.Errorf("one pod per stage and node: got %s, want %s", got, want)
	}
	for _, n := range nodes[:2] {
		if got, want := on(t, n, "cat /skyhook-hello-world"), "hello world\na config is run"; got != want {
			t.Errorf("file on %s: got %q, want %q", n, got, want)
		}
	}
	if got := on(t, nodes[2], "ls /skyhook-hello-world 2>&1 || true"); !strings.Contains(got, "No such file") {
		t.Errorf("node %s is not selected, but has the file", nodes[2])
	}

	describe := must(t, "describe", "skyhooks.skyhook.nvidia.com/demo")
	for _, want := range []string{"tuning|1.1.0", "Complete Nodes:", "2/2", "complete"} {
		if !strings.Contains(describe, want) {
			t.Errorf("kubectl describe does not show %q:\n%s", want, describe)
		}
	}
	state := must(t, "get", "nodes", "-o", `jsonpath={range .items[?(@.metadata.labels.skyhook\.nvidia\.com/test-node=="demo")]}{.metadata.annotations.skyhook\.nvidia\.com/nodeState_demo}{"\n"}{end}`)
	line := `{"tuning|1.1.0":{"name":"tuning","version":"1.1.0","image":"ghcr.io/nvidia/skyhook-packages/shellscript","stage":"config","state":"complete"}}`
	if want := line + "\n" + line; state != want {
		t.Errorf("the documented jsonpath query shows\n%s\nwant\n%s", state, want)
	}
	eventually(t, "no pod is left", func() error {
		pods, err := kube("", "get", "pods", "-n", "skyhook", "-l", "skyhook.nvidia.com/name=demo", "-o", "name")
		if err == nil && pods != "" {
			err = fmt.Errorf("there are %s", pods)
		}
		return err
	})
	remove(t, "demo")
}
