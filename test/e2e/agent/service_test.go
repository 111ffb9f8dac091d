// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestServiceIsRestartedOnce restarts a service through the node's own D-Bus: another process, exactly one start, and none
// under the same id again.
func TestServiceIsRestartedOnce(t *testing.T) {
	h := newHost(t)
	h.startCountedService("plain")
	pid := h.property("plain", "MainPID")
	h.startAgent("plain-1", `{"type":"service","services":["plain"]}`)
	m := h.waitSucceeded("plain-1")
	if now := h.property("plain", "MainPID"); now == pid || now == "0" || !strings.Contains(m.Reason, "pid "+pid+" to "+now) {
		t.Errorf("the main process was %s and is %s; the agent reports %q", pid, now, m.Reason)
	}
	h.requireStarts("plain", 2) // by the test and by the agent
	if log := cluster.Kubectl(t, "logs", "plain-1"); !strings.Contains(log, "by=\"D-Bus at /run/systemd/private\"") {
		t.Errorf("the agent did not reach systemd by D-Bus:\n%s", log)
	}
	cluster.Kubectl(t, "delete", "pod", "plain-1", "--grace-period=1")
	h.startAgent("plain-1", `{"type":"service","services":["plain"]}`)
	if m := h.waitSucceeded("plain-1"); m.Reason != "it was done before" {
		t.Errorf("the same id again: %+v", m)
	}
	h.requireStarts("plain", 2)
}

// TestUnknownService fails with a clear message and restarts nothing.
func TestUnknownService(t *testing.T) {
	h := newHost(t)
	h.startCountedService("known")
	h.startAgent("unknown-1", `{"type":"service","services":["known","no-such-service"]}`)
	cluster.EventuallyPrints(t, "the agent reports why it failed", func(message string) bool {
		return strings.Contains(message, "service no-such-service.service is unknown on this host")
	}, "get", "pod", "unknown-1", "-o", "jsonpath={.status.containerStatuses[0].state.terminated.message}{.status.containerStatuses[0].lastState.terminated.message}")
	h.requireStarts("known", 1)
}

// TestServiceAgentKilled kills the agent at several moments of a restart: when it appears, when its record does, in the middle
// of the job, at its end. Each time the service is started exactly once more.
func TestServiceAgentKilled(t *testing.T) {
	h := newHost(t)
	h.startCountedService("slow")
	const (
		started = "until grep -q start /var/log/slow.starts; do sleep 0.01; done;"
		unblock = "rm -f /run/slow.hold;"
	)
	for id, k := range map[string]killPoint{
		"slow-start":  {lock: lockRecords, release: unblock},
		"slow-record": {waitFor: waitForRecord("slow-record"), release: unblock},
		"slow-middle": {waitFor: started, release: unblock},
		"slow-end":    {waitFor: started + unblock + "until systemctl is-active --quiet slow; do sleep 0.01; done;", mayMiss: true},
	} {
		h.exec(": > /var/log/slow.starts; touch /run/slow.hold")
		h.installKiller(id, k)
		h.exec("systemctl start killer-" + id)
		h.startAgent(id, `{"type":"service","services":["slow"]}`)
		h.waitSucceeded(id)
		h.requireKill(id, k)
		h.requireStarts("slow", 1)
	}
}

// TestRestartContainerRuntime restarts the container runtime that runs the agent.
func TestRestartContainerRuntime(t *testing.T) {
	h := newHost(t)
	cluster.RequireService(t, h.node, "containerd")
	before := h.property("containerd", "InvocationID")
	h.startAgent("runtime-1", `{"type":"service","services":["containerd"]}`)
	h.waitSucceeded("runtime-1")
	after := h.property("containerd", "InvocationID")
	if before == after {
		t.Errorf("containerd was not restarted: %s", before)
	}
	time.Sleep(3 * time.Second)
	if now := h.property("containerd", "InvocationID"); now != after {
		t.Errorf("containerd was restarted again: %s, then %s", after, now)
	}
}

// TestRestartAllServices restarts every service, kubelet and container runtime included, but not those that the host depends on.
func TestRestartAllServices(t *testing.T) {
	h := newHost(t)
	cluster.RequireService(t, h.node, "cron")
	h.startCountedService("ordinary")
	spared := []string{"systemd-journald", "dbus"}
	invocations := map[string]string{}
	for _, name := range append([]string{"cron", "kubelet", "containerd"}, spared...) {
		invocations[name] = h.property(name, "InvocationID")
	}
	h.startAgent("all-1", `{"type":"restartAllServices"}`)
	m := h.waitSucceeded("all-1")
	for name, before := range invocations {
		if now, want := h.property(name, "InvocationID"), !slices.Contains(spared, name); (now != before) != want {
			t.Errorf("%s: restarted is %v, want %v", name, now != before, want)
		}
	}
	h.requireStarts("ordinary", 2)
	if !strings.Contains(m.Reason, "ordinary.service") {
		t.Errorf("the agent reports %q", m.Reason)
	}
}
