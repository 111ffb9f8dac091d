// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook_test

import (
	"strings"
	"testing"

	"github.com/skyhook-k8s/skyhook/test/e2e/suite"
)

// TestDrift changes a file by hand that a package made. It is seen within the interval, and stays until somebody wants it repaired; then
// the stage whose check fails runs once more, and only once.
func TestDrift(t *testing.T) {
	const name = "drifting"
	n := cluster.ShareInterruptibleNodes(t, 1)[0]
	selectNodes(t, name, n)
	cluster.Exec(t, n, "rm -f /etc/e2e-drift /etc/e2e-drift-runs")
	packages := `
    tuning:
      version: 1.0.0
      image: ` + shellscript + `
      configMap:
        config.sh: echo kept > /etc/e2e-drift && echo run >> /etc/e2e-drift-runs
        config_check.sh: grep -q kept /etc/e2e-drift || { echo the setting is gone; exit 1; }`
	cluster.Apply(t, suite.Manifest(name, "\n  drift: {every: 1m}", packages))
	cluster.WaitComplete(t, name)
	cluster.EventuallyPrints(t, "the node is checked", func(out string) bool { return strings.Contains(out, "checkedAt") },
		"get", "node", n, "-o", `jsonpath={.metadata.annotations.skyhook\.nvidia\.com/drift_`+name+`}`)
	condition := []string{"get", "skyhook", name, "-o", `jsonpath={.status.conditions[?(@.type=="Drifted")].message}`}
	if out := cluster.Kubectl(t, condition...); out != "every package that was checked is as it was left" {
		t.Errorf("the condition says %q", out)
	}

	changeDelivered(t, n)
	cluster.Exec(t, n, "echo by hand > /etc/e2e-drift")
	cluster.EventuallyPrints(t, "Drifted names the node and the check", func(out string) bool {
		return strings.Contains(out, "packages are not as they were left on 1 node: ["+n+"]") && strings.Contains(out, "config-check failed") && strings.Contains(out, "the setting is gone")
	}, condition...)
	requireDifference(t, name)
	if out := cluster.Exec(t, n, "cat /etc/e2e-drift /etc/e2e-drift-runs"); out != "by hand\nrun" {
		t.Errorf("it is only to be reported, and the node has %q", out)
	}
	cluster.WaitComplete(t, name)

	cluster.Kubectl(t, "patch", "skyhook", name, "--type", "merge", "-p", `{"spec":{"drift":{"mode":"Repair"}}}`)
	cluster.EventuallyPrints(t, "Drifted is False again", func(out string) bool { return out == "every package that was checked is as it was left" }, condition...)
	cluster.EventuallyPrints(t, "the node is checked after the repair", func(out string) bool {
		return !strings.Contains(out, `"packages"`) && strings.Contains(out, `"repairs":{"tuning":[`)
	}, "get", "node", n, "-o", `jsonpath={.metadata.annotations.skyhook\.nvidia\.com/drift_`+name+`}`)
	if out := cluster.Exec(t, n, "cat /etc/e2e-drift /etc/e2e-drift-runs"); out != "kept\nrun\nrun" {
		t.Errorf("after one repair the node has %q", out)
	}
	cluster.RemoveSkyhook(t, name)
}

// changeDelivered changes a file by hand that the agent brought to the host, and that no check of the package looks at.
func changeDelivered(t *testing.T, n string) {
	t.Helper()
	delivered := cluster.Exec(t, n, "find /var/lib/skyhook -path '*tuning*' -name config_check.sh")
	if delivered == "" || strings.Contains(delivered, "\n") {
		t.Fatalf("the host has config_check.sh at %q", delivered)
	}
	cluster.Exec(t, n, "printf '\\n# by hand\\n' >> "+delivered)
}

// requireDifference checks that the plugin shows what was changed in it, and fails.
func requireDifference(t *testing.T, name string) {
	t.Helper()
	out, err := cluster.Command(suite.BuildPlugin(t), "drift", name, "--detailed-exitcode").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "\n+# by hand\n") || !strings.Contains(string(out), "config_check.sh (changed)") {
		t.Errorf("kubectl skyhook drift does not show what was changed, or does not fail: %v\n%s", err, out)
	}
}
