// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package packages_test

import (
	"fmt"
	"strings"
	"testing"
)

// tuned kernel and limits: each change of the service's drop-in restarts the service, the others take effect at once.
func tuning(version, somaxconn, nofile string) string {
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
          LimitNOFILE=%s`, version, registry, somaxconn, nofile)
}

// limit is the hard limit of open files of the process that cron is.
func limit(t *testing.T) (pid, hard string) {
	t.Helper()
	pid = on(t, "systemctl show -p MainPID --value cron")
	fields := strings.Fields(on(t, "grep '^Max open files' /proc/"+pid+"/limits"))
	return pid, fields[4]
}

func running(t *testing.T, path string) string {
	t.Helper()
	return strings.Join(strings.Fields(on(t, "cat /proc/sys/"+path)), " ")
}

func sysctl(t *testing.T, path, want string) {
	t.Helper()
	if got := running(t, path); got != want {
		t.Errorf("%s is %s, want %s", path, got, want)
	}
}

// settles waits for a value while attempts that fail come and go: each sets values and takes them back.
func settles(t *testing.T, path, want string) {
	t.Helper()
	eventually(t, path+" is as before", func() error {
		if got := running(t, path); got != want {
			return fmt.Errorf("it is %s, want %s", got, want)
		}
		return nil
	})
}

// TestTuning takes the package through its whole life.
func TestTuning(t *testing.T) {
	const name = "tuning-life"
	was := see(t)
	before := on(t, "cat /proc/sys/net/core/somaxconn")
	rmem := running(t, "net/ipv4/tcp_rmem")
	pid, hard := limit(t)
	if before == "8192" || hard == "4096" {
		t.Fatalf("the node begins with somaxconn %s and LimitNOFILE %s, so nothing could be seen", before, hard)
	}

	t.Log("installed: parameters at once, limits of the service after its restart")
	apply(t, resource(name, tuning("2.0.0", "8192", "4096")))
	complete(t, name)
	sysctl(t, "net/core/somaxconn", "8192")
	sysctl(t, "net/ipv4/tcp_rmem", "4096 87380 268435456")
	sysctl(t, "net/ipv4/tcp_fastopen", "3")
	restarted, hard := limit(t)
	if restarted == pid || hard != "4096" {
		t.Errorf("cron was process %s and is %s, with a limit of %s open files, want 4096", pid, restarted, hard)
	}
	// Less than before: a machine may not let even root have more.
	if got := on(t, "runuser -u root -- bash -c 'ulimit -Hn'"); got != "4321" {
		t.Errorf("a session of root has a limit of %s open files, want 4321", got)
	}

	t.Log("a changed parameter restarts nothing")
	apply(t, resource(name, tuning("2.0.0", "16384", "4096")))
	complete(t, name)
	sysctl(t, "net/core/somaxconn", "16384")
	if now, _ := limit(t); now != restarted {
		t.Errorf("cron was restarted, although its drop-in did not change: %s, now %s", restarted, now)
	}

	t.Log("a changed drop-in restarts its service")
	apply(t, resource(name, tuning("2.0.0", "16384", "8192")))
	complete(t, name)
	if now, hard := limit(t); now == restarted || hard != "8192" {
		t.Errorf("cron was process %s and is %s, with a limit of %s open files, want 8192", restarted, now, hard)
	}

	t.Log("a value that the kernel refuses changes nothing, and is told")
	apply(t, resource(name, strings.Replace(tuning("2.0.0", "4096", "8192"), "4096 87380 268435456", "1 2 three", 1)))
	erroring(t, name, "net.ipv4.tcp_rmem = 1 2 three was refused: Invalid argument; nothing was changed")
	settles(t, "net/core/somaxconn", "16384")
	settles(t, "net/ipv4/tcp_rmem", "4096 87380 268435456")

	t.Log("up, and down again with an uninstall in between")
	apply(t, resource(name, tuning("2.1.0", "8192", "8192")))
	complete(t, name)
	sysctl(t, "net/core/somaxconn", "8192")
	apply(t, resource(name, tuning("2.0.0", "4096", "4096")))
	complete(t, name)
	sysctl(t, "net/core/somaxconn", "4096")

	t.Log("a reboot: the kernel and the service begin with what the package has set")
	reboot(t)
	sysctl(t, "net/core/somaxconn", "4096")
	sysctl(t, "net/ipv4/tcp_rmem", "4096 87380 268435456")
	if _, hard := limit(t); hard != "4096" {
		t.Errorf("after a reboot cron has a limit of %s open files, want 4096", hard)
	}

	t.Log("uninstalled: everything is as before, and can be again")
	remove(t, name)
	sysctl(t, "net/core/somaxconn", before)
	sysctl(t, "net/ipv4/tcp_rmem", rmem)
	same(t, was)
	apply(t, resource(name, tuning("2.0.0", "8192", "4096")))
	complete(t, name)
	sysctl(t, "net/core/somaxconn", "8192")
	remove(t, name)
	same(t, was)
}

// TestShellscript takes a user's scripts through the same life.
func TestShellscript(t *testing.T) {
	const name = "scripts-life"
	was := see(t)
	greeting := func(version, text string) string {
		return fmt.Sprintf(`
    greeting:
      version: %s
      image: %sshellscript
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
        uninstall_check.sh: "! ls /etc/greet* 2>/dev/null"`, version, registry, text)
	}
	for _, step := range []struct{ version, text string }{
		{"2.0.0", "hello"}, {"2.0.0", "hello again"}, {"2.1.0", "hello again"}, {"2.0.0", "hello"},
	} {
		apply(t, resource(name, greeting(step.version, step.text)))
		complete(t, name)
		if got := on(t, "cat /etc/greeting"); got != step.text {
			t.Errorf("version %s says %q, want %q", step.version, got, step.text)
		}
	}
	remove(t, name)
	same(t, was)
	apply(t, resource(name, greeting("2.1.0", "hello")))
	complete(t, name)
	remove(t, name)
	same(t, was)

	t.Log("a script with a mistake is not run at all")
	apply(t, resource(name, strings.Replace(greeting("2.0.0", "hello"), "touch /etc/greeted", "touch /etc/greeted\n          if true; then", 1)))
	erroring(t, name, "apply.sh is not valid for /bin/sh, so it was not run")
	on(t, "test ! -e /etc/greeted")
	remove(t, name)
	same(t, was)
}
