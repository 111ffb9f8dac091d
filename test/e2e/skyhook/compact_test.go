// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/test/cluster/registry"
	"github.com/skyhook-k8s/skyhook/test/e2e/suite"
)

// compactSkyhook is a Skyhook of packages in a chain, which record their stages in /var/log/stages. wait is what a stage of the second
// package does before that, by stage.
func compactSkyhook(name, extra string, packages int, wait map[string]string) string {
	nameOf := func(i int) string { return "p" + string(rune('a'+i)) }
	var b strings.Builder
	for i := range packages {
		script := func(stage string) string {
			before := ""
			if i == 1 && wait[stage] != "" {
				before = wait[stage] + "; "
			}
			return fmt.Sprintf("%secho %s-%s >> /var/log/stages", before, nameOf(i), stage)
		}
		fmt.Fprintf(&b, `
    %s:
      version: 1.0.0
      image: %s
      configMap: {apply.sh: %q, config.sh: %q, post_interrupt.sh: %q, apply_check.sh: "echo checked >> /var/log/checks"}`,
			nameOf(i), shellscript, script("apply"), script("config"), script("post_interrupt"))
		if i > 0 {
			fmt.Fprintf(&b, "\n      dependsOn: {%s: 1.0.0}", nameOf(i-1))
		}
		if i == packages-1 {
			b.WriteString(extra)
		}
	}
	return suite.Manifest(name, "", b.String())
}

// requireStagesOnce checks which stages ran on a node, each once and in this order.
func requireStagesOnce(t *testing.T, node string, want ...string) {
	t.Helper()
	if got := strings.Fields(cluster.Exec(t, node, "cat /var/log/stages")); !slices.Equal(got, want) {
		t.Errorf("the stages were %v, want %v", got, want)
	}
}

// TestCompact shows stages that share pods: one for those before the drain, one for those after it, one for the reboot, one after it.
func TestCompact(t *testing.T) {
	const name = "compact"
	n := cluster.InterruptibleNodes(t, 1)[0]
	cluster.SetOperator(t, "podLayout=Compact")
	selectNodes(t, name, n)
	pods := collectPodNames(t)
	watch := watchNodes(t, n)
	cluster.Apply(t, compactSkyhook(name, "\n      interrupt: {type: reboot}", 3, nil))
	cluster.WaitComplete(t, name)
	watch.requireOneReboot(t)
	requireStagesOnce(t, n, "pa-apply", "pa-config", "pb-apply", "pb-config", "pc-apply", "pc-config", "pc-post_interrupt")
	if checks := strings.Fields(cluster.Exec(t, n, "cat /var/log/checks")); len(checks) != 3 {
		t.Errorf("%d checks ran after apply, want 3", len(checks))
	}
	var ours []string
	for _, p := range pods.list() {
		if strings.HasPrefix(p, name+"-") {
			ours = append(ours, p)
		}
	}
	if len(ours) != 4 {
		t.Errorf("there were the pods %v, want 4", ours)
	}
	cluster.EventuallyPrints(t, "the status counts the nodes", func(out string) bool { return out == `{"compact":1}` },
		"get", "skyhook", name, "-o", "jsonpath={.status.podLayout}")
	cluster.RemoveSkyhook(t, name)
}

// TestCompactEdit edits a package while a pod has its stages ahead: the running stage ends, and nothing begins with the old definition.
func TestCompactEdit(t *testing.T) {
	const name = "edit"
	n := cluster.Nodes(t, 1)[0]
	cluster.SetOperator(t, "podLayout=Compact")
	selectNodes(t, name, n)
	first := compactSkyhook(name, "", 3, map[string]string{"apply": "sleep 12"})
	cluster.Apply(t, first)
	cluster.EventuallyPrints(t, "the second package is applied", func(out string) bool { return strings.Contains(out, `"pb|1.0.0":{"name":"pb"`) },
		"get", "node", n, "-o", `jsonpath={.metadata.annotations.skyhook\.nvidia\.com/nodeState_`+name+`}`)
	cluster.Apply(t, strings.ReplaceAll(first, "echo pc-apply >>", "echo pc-edited >>"))
	cluster.WaitComplete(t, name)
	requireStagesOnce(t, n, "pa-apply", "pa-config", "pb-apply", "pb-config", "pc-edited", "pc-config")
	cluster.RemoveSkyhook(t, name)
}

