// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/skyhook-k8s/skyhook/test/e2e/suite"
)

// recordingPackage is a package that appends a line to /var/log/stages for each stage.
func recordingPackage(version, motd string) string {
	return fmt.Sprintf(`
    diary:
      version: %s
      image: %s
      configInterrupts:
        "motd*": {type: service, services: [cron]}
      configMap:
        motd.conf: %q
        note.txt: "a note"
        apply.sh: echo "apply %[1]s" >> /var/log/stages
        config.sh: echo "config $(cat $SKYHOOK_DIR/configmaps/motd.conf)" >> /var/log/stages
        post_interrupt.sh: echo "post-interrupt" >> /var/log/stages
        upgrade.sh: echo "upgrade to %[1]s" >> /var/log/stages
        uninstall.sh: echo "uninstall %[1]s" >> /var/log/stages
        uninstall_check.sh: test -s /var/log/stages`, version, shellscript, motd)
}

// invocation identifies the last start of a systemd unit.
func invocation(t *testing.T, node, unit string) string {
	t.Helper()
	return cluster.Exec(t, node, "systemctl show -p InvocationID --value "+unit)
}

// TestLifecycle takes one package through its whole life on one node, and compares the stages that the host records.
func TestLifecycle(t *testing.T) {
	const name = "life"
	n := cluster.ShareInterruptibleNodes(t, 1)[0]
	cluster.RequireService(t, n, "cron")
	selectNodes(t, name, n)
	want := ""
	requireNext := func(lines string) {
		t.Helper()
		cluster.WaitComplete(t, name)
		want = strings.TrimPrefix(want+", "+lines, ", ")
		if got := strings.ReplaceAll(cluster.Exec(t, n, "cat /var/log/stages"), "\n", ", "); got != want {
			t.Fatalf("the host recorded\n%s\nwant\n%s", got, want)
		}
	}
	cron := invocation(t, n, "cron")

	cluster.Apply(t, suite.Manifest(name, "", recordingPackage("1.0.0", "one")))
	requireNext("apply 1.0.0, config one")

	t.Log("a changed key without an interrupt runs config only")
	cluster.Apply(t, strings.Replace(suite.Manifest(name, "", recordingPackage("1.0.0", "one")), `"a note"`, `"another note"`, 1))
	requireNext("config one")
	if got := invocation(t, n, "cron"); got != cron {
		t.Errorf("cron was restarted though no changed key asks for it: %s, before %s", got, cron)
	}

	t.Log("a changed key with an interrupt restarts its service once, and post-interrupt follows")
	cluster.Apply(t, suite.Manifest(name, "", recordingPackage("1.0.0", "two")))
	requireNext("config two, post-interrupt")
	after := invocation(t, n, "cron")
	if after == cron {
		t.Errorf("cron was not restarted: %s", after)
	}

	t.Log("a higher version upgrades")
	cluster.Apply(t, suite.Manifest(name, "", recordingPackage("1.1.0", "two")))
	requireNext("upgrade to 1.1.0, config two")

	t.Log("a lower version uninstalls the installed version, with its own definition, and applies the other")
	cluster.Apply(t, suite.Manifest(name, "", recordingPackage("1.0.0", "two")))
	requireNext("uninstall 1.1.0, apply 1.0.0, config two")

	t.Log("removal uninstalls with the definition that was installed")
	cluster.Apply(t, suite.Manifest(name, "", "{}"))
	requireNext("uninstall 1.0.0")
	if got := cluster.Kubectl(t, "get", "node", n, "-o", `jsonpath={.metadata.annotations.skyhook\.nvidia\.com/nodeState_life}`); got != "{}" {
		t.Errorf("nodeState after the last package was removed: %q, want {}", got)
	}
	if got := invocation(t, n, "cron"); got != after {
		t.Errorf("cron was restarted by an upgrade or uninstall that has no interrupt: %s, before %s", got, after)
	}
	cluster.RemoveSkyhook(t, name)
}

