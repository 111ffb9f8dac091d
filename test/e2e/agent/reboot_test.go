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
	eventually(t, "the node answers", 2*time.Minute, func() (err error) {
		out, err = tryOn("cat /var/log/boots")
		return err
	})
	return strings.Fields(out)
}

// TestRebootAgentKilled reboots the node, and kills the agent at the worst moments: as soon as it appears, when
// its intent is recorded, when the node already goes down, and after the boot when it looks whether it happened. Each time
// the node boots exactly once more, and the agent proves it with both boot ids.
func TestRebootAgentKilled(t *testing.T) {
	diary(t)
	for i, moment := range []string{
		"",
		"until ls " + state + "/interrupts/records/reboot-1-*.json >/dev/null 2>&1; do :; done;",
		"until systemctl list-jobs | grep -q reboot.target; do :; done;",
		"after",
	} {
		// The node goes down within moments of the intent: whoever waits for that may be too late, and tries again.
		for try := 0; !killedAt(t, fmt.Sprintf("reboot-%d-%d", i, try), strings.ReplaceAll(moment, "reboot-1-", fmt.Sprintf("reboot-1-%d-", try))); try++ {
			if i == 2 { // there the node may be faster than the note
				break
			}
			if try == 4 {
				t.Errorf("moment %d: the agent was never killed", i)
				break
			}
		}
	}
	// A while later the node still runs in the same boot.
	last := boots(t)
	time.Sleep(10 * time.Second)
	if now := boots(t); len(now) != len(last) {
		t.Errorf("the node rebooted again: %v, then %v", last, now)
	}
}

// killedAt reboots the node with an agent that is killed at that moment, and says whether that happened in time.
func killedAt(t *testing.T, id, moment string) bool {
	t.Helper()
	before := boots(t)
	on(t, ": > /var/log/kills")
	if moment == "after" { // enabled, so that it is there when the node comes back
		killer(t, id, "")
		on(t, "systemctl enable --quiet killer-"+id)
	} else {
		killer(t, id, moment)
		on(t, "systemctl start killer-"+id)
	}
	start(t, id, `{"type":"reboot"}`)
	m := end(t, id, 4*time.Minute)
	after := boots(t)
	if len(after) != len(before)+1 {
		t.Fatalf("%s: the node booted %d times, want once: %v, then %v", id, len(after)-len(before), before, after)
	}
	if m.BootIDs.From != before[len(before)-1] || m.BootIDs.To != after[len(after)-1] {
		t.Errorf("%s: the agent proves %+v; the node went from %s to %s", id, m.BootIDs, before[len(before)-1], after[len(after)-1])
	}
	return on(t, "cat /var/log/kills") != ""
}

// TestRebootAfterFile waits for the file that says that the work is done, and then reboots, without an API token.
func TestRebootAfterFile(t *testing.T) {
	diary(t)
	before := boots(t)
	on(t, "mkdir -p /usr/local/.kairos; rm -f /usr/local/.kairos/*")
	start(t, "sentinel", `{"type":"reboot"}`, "--after-file", "/usr/local/.kairos/job-a-*")
	eventually(t, "the agent waits", time.Minute, func() error {
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
	end(t, "sentinel", 3*time.Minute)
	if now := boots(t); len(now) != len(before)+1 {
		t.Errorf("the node booted %d times, want once", len(now)-len(before))
	}
	if left := on(t, "ls /usr/local/.kairos"); left != "" {
		t.Errorf("left behind: %s", left)
	}
}
