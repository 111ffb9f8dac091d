// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook_test

import (
	"fmt"
	"testing"

	"github.com/skyhook-k8s/skyhook/test/e2e/suite"
)

// driverScripts write a file for the version they belong to, and remove it when they are uninstalled. Version 2.0.0 breaks the device.
func driverScripts(version, after string) string {
	return fmt.Sprintf(`
    driver:
      version: %[1]s
      image: %[2]s
      interrupt: {type: reboot}
      configMap:
        apply.sh: echo %[1]s > /etc/e2e-driver
        apply_check.sh: grep -q %[1]s /etc/e2e-driver
        config.sh: cp /etc/e2e-driver /etc/e2e-driver.conf
        uninstall.sh: rm -f /etc/e2e-driver /etc/e2e-driver.conf
        post_interrupt.sh: %[3]s`, version, shellscript, after)
}

// TestRollback upgrades a node to a driver with which a DaemonSet does not come back after the reboot. The node is not given back, and
// goes back to the files that it had, byte for byte, with one more reboot.
func TestRollback(t *testing.T) {
	const name = "rolled-back"
	n := cluster.ShareInterruptibleNodes(t, 1)[0]
	selectNodes(t, name, n)
	cluster.ApplyUntilCleanup(t, deviceDaemonSet(name))
	proof := fmt.Sprintf("\n  proof: {daemonSets: [%s/device-%s], timeout: 20s, onTimeout: Rollback}", suite.Namespace, name)
	cluster.Apply(t, suite.Manifest(name, proof, driverScripts("1.0.0", "touch /run/e2e-device")))
	cluster.WaitComplete(t, name)
	const files = "sha256sum /etc/e2e-driver*"
	before := cluster.Exec(t, n, files)
	boot := cluster.Exec(t, n, "cat /proc/sys/kernel/random/boot_id")

	cluster.Apply(t, suite.Manifest(name, proof, driverScripts("2.0.0", "\"true\"")))
	cluster.WaitErroring(t, name, "revision 2 failed, and the node went back to revision 1: DaemonSet "+suite.Namespace+"/device-"+name+" has no ready pod on the node for 20s")
	if after := cluster.Exec(t, n, files); after != before {
		t.Errorf("the node has\n%s\nand had\n%s", after, before)
	}
	if cluster.Exec(t, n, "cat /proc/sys/kernel/random/boot_id") == boot {
		t.Error("the node did not boot")
	}
	if out := cluster.Kubectl(t, "get", "node", n, "-o", "jsonpath={.spec.unschedulable}"); out == "true" {
		t.Error("the node went back and is still cordoned")
	}
	cluster.EventuallyPrints(t, "Ready says RolledBack", func(out string) bool { return out == "RolledBack" },
		"get", "skyhook", name, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].reason}`)
	cluster.RemoveSkyhook(t, name)
}