// TestCompactPowerCut cuts the power in a stage of a pod with several, also after an interrupt: each stage is done once, and
// what was done before is not repeated.
func TestCompactPowerCut(t *testing.T) {
	const name = "powercut"
	machines, n := cluster.LocalCluster(t, "cutting the power"), cluster.InterruptibleNodes(t, 1)[0]
	cluster.SetOperator(t, "podLayout=Compact")
	cluster.RequireService(t, n, "cron")
	for _, stage := range []string{"apply", "config", "post_interrupt"} {
		t.Run(stage, func(t *testing.T) {
			selectNodes(t, name, n)
			interrupt, want := "", []string{"pa-apply", "pa-config", "pb-apply", "pb-config"}
			if stage == "post_interrupt" {
				interrupt, want = "\n      interrupt: {type: service, services: [cron]}", append(want, "pb-post_interrupt")
			}
			cluster.Apply(t, compactSkyhook(name, interrupt, 2, map[string]string{stage: "sleep 8"}))
			cluster.EventuallyPrints(t, "the stage runs", func(out string) bool {
				return strings.Contains(out, fmt.Sprintf(`"pb|1.0.0":{"name":"pb","version":"1.0.0","image":%q,"stage":%q,"state":"in_progress"`, shellscript, strings.ReplaceAll(stage, "_", "-")))
			}, "get", "node", n, "-o", `jsonpath={.metadata.annotations.skyhook\.nvidia\.com/nodeState_`+name+`}`)
			time.Sleep(2 * time.Second)
			ctx, cancel := context.WithTimeout(t.Context(), 2*suite.Timeout)
			defer cancel()
			for _, step := range []func() error{
				func() error { return machines.Crash(ctx, n) },
				func() error { return machines.WaitReady(ctx, n, false) },
				func() error { return machines.Start(ctx, n) },
				func() error { return machines.WaitReady(ctx, n, true) },
			} {
				if err := step(); err != nil {
					t.Fatal(err)
				}
			}
			cluster.WaitComplete(t, name)
			requireStagesOnce(t, n, want...)
			cluster.Exec(t, n, "rm -f /var/log/stages /var/log/checks")
			cluster.RemoveSkyhook(t, name)
		})
	}
}

// TestCompactBareImage: an image that has the package and no program is pulled before its turn and mounted; Compatible needs a shell in it.
func TestCompactBareImage(t *testing.T) {
	const name = "bare"
	local, n := cluster.LocalCluster(t, "pushes an image of a package"), cluster.Nodes(t, 1)[0]
	cluster.SetOperator(t, "podLayout=Compact", "prepull=true")
	selectNodes(t, name, n)
	const image = suite.PackageRepository + name
	step := func(file string) string {
		return `[{"name": "` + file + `", "path": "` + file + `", "arguments": [], "returncodes": [0], "on_host": true, "env": {}, "idempotence": false, "upgrade_step": false}]`
	}
	config := `{"schema_version": "v1", "package_name": "bare", "package_version": "1.0.0", "expected_config_files": [], "modes": {"apply": ` + step("run.sh") + `, "apply-check": ` + step("check.sh") + `}}`
	bare, err := registry.Image(map[string]registry.File{
		"skyhook-package/config.json":          {Content: []byte(config), Mode: 0o644},
		"skyhook-package/skyhook_dir/run.sh":   {Content: []byte("#!/bin/sh\necho bare-apply >> /var/log/stages\n"), Mode: 0o755},
		"skyhook-package/skyhook_dir/check.sh": {Content: []byte("#!/bin/sh\ngrep -q bare-apply /var/log/stages\n"), Mode: 0o755},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := local.Push(t.Context(), image+":1.0.0", bare); err != nil {
		t.Fatal(err)
	}
	cluster.Apply(t, suite.Manifest(name, "", `
    bare: {version: 1.0.0, image: `+image+`}`))
	cluster.WaitComplete(t, name)
	requireStagesOnce(t, n, "bare-apply")
	cluster.EventuallyPrints(t, "the status counts the nodes", func(out string) bool { return out == `{"compact":1}` },
		"get", "skyhook", name, "-o", "jsonpath={.status.podLayout}")
	cluster.RemoveSkyhook(t, name)
}
