// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestServiceIsRestartedOnce restarts a service through the node's own D-Bus: another process, exactly one start, and none
// under the same id again.
func TestServiceIsRestartedOnce(t *testing.T) {
	counted(t, "plain")
	pid := property(t, "plain", "MainPID")
	start(t, "plain-1", `{"type":"service","services":["plain"]}`)
	m := end(t, "plain-1")
	if now := property(t, "plain", "MainPID"); now == pid || now == "0" || !strings.Contains(m.Reason, "pid "+pid+" to "+now) {
		t.Errorf("the main process was %s and is %s; the agent says %q", pid, now, m.Reason)
	}
	if n := starts(t, "plain"); n != 2 {
		t.Errorf("the service was started %d times, want 2: by the test and by the agent", n)
	}
	if log, err := kube("", "logs", "plain-1"); err != nil || !strings.Contains(log, "by=\"D-Bus at /run/systemd/private\"") {
		t.Errorf("the agent did not reach systemd by D-Bus: %v\n%s", err, log)
	}
	if _, err := kube("", "delete", "pod", "plain-1", "--grace-period=1"); err != nil {
		t.Fatal(err)
	}
	start(t, "plain-1", `{"type":"service","services":["plain"]}`)
	if m := end(t, "plain-1"); m.Reason != "it was done before" {
		t.Errorf("the same id again: %+v", m)
	}
	if n := starts(t, "plain"); n != 2 {
		t.Errorf("the service was started %d times, want 2", n)
	}
}

// TestUnknownService is a clear failure, and touches nothing.
func TestUnknownService(t *testing.T) {
	counted(t, "known")
	start(t, "unknown-1", `{"type":"service","services":["known","no-such-service"]}`)
	eventually(t, "the agent says why it failed", func() error {
		text, err := kube("", "get", "pod", "unknown-1", "-o", "jsonpath={.status.containerStatuses[0].state.terminated.message}{.status.containerStatuses[0].lastState.terminated.message}")
		if err == nil && !strings.Contains(text, "service no-such-service.service is unknown on this host") {
			err = fmt.Errorf("message %q", text)
		}
		return err
	})
	if n := starts(t, "known"); n != 1 {
		t.Errorf("a service was started %d times, want 1", n)
	}
}

// TestServiceAgentKilled kills the agent at several moments of a restart: when it appears, when its record does, in the middle
// of the job, at its end. Each time the service is started exactly once more.
func TestServiceAgentKilled(t *testing.T) {
	counted(t, "slow")
	const (
		started = "until grep -q start /var/log/slow.starts; do sleep 0.01; done;"
		goOn    = "rm -f /run/slow.hold;"
	)
	for id, m := range map[string]moment{
		"slow-start":  {hold: atItsStart, release: goOn},
		"slow-record": {until: recorded("slow-record"), release: goOn},
		"slow-middle": {until: started, release: goOn},
		"slow-end":    {until: started + goOn + "until systemctl is-active --quiet slow; do sleep 0.01; done;", missable: true},
	} {
		on(t, ": > /var/log/slow.starts; : > /var/log/kills; touch /run/slow.hold")
		killer(t, id, m)
		on(t, "systemctl start killer-"+id)
		start(t, id, `{"type":"service","services":["slow"]}`)
		end(t, id)
		if n := killed(t); n != 1 && !m.missable {
			t.Errorf("%s: the agent was killed %d times, want once", id, n)
		}
		if n := starts(t, "slow"); n != 1 {
			t.Errorf("%s: the service was started %d times, want 1", id, n)
		}
	}
}

// TestRuntimeUnderTheAgent restarts the container runtime that runs the agent.
func TestRuntimeUnderTheAgent(t *testing.T) {
	before := property(t, "containerd", "InvocationID")
	start(t, "runtime-1", `{"type":"service","services":["containerd"]}`)
	end(t, "runtime-1")
	after := property(t, "containerd", "InvocationID")
	if before == after {
		t.Errorf("containerd still runs as it did: %s", before)
	}
	time.Sleep(3 * time.Second)
	if now := property(t, "containerd", "InvocationID"); now != after {
		t.Errorf("containerd was restarted again: %s, then %s", after, now)
	}
}

// TestAllServices restarts what runs, kubelet and container runtime included, and not what carries the host.
func TestAllServices(t *testing.T) {
	counted(t, "ordinary")
	spared := []string{"systemd-journald", "dbus"}
	lives := map[string]string{}
	for _, name := range append([]string{"cron", "kubelet", "containerd"}, spared...) {
		lives[name] = property(t, name, "InvocationID")
	}
	start(t, "all-1", `{"type":"restartAllServices"}`)
	m := end(t, "all-1")
	for name, life := range lives {
		if now, want := property(t, name, "InvocationID"), !slices.Contains(spared, name); (now != life) != want {
			t.Errorf("%s: restarted is %v, want %v", name, now != life, want)
		}
	}
	if n := starts(t, "ordinary"); n != 2 || !strings.Contains(m.Reason, "ordinary.service") {
		t.Errorf("a service was started %d times, want 2; the agent says %q", n, m.Reason)
	}
}
