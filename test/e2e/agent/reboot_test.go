// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// diary writes the id of every boot of the node to a file.
func diary(t *testing.T) {
	t.Helper()
	on(t, "rm -f /var/log/boots")
	unit(t, "diary", `[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/bash -c 'cat /proc/sys/kernel/random/boot_id >> /var/log/boots; sync'
[Install]
WantedBy=multi-user.target
`)
	on(t, "systemctl enable --quiet diary; systemctl restart diary")
}

// boots lists the boots of the node since the diary was begun.
func boots(t *testing.T) []string {
	t.Helper()
	var out string
	eventually(t, "the node answers", func() (err error) {
		out, err = tryOn("cat /var/log/boots")
		return err
	})
	return strings.Fields(out)
}

// TestRebootAgentKilled reboots the node, and kills the agent at the worst moments: as soon as it appears, when its intent is
// recorded, when the node already goes down, and after the boot when it looks whether it happened. Each time the node boots
// exactly once more, and the agent proves it with both boot ids.
func TestRebootAgentKilled(t *testing.T) {
	diary(t)
	for id, m := range map[string]moment{
		"reboot-start":  {hold: atItsStart},
		"reboot-intent": {inhibit: true, until: recorded("reboot-intent")},
		"reboot-going":  {until: "until systemctl list-jobs | grep -q reboot.target; do sleep 0.01; done;", missable: true},
	} {
		on(t, ": > /var/log/kills")
		killer(t, id, m)
		on(t, "systemctl start killer-"+id)
		rebootsOnce(t, id)
		if n := killed(t); n != 1 && !m.missable {
			t.Errorf("%s: the agent was killed %d times, want once", id, n)
		}
	}
	// Enabled and not started: it is there when the node comes back.
	on(t, ": > /var/log/kills")
	killer(t, "reboot-after", moment{hold: atItsStart})
	on(t, "systemctl enable --quiet killer-reboot-after")
	rebootsOnce(t, "reboot-after")
	if n := killed(t); n != 1 {
		t.Errorf("after the boot: the agent was killed %d times, want once", n)
	}
	// A while later the node still runs in the same boot.
	last := boots(t)
	time.Sleep(10 * time.Second)
	if now := boots(t); len(now) != len(last) {
		t.Errorf("the node rebooted again: %v, then %v", last, now)
	}
}

// rebootsOnce starts an agent that reboots the node, and wants exactly one more boot and its proof.
func rebootsOnce(t *testing.T, id string) {
	t.Helper()
	before := boots(t)
	start(t, id, `{"type":"reboot"}`)
	m := end(t, id)
	after := boots(t)
	if len(after) != len(before)+1 {
		t.Fatalf("%s: the node booted %d times, want once: %v, then %v", id, len(after)-len(before), before, after)
	}
	if m.BootIDs.From != before[len(before)-1] || m.BootIDs.To != after[len(after)-1] {
		t.Errorf("%s: the agent proves %+v; the node went from %s to %s", id, m.BootIDs, before[len(before)-1], after[len(after)-1])
	}
}

// TestRebootAfterFile waits for the file that says that the work is done, and then reboots, without an API token.
func TestRebootAfterFile(t *testing.T) {
	diary(t)
	before := boots(t)
	on(t, "mkdir -p /usr/local/.kairos; rm -f /usr/local/.kairos/*")
	start(t, "sentinel", `{"type":"reboot"}`, "--after-file", "/usr/local/.kairos/job-a-*")
	eventually(t, "the agent waits", func() error {
		log, err := kube("", "logs", "sentinel")
		if err == nil && !strings.Contains(log, "waiting for a file") {
			err = fmt.Errorf("it says %q", log)
		}
		return err
	})
	time.Sleep(2 * time.Second)
	if now := boots(t); len(now) != len(before) {
		t.Fatal("the node rebooted before the file was there")
	}
	on(t, "echo done > /usr/local/.kairos/job-a-1700000000")
	end(t, "sentinel")
	if now := boots(t); len(now) != len(before)+1 {
		t.Errorf("the node booted %d times, want once", len(now)-len(before))
	}
	if left := on(t, "ls /usr/local/.kairos"); left != "" {
		t.Errorf("left behind: %s", left)
	}
}