// TestRecreated deletes a Skyhook and creates it again, as Helm hooks do: what stayed on the host does not run again, and a
// changed key runs config with its interrupt.
func TestRecreated(t *testing.T) {
	const name = "recreated"
	n := cluster.ShareInterruptibleNodes(t, 1)[0]
	cluster.RequireService(t, n, "cron")
	selectNodes(t, name, n)
	cluster.Apply(t, suite.Manifest(name, "", recordingPackage("1.0.0", "one")))
	cluster.WaitComplete(t, name)
	cluster.DeleteSkyhook(t, name)

	cluster.Apply(t, suite.Manifest(name, "", recordingPackage("1.0.0", "one")))
	cluster.WaitComplete(t, name)
	if got := cluster.Exec(t, n, "cat /var/log/stages"); got != "apply 1.0.0\nconfig one" {
		t.Errorf("created again, the host recorded\n%s", got)
	}
	cluster.DeleteSkyhook(t, name)

	cron := invocation(t, n, "cron")
	cluster.Apply(t, suite.Manifest(name, "", recordingPackage("1.0.0", "two")))
	cluster.WaitComplete(t, name)
	if got := cluster.Exec(t, n, "cat /var/log/stages"); got != "apply 1.0.0\nconfig one\nconfig two\npost-interrupt" {
		t.Errorf("created with another configMap, the host recorded\n%s", got)
	}
	if invocation(t, n, "cron") == cron {
		t.Error("cron was not restarted")
	}
	cluster.RemoveSkyhook(t, name)
}

// TestManualReset: deleting the annotation by hand is the documented way to start again on a node.
func TestManualReset(t *testing.T) {
	const name = "again"
	n := cluster.ShareNodes(t, 1)[0]
	selectNodes(t, name, n)
	cluster.Apply(t, suite.Manifest(name, "", recordingPackage("1.0.0", "one")))
	cluster.WaitComplete(t, name)
	cluster.Kubectl(t, "annotate", "node", n, "skyhook.nvidia.com/nodeState_again-")
	suite.Eventually(t, "the package runs again", func() error {
		if got := cluster.Exec(t, n, "grep -c apply /var/log/stages"); got != "2" {
			return fmt.Errorf("applied %s times", got)
		}
		return nil
	})
	cluster.WaitComplete(t, name)
	cluster.RemoveSkyhook(t, name)
}

// TestDependencies: dependent packages run in order, an independent one beside them, and a failing one reports its last output.
func TestDependencies(t *testing.T) {
	const name = "chain"
	n := cluster.ShareNodes(t, 1)[0]
	selectNodes(t, name, n)
	pkg := func(name, more, script string) string {
		return fmt.Sprintf("\n    %s: {version: 1.0.0, image: %s%s, configMap: {apply.sh: %q}}", name, shellscript, more, script)
	}
	record := func(s string) string { return "echo " + s + " >> /var/log/stages" }
	chain := pkg("top", ", dependsOn: {middle: 1.0.0}", record("top")) +
		pkg("middle", ", dependsOn: {ground: 1.0.0}", record("middle")) +
		pkg("ground", "", "sleep 3; "+record("ground"))
	cluster.Apply(t, suite.Manifest(name, "", chain+pkg("broken", "", "echo the disk is on fire >&2; exit 7")))
	suite.Eventually(t, "the chain ran in order although another package fails", func() error {
		if got := cluster.Exec(t, n, "cat /var/log/stages 2>/dev/null || true"); got != "ground\nmiddle\ntop" {
			return fmt.Errorf("ran: %q", got)
		}
		return nil
	})
	cluster.WaitErroring(t, name, "the disk is on fire")
	cluster.Apply(t, suite.Manifest(name, "", chain+pkg("broken", "", "echo the fire is out")))
	cluster.WaitComplete(t, name)
	cluster.RemoveSkyhook(t, name)
}
