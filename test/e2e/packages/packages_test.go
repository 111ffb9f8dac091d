// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package packages tests the packages of this repository on a real systemd node, each through a real Skyhook: services get their
// limits, the kernel its parameters, TuneD its profile, and an uninstall restores the node.
package packages_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/skyhook-k8s/skyhook/test/e2e/suite"
)

var cluster *suite.Cluster

func TestMain(m *testing.M) { suite.Main(m, &cluster, suite.WithOperator) }

// host is the node of a test, with the Skyhook that installs packages there.
type host struct {
	*testing.T
	node, skyhook string
}

// fewPrivileges is the spec of a Skyhook none of whose pods is privileged: its policy allows no more than asking systemd.
const fewPrivileges = "\n  preflight: Ask\n  deploymentPolicy: few-privileges"

var applyPolicy sync.Once // several tests begin at the same time

const policyOfFewPrivileges = `
apiVersion: skyhook.nvidia.com/v1alpha1
kind: DeploymentPolicy
metadata: {name: few-privileges}
spec:
  maxPrivileges: Services
  default: {budget: {count: 3}, strategy: {fixed: {initialBatch: 3}}}
`

func newHost(t *testing.T, skyhook string) host {
	t.Helper()
	return labelHost(t, skyhook, cluster.ShareInterruptibleNodes(t, 1)[0])
}

func labelHost(t *testing.T, skyhook, node string) host {
	t.Helper()
	cluster.Label(t, "e2e="+skyhook, node)
	applyPolicy.Do(func() { cluster.Apply(t, policyOfFewPrivileges) })
	return host{T: t, node: node, skyhook: skyhook}
}

// exec runs a script on the node, as root of the host.
func (h host) exec(script string) string {
	h.Helper()
	return cluster.Exec(h.T, h.node, script)
}

// install applies the Skyhook with these packages, and waits until it is complete.
func (h host) install(packages string) {
	h.Helper()
	cluster.Apply(h.T, suite.Manifest(h.skyhook, fewPrivileges, packages))
	cluster.WaitComplete(h.T, h.skyhook)
}

// installFails applies the Skyhook with these packages, and waits until it fails for this reason.
func (h host) installFails(packages, why string) {
	h.Helper()
	cluster.Apply(h.T, suite.Manifest(h.skyhook, fewPrivileges, packages))
	cluster.WaitErroring(h.T, h.skyhook, why)
}

// uninstall removes the packages from the Skyhook, and then the Skyhook.
func (h host) uninstall() {
	h.Helper()
	h.install("{}")
	cluster.RemoveSkyhook(h.T, h.skyhook)
}

// reboot reboots the node and waits until it is ready again.
func (h host) reboot() {
	h.Helper()
	before := cluster.BootID(h.T, h.node)
	_, _ = cluster.TryExec(h.node, "systemctl --no-block reboot") // the connection may break before it returns
	cluster.WaitBoot(h.T, h.node, before)
}

// kernelParameter returns the value of a file below /proc/sys.
func (h host) kernelParameter(path string) string {
	h.Helper()
	return strings.Join(strings.Fields(h.exec("cat /proc/sys/"+path)), " ")
}

func (h host) requireParameter(path, want string) {
	h.Helper()
	if got := h.kernelParameter(path); got != want {
		h.Errorf("%s is %s, want %s", path, got, want)
	}
}

// listHost prints everything on the node that a package could leave behind: files with their owners, modes and contents, kernel
// parameters of the node's network, what systemd has loaded and enabled, and what is installed. It omits what the node itself
// keeps writing.
const listHost = `
cd /
find etc usr boot root home opt srv var tmp run/systemd/system -xdev \( -path var/lib/skyhook -o -path var/log -o -path var/cache -o -path var/tmp \
  -o -path var/lib/containerd -o -path var/lib/kubelet -o -path var/lib/cni -o -path var/lib/dpkg -o -path var/lib/apt -o -path var/lib/systemd \
  -o -path opt/kubernetes -o -path opt/containerd -o -path tmp -o -name __pycache__ \) -prune -o -printf '%p %y %m %u:%g %l\n'
find etc -xdev -type f ! -name 'passwd*' ! -name 'group*' ! -name 'shadow*' ! -name 'gshadow*' -exec sha256sum {} +
grep '' etc/passwd etc/group etc/shadow etc/gshadow
find proc/sys/net/core proc/sys/net/ipv4 -maxdepth 1 -type f | while read -r f; do echo "$f $(cat $f 2>/dev/null | tr '\t\n' '  ')"; done
dpkg-query -W -f '${Package} ${Version} ${db:Status-Status}\n'
systemctl list-unit-files --no-legend --no-pager
for u in cron containerd kubelet; do systemctl show -p DropInPaths -p LimitNOFILE $u; done
`

// snapshot lists the state of the host.
func (h host) snapshot() []string {
	h.Helper()
	lines := strings.Split(h.exec(listHost), "\n")
	slices.Sort(lines)
	return slices.Compact(lines)
}

// requireUnchanged compares the host with a snapshot. Lines that contain an exception may differ.
func (h host) requireUnchanged(before []string, exceptions ...string) {
	h.Helper()
	after := h.snapshot()
	isException := func(line string) bool {
		return slices.ContainsFunc(exceptions, func(e string) bool { return strings.Contains(line, e) })
	}
	report := func(what string, lines, others []string) {
		h.Helper()
		for _, line := range lines {
			if _, found := slices.BinarySearch(others, line); !found && !isException(line) {
				h.Errorf("%s: %s", what, line)
			}
		}
	}
	report("added", after, before)
	report("removed", before, after)
}
