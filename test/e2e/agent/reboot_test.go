// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"strings"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/test/e2e/suite"
)

// recordBoots installs a service that appends the id of every boot to a file.
func (h host) recordBoots() {
	h.Helper()
	h.exec("rm -f /var/log/boots")
	h.installUnit("record-boots", `[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/bash -c 'cat /proc/sys/kernel/random/boot_id >> /var/log/boots; sync'
[Install]
WantedBy=multi-user.target
`)
	h.exec("systemctl enable --quiet record-boots; systemctl restart record-boots")
}

// boots lists the boots of the node since recordBoots.
func (h host) boots() []string {
	h.Helper()
	var out string
	suite.Eventually(h.T, "the node answers", func() (err error) {
		out, err = cluster.TryExec(h.node, "cat /var/log/boots")
		return err
	})
	return strings.Fields(out)
}

// TestRebootAgentKilled reboots the node and kills the agent at critical moments: as soon as it appears, when its intent is
// recorded, when the node is shutting down, and after the boot when it checks the boot id. Each time the node boots exactly once
// more, and the agent proves it with both boot ids.
func TestRebootAgentKilled(t *testing.T) {
	h := newHost(t)
	h.recordBoots()
	for id, k := range map[string]killPoint{
		"reboot-start":  {lock: lockRecords},
		"reboot-intent": {inhibit: true, waitFor: waitForRecord("reboot-intent")},
		"reboot-going":  {waitFor: "until systemctl list-jobs | grep -q reboot.target; do sleep 0.01; done;", mayMiss: true},
	} {
		h.installKiller(id, k)
		h.exec("systemctl start killer-" + id)
		h.requireOneReboot(id)
		h.requireKill(id, k)
	}
	// This killer is enabled and not started, so that it runs after the boot.
	after := killPoint{lock: lockRecords}
	h.installKiller("reboot-after", after)
	h.exec("systemctl enable --quiet killer-reboot-after")
	h.requireOneReboot("reboot-after")
	h.requireKill("reboot-after", after)

	last := h.boots()
	time.Sleep(10 * time.Second)
	if now := h.boots(); len(now) != len(last) {
		t.Errorf("the node rebooted again: %v, then %v", last, now)
	}
}

// requireOneReboot starts an agent that reboots the node, and checks that the node boots once and that the agent proves it.
func (h host) requireOneReboot(id string) {
	h.Helper()
	before := h.boots()
	h.startAgent(id, `{"type":"reboot"}`)
	m := h.waitSucceeded(id)
	after := h.boots()
	if len(after) != len(before)+1 {
		h.Fatalf("%s: the node booted %d times, want once: %v, then %v", id, len(after)-len(before), before, after)
	}
	if m.BootIDs.From != before[len(before)-1] || m.BootIDs.To != after[len(after)-1] {
		h.Errorf("%s: the agent proves %+v; the node went from %s to %s", id, m.BootIDs, before[len(before)-1], after[len(after)-1])
	}
}

// TestRebootAfterFile waits for the file that marks the work as done, and then reboots, without an API token.
func TestRebootAfterFile(t *testing.T) {
	h := newHost(t)
	h.recordBoots()
	before := h.boots()
	h.exec("mkdir -p /usr/local/.kairos; rm -f /usr/local/.kairos/*")
	h.startAgent("sentinel", `{"type":"reboot"}`, "--after-file", "/usr/local/.kairos/job-a-*")
	cluster.EventuallyPrints(t, "the agent waits", func(log string) bool { return strings.Contains(log, "waiting for a file") }, "logs", "sentinel")
	time.Sleep(2 * time.Second)
	if now := h.boots(); len(now) != len(before) {
		t.Fatal("the node rebooted before the file was there")
	}
	h.exec("echo done > /usr/local/.kairos/job-a-1700000000")
	h.waitSucceeded("sentinel")
	if now := h.boots(); len(now) != len(before)+1 {
		t.Errorf("the node booted %d times, want once", len(now)-len(before))
	}
	if left := h.exec("ls /usr/local/.kairos"); left != "" {
		t.Errorf("left behind: %s", left)
	}
}
