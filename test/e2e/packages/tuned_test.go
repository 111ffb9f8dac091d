// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package packages_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skyhook-k8s/skyhook/test/cluster/build"
)

// repository gives the node Debian's TuneD and what it needs beyond what the node has: a folder of packages that its apt
// installs from. The node itself reaches no mirror.
func repository(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cache, err := build.Open(os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	base, err := cache.Root(ctx)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "partial"), 0o755); err != nil {
		t.Fatal(err)
	}
	apt := func(args ...string) ([]byte, error) {
		args = append([]string{"-o", "Debug::NoLocking=true", "-o", "APT::Sandbox::User=root", "-o", "APT::Update::Error-Mode=any", "-o", "Acquire::Retries=3"}, args...)
		return exec.CommandContext(ctx, "apt-get", args...).CombinedOutput()
	}
	download := func() ([]byte, error) {
		return apt("--download-only", "--yes", "--no-install-recommends", "-o", "Dir::State::status="+filepath.Join(base, "var/lib/dpkg/status"),
			"-o", "Dir::Cache::archives="+dir, "install", "tuned")
	}
	if _, err := download(); err != nil { // the lists may be old, or missing
		if out, err := apt("update"); err != nil {
			t.Skipf("no Debian mirror can be reached, so TuneD cannot be installed on a node: %v\n%s", err, out)
		}
		if out, err := download(); err != nil {
			t.Fatalf("downloading Debian's tuned: %v\n%s", err, out)
		}
	}
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(debs) == 0 {
		t.Fatalf("nothing was downloaded: %v", err)
	}
	var index strings.Builder
	for _, deb := range debs {
		control, err := exec.CommandContext(ctx, "dpkg-deb", "-f", deb).Output()
		if err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(deb)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&index, "%sFilename: ./%s\nSize: %d\nSHA256: %x\n\n", control, filepath.Base(deb), len(content), sha256.Sum256(content))
	}
	if err := os.WriteFile(filepath.Join(dir, "Packages"), []byte(index.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	into(t, dir, "/opt/debs")
	on(t, "echo 'deb [trusted=yes] file:/opt/debs ./' >/etc/apt/sources.list")
}

func tuned(version, profile, keepalive string) string {
	return fmt.Sprintf(`
    tuned:
      version: %s
      image: %stuned
      resources: {cpuRequest: 100m, cpuLimit: "2", memoryRequest: 128Mi, memoryLimit: 1Gi}
      configMap:
        tuned_profile: %s
        accelerator: |
          [main]
          summary=For machines with accelerators
          [sysctl]
          net.ipv4.tcp_keepalive_time=%s
          [script]
          script=/etc/tuned/scripts/mark
        mark_script: |
          #!/bin/bash
          case $1 in
          start) touch /run/mark ;;
          stop) rm -f /run/mark ;;
          esac
        other: |
          [sysctl]
          net.core.somaxconn=2048`, version, registry, profile, keepalive)
}

func active(t *testing.T, want string) {
	t.Helper()
	if got := on(t, "tuned-adm active"); got != "Current active profile: "+want {
		t.Errorf("tuned-adm active says %q, want %s", got, want)
	}
}

// debris is what Debian's own packages leave behind when they are purged: the user of polkitd, whose folder has been made for it,
// and an empty folder of the libraries.
var debris = []string{"polkitd", "usr/share/polkit-1/rules.d d", "etc/xml d"}

// TestTuned installs Debian's TuneD and drives it. Its own profiles would write the settings of the whole machine, which
// this node shares, so that it finds a profile recommended that does nothing, and ours have keys of the node's own only.
func TestTuned(t *testing.T) {
	const name = "tuned-life"
	repository(t)
	on(t, `mkdir -p /etc/tuned/idle
printf '[main]\nsummary=Does nothing\n' >/etc/tuned/idle/tuned.conf
printf '[idle]\n' >/etc/tuned/recommend.conf
apt-get update -qq`)
	t.Cleanup(func() { on(t, "rm -rf /etc/tuned /opt/debs; : >/etc/apt/sources.list") })
	was := see(t)
	keepalive, somaxconn := on(t, "cat /proc/sys/net/ipv4/tcp_keepalive_time"), on(t, "cat /proc/sys/net/core/somaxconn")

	t.Log("installed, with its own profile and script")
	apply(t, resource(name, tuned("2.0.0", "accelerator", "300")))
	complete(t, name)
	active(t, "accelerator")
	sysctl(t, "net/ipv4/tcp_keepalive_time", "300")
	on(t, "test -f /run/mark && systemctl is-enabled tuned && systemctl is-active tuned")

	t.Log("a changed profile is loaded again, and another one switched to")
	apply(t, resource(name, tuned("2.0.0", "accelerator", "600")))
	complete(t, name)
	sysctl(t, "net/ipv4/tcp_keepalive_time", "600")
	apply(t, resource(name, tuned("2.0.0", "other", "600")))
	complete(t, name)
	active(t, "other")
	sysctl(t, "net/ipv4/tcp_keepalive_time", keepalive)
	sysctl(t, "net/core/somaxconn", "2048")
	on(t, "test ! -e /run/mark")
	apply(t, resource(name, tuned("2.0.0", "accelerator other", "600")))
	complete(t, name)
	active(t, "accelerator other")
	sysctl(t, "net/ipv4/tcp_keepalive_time", "600")
	sysctl(t, "net/core/somaxconn", "2048")

	t.Log("a profile that does not exist is told, and changes nothing")
	apply(t, resource(name, tuned("2.0.0", "acc", "600")))
	erroring(t, name, "tuned_profile names acc, which TuneD does not have")
	active(t, "accelerator other")

	t.Log("up, a reboot, and down again")
	apply(t, resource(name, tuned("2.1.0", "accelerator", "600")))
	complete(t, name)
	reboot(t)
	eventually(t, "TuneD has loaded its profile after the boot", func() error {
		if got := on(t, "cat /proc/sys/net/ipv4/tcp_keepalive_time"); got != "600" {
			return fmt.Errorf("tcp_keepalive_time is %s", got)
		}
		return nil
	})
	active(t, "accelerator")
	apply(t, resource(name, tuned("2.0.0", "accelerator", "900")))
	complete(t, name)
	sysctl(t, "net/ipv4/tcp_keepalive_time", "900")

	t.Log("uninstalled: TuneD and what came with it are gone, its settings too")
	remove(t, name)
	sysctl(t, "net/ipv4/tcp_keepalive_time", keepalive)
	sysctl(t, "net/core/somaxconn", somaxconn)
	on(t, "! command -v tuned && ! command -v python3 && test -f /etc/tuned/idle/tuned.conf")
	same(t, was, debris...)
	apply(t, resource(name, tuned("2.0.0", "other", "600")))
	complete(t, name)
	active(t, "other")
	remove(t, name)
	same(t, was, debris...)
}

// reboot reboots the node and waits until it is ready again.
func reboot(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	boot, err := cluster.Boot(ctx, node)
	if err != nil {
		t.Fatal(err)
	}
	if err := cluster.Reboot(ctx, node); err != nil {
		t.Fatal(err)
	}
	if err := cluster.WaitBoot(ctx, node, boot); err != nil {
		t.Fatal(err)
	}
}
