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
	"slices"
	"strings"
	"testing"

	"github.com/skyhook-k8s/skyhook/test/cluster/build"
	"github.com/skyhook-k8s/skyhook/test/e2e/suite"
)

// provideTuned gives the node a repository with Debian's TuneD and its dependencies, which its apt installs from: a node of
// test/cluster reaches no mirror.
func (h host) provideTuned() {
	h.Helper()
	machines := cluster.LocalCluster(h.T, "installing TuneD from a repository of this machine's packages")
	ctx, cancel := context.WithTimeout(context.Background(), suite.Timeout)
	defer cancel()
	cache, err := build.Open(os.Stderr)
	if err != nil {
		h.Fatal(err)
	}
	base, err := cache.Root(ctx, build.Bookworm)
	if err != nil {
		h.Fatal(err)
	}
	dir := h.TempDir()
	downloadTuned(ctx, h.T, dir, base)
	writePackageIndex(ctx, h.T, dir)
	argv, err := machines.CommandLine(ctx, h.node, "/bin/bash", "-c", "mkdir -p /opt/debs && tar -C /opt/debs -x")
	if err != nil {
		h.Fatal(err)
	}
	copyFiles := exec.CommandContext(ctx, "bash", append([]string{"-o", "pipefail", "-c", `dir=$1; shift; tar -C "$dir" -c . | "$@"`, "bash", dir}, argv...)...)
	if out, err := copyFiles.CombinedOutput(); err != nil {
		h.Fatalf("copying %s to the node: %v: %s", dir, err, out)
	}
	h.exec("echo 'deb [trusted=yes] file:/opt/debs ./' >/etc/apt/sources.list")
}

// downloadTuned downloads the packages that TuneD needs beyond those of the node's root file system.
func downloadTuned(ctx context.Context, t *testing.T, dir, base string) {
	t.Helper()
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
	if _, err := download(); err == nil {
		return
	}
	if out, err := apt("update"); err != nil { // the lists may be old or missing
		t.Skipf("no Debian mirror can be reached, so TuneD cannot be installed on a node: %v\n%s", err, out)
	}
	if out, err := download(); err != nil {
		t.Fatalf("downloading Debian's tuned: %v\n%s", err, out)
	}
}

// writePackageIndex makes a directory of packages a repository.
func writePackageIndex(ctx context.Context, t *testing.T, dir string) {
	t.Helper()
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
}

func tunedPackage(version, profile, keepalive string) string {
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
          net.core.somaxconn=2048`, version, suite.PackageRepository, profile, keepalive)
}

func (h host) requireProfile(want string) {
	h.Helper()
	if got := h.exec("tuned-adm active"); got != "Current active profile: "+want {
		h.Errorf("tuned-adm active prints %q, want %s", got, want)
	}
}

// purgeLeftovers is what Debian's own packages leave behind when they are purged: the user of polkitd and the directory that was
// created for it, and an empty directory of the libraries.
var purgeLeftovers = []string{"polkitd", "usr/share/polkit-1/rules.d d", "etc/xml d"}

// TestTuned installs Debian's TuneD and configures it. TuneD's own profiles would write the settings of the whole machine, which
// this node shares, so its recommended profile does nothing here, and the package's profiles set only parameters of the node's
// own network.
func TestTuned(t *testing.T) {
	if testing.Short() {
		t.Skip("short: two minutes of apt; the scenarios of the package play it with a fake TuneD")
	}
	nodes := cluster.ShareInterruptibleNodes(t, 3) // two have Debian 13, and this machine's packages are for Debian 12
	at := slices.IndexFunc(nodes, func(n string) bool { return strings.HasPrefix(cluster.Exec(t, n, "cat /etc/debian_version"), "12.") })
	if at < 0 {
		t.Skip("none of these nodes has Debian 12")
	}
	h := labelHost(t, "tuned-life", nodes[at])
	h.provideTuned()
	h.exec(`mkdir -p /etc/tuned/idle
printf '[main]\nsummary=Does nothing\n' >/etc/tuned/idle/tuned.conf
printf '[idle]\n' >/etc/tuned/recommend.conf
apt-get update -qq`)
	t.Cleanup(func() { h.exec("rm -rf /etc/tuned /opt/debs; : >/etc/apt/sources.list") })
	before := h.snapshot()
	keepalive, somaxconn := h.kernelParameter("net/ipv4/tcp_keepalive_time"), h.kernelParameter("net/core/somaxconn")

	t.Log("installed, with its own profile and script")
	h.install(tunedPackage("2.0.0", "accelerator", "300"))
	h.requireProfile("accelerator")
	h.requireParameter("net/ipv4/tcp_keepalive_time", "300")
	h.exec("test -f /run/mark && systemctl is-enabled tuned && systemctl is-active tuned")

	t.Log("a changed profile is loaded again, and another one activated")
	h.install(tunedPackage("2.0.0", "accelerator", "600"))
	h.requireParameter("net/ipv4/tcp_keepalive_time", "600")
	h.install(tunedPackage("2.0.0", "other", "600"))
	h.requireProfile("other")
	h.requireParameter("net/ipv4/tcp_keepalive_time", keepalive)
	h.requireParameter("net/core/somaxconn", "2048")
	h.exec("test ! -e /run/mark")
	h.install(tunedPackage("2.0.0", "accelerator other", "600"))
	h.requireProfile("accelerator other")
	h.requireParameter("net/ipv4/tcp_keepalive_time", "600")
	h.requireParameter("net/core/somaxconn", "2048")

	t.Log("a profile that does not exist is reported, and changes nothing")
	h.installFails(tunedPackage("2.0.0", "acc", "600"), "tuned_profile names acc, which TuneD does not have")
	h.requireProfile("accelerator other")

	t.Log("upgraded, rebooted, and downgraded")
	h.install(tunedPackage("2.1.0", "accelerator", "600"))
	h.reboot()
	h.waitParameter("net/ipv4/tcp_keepalive_time", "600")
	h.requireProfile("accelerator")
	h.install(tunedPackage("2.0.0", "accelerator", "900"))
	h.requireParameter("net/ipv4/tcp_keepalive_time", "900")

	t.Log("uninstalled: TuneD, its dependencies and its settings are gone")
	h.uninstall()
	h.requireParameter("net/ipv4/tcp_keepalive_time", keepalive)
	h.requireParameter("net/core/somaxconn", somaxconn)
	h.exec("! command -v tuned && ! command -v python3 && test -f /etc/tuned/idle/tuned.conf")
	h.requireUnchanged(before, purgeLeftovers...)
	h.install(tunedPackage("2.0.0", "other", "600"))
	h.requireProfile("other")
	h.uninstall()
	h.requireUnchanged(before, purgeLeftovers...)
}
