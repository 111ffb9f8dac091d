// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package packages_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/skyhook-k8s/skyhook/test/e2e/suite"
)

// tuningPackage sets kernel parameters and limits. A changed drop-in restarts its service, everything else takes effect at once.
func tuningPackage(version, somaxconn, nofile string) string {
	return fmt.Sprintf(`
    tuning:
      version: %s
      image: %stuning
      interrupt: {type: service, services: [cron]}
      configInterrupts:
        service_cron.conf: {type: service, services: [cron]}
      configMap:
        sysctl.conf: |
          # the node's own
          net.core.somaxconn = %s
          net.ipv4.tcp_rmem = 4096 87380 268435456
          net.ipv4.tcp_fastopen = 0x3
          -net.ipv4.no_such_thing = 1
        ulimit.conf: |
          nofile=4321
        service_cron.conf: |
          [Service]
          LimitNOFILE=%s`, version, suite.PackageRepository, somaxconn, nofile)
}

// cronLimit returns the main process of cron and its hard limit of open files.
func (h host) cronLimit() (pid, hard string) {
	h.Helper()
	pid = h.exec("systemctl show -p MainPID --value cron")
	fields := strings.Fields(h.exec("grep '^Max open files' /proc/" + pid + "/limits"))
	return pid, fields[4]
}

// waitParameter waits for a value while failing attempts set and restore it.
func (h host) waitParameter(path, want string) {
	h.Helper()
	suite.Eventually(h.T, path+" is restored", func() error {
		if got := h.kernelParameter(path); got != want {
			return fmt.Errorf("it is %s, want %s", got, want)
		}
		return nil
	})
}

// TestTuning takes the package through its whole life.
func TestTuning(t *testing.T) {
	h := newHost(t, "tuning-life")
	cluster.RequireService(t, h.node, "cron")
	before := h.snapshot()
	somaxconn, rmem := h.kernelParameter("net/core/somaxconn"), h.kernelParameter("net/ipv4/tcp_rmem")
	pid, hard := h.cronLimit()
	if somaxconn == "8192" || hard == "4096" {
		t.Fatalf("the node starts with somaxconn %s and LimitNOFILE %s, so the test would detect no change", somaxconn, hard)
	}

	t.Log("installed: parameters at once, limits of the service after its restart")
	h.install(tuningPackage("2.0.0", "8192", "4096"))
	h.requireParameter("net/core/somaxconn", "8192")
	h.requireParameter("net/ipv4/tcp_rmem", "4096 87380 268435456")
	h.requireParameter("net/ipv4/tcp_fastopen", "3")
	restarted, hard := h.cronLimit()
	if restarted == pid || hard != "4096" {
		t.Errorf("cron was process %s and is %s, with a limit of %s open files, want 4096", pid, restarted, hard)
	}
	// The limit is lower than before: a machine may not allow even root a higher one.
	if got := h.exec("runuser -u root -- bash -c 'ulimit -Hn'"); got != "4321" {
		t.Errorf("a session of root has a limit of %s open files, want 4321", got)
	}

	t.Log("a changed parameter restarts nothing")
	h.install(tuningPackage("2.0.0", "16384", "4096"))
	h.requireParameter("net/core/somaxconn", "16384")
	if now, _ := h.cronLimit(); now != restarted {
		t.Errorf("cron was restarted, although its drop-in did not change: %s, now %s", restarted, now)
	}

	t.Log("a changed drop-in restarts its service")
	h.install(tuningPackage("2.0.0", "16384", "8192"))
	if now, hard := h.cronLimit(); now == restarted || hard != "8192" {
		t.Errorf("cron was process %s and is %s, with a limit of %s open files, want 8192", restarted, now, hard)
	}

	t.Log("a value that the kernel refuses changes nothing, and is reported")
	h.installFails(strings.Replace(tuningPackage("2.0.0", "4096", "8192"), "4096 87380 268435456", "1 2 three", 1),
		"net.ipv4.tcp_rmem = 1 2 three was refused: Invalid argument; nothing was changed")
	h.waitParameter("net/core/somaxconn", "16384")
	h.waitParameter("net/ipv4/tcp_rmem", "4096 87380 268435456")

	t.Log("upgraded, and downgraded with an uninstall in between")
	h.install(tuningPackage("2.1.0", "8192", "8192"))
	h.requireParameter("net/core/somaxconn", "8192")
	h.install(tuningPackage("2.0.0", "4096", "4096"))
	h.requireParameter("net/core/somaxconn", "4096")

	t.Log("after a reboot the kernel and the service start with what the package set")
	h.reboot()
	h.requireParameter("net/core/somaxconn", "4096")
	h.requireParameter("net/ipv4/tcp_rmem", "4096 87380 268435456")
	if _, hard := h.cronLimit(); hard != "4096" {
		t.Errorf("after a reboot cron has a limit of %s open files, want 4096", hard)
	}

	t.Log("uninstalled: everything is restored, and can be installed again")
	h.uninstall()
	h.requireParameter("net/core/somaxconn", somaxconn)
	h.requireParameter("net/ipv4/tcp_rmem", rmem)
	h.requireUnchanged(before)
	h.install(tuningPackage("2.0.0", "8192", "4096"))
	h.requireParameter("net/core/somaxconn", "8192")
	h.uninstall()
	h.requireUnchanged(before)
}

// TestShellscript takes scripts of a user through the same life.
func TestShellscript(t *testing.T) {
	h := newHost(t, "scripts-life")
	before := h.snapshot()
	greeting := func(version, text string) string {
		return fmt.Sprintf(`
    greeting:
      version: %s
      image: %sshellscript
      privileges: [/etc]
      configMap:
        greeting.txt: %s
        apply.sh: |
          #!/bin/sh
          touch /etc/greeted
        apply_check.sh: test -f /etc/greeted
        config.sh: cp "$SKYHOOK_DIR/configmaps/greeting.txt" /etc/greeting
        config_check.sh: cmp "$SKYHOOK_DIR/configmaps/greeting.txt" /etc/greeting
        upgrade.sh: |
          #!/usr/bin/env -S bash -e
          echo "$PREVIOUS_VERSION" >/etc/greeted
        upgrade_check.sh: grep . /etc/greeted
        uninstall.sh: rm -f /etc/greeting /etc/greeted
        uninstall_check.sh: "! ls /etc/greet* 2>/dev/null"`, version, suite.PackageRepository, text)
	}
	for _, step := range []struct{ version, text string }{
		{"2.0.0", "hello"}, {"2.0.0", "hello again"}, {"2.1.0", "hello again"}, {"2.0.0", "hello"},
	} {
		h.install(greeting(step.version, step.text))
		if got := h.exec("cat /etc/greeting"); got != step.text {
			t.Errorf("version %s wrote %q, want %q", step.version, got, step.text)
		}
	}
	h.uninstall()
	h.requireUnchanged(before)
	h.install(greeting("2.1.0", "hello"))
	h.uninstall()
	h.requireUnchanged(before)

	t.Log("a script with a syntax error is not run at all")
	h.installFails(strings.Replace(greeting("2.0.0", "hello"), "touch /etc/greeted", "touch /etc/greeted\n          if true; then", 1),
		"apply.sh is not valid for /bin/sh, so it was not run")
	h.exec("test ! -e /etc/greeted")
	h.uninstall()
	h.requireUnchanged(before)
}
