// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/skyhook-k8s/skyhook/test/cluster/build"
	"github.com/skyhook-k8s/skyhook/test/cluster/network"
)

// packages names the Debian package of each program that is run on this machine.
var packages = []struct{ program, debian string }{
	{"systemd-nspawn", "systemd-container"},
	{"ip", "iproute2"},
	{"nsenter", "util-linux"},
	{"mmdebstrap", "mmdebstrap"},
}

// Require returns an error for everything that this machine lacks to run the cluster.
func (s Spec) Require(cache *build.Cache) error {
	if os.Geteuid() != 0 {
		return errors.New("this needs root, because nodes are systemd hosts with networks of their own: run it again with sudo")
	}
	return errors.Join(requireCapability(), s.requirePrograms(cache), s.requireKernel(), s.requireDiskSpace())
}

// debianKeys are the paths of Debian's archive keys, which Ubuntu does not install.
var debianKeys = []string{"/usr/share/keyrings/debian-archive-keyring.*", "/etc/apt/trusted.gpg.d/debian-archive-*"}

func matchesAnyFile(patterns ...string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		found, err := filepath.Glob(pattern)
		return err == nil && len(found) > 0
	})
}

func requireCapability() error {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return fmt.Errorf("reading the capabilities of this process: %w", err)
	}
	for line := range strings.Lines(string(status)) {
		value, found := strings.CutPrefix(line, "CapEff:")
		if !found {
			continue
		}
		set, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		if err == nil && set&(1<<unix.CAP_SYS_ADMIN) == 0 {
			return errors.New("this needs the capability CAP_SYS_ADMIN, which root has not got here: in a container, start it privileged")
		}
	}
	return nil
}

func (s Spec) requirePrograms(cache *build.Cache) error {
	var programs, missing []string
	for _, p := range packages {
		unused := p.program == "mmdebstrap" && s.hasRoots(cache) || p.program != "ip" && len(s.realNodes()) == 0
		if _, err := exec.LookPath(p.program); err != nil && !unused {
			programs, missing = append(programs, p.program), append(missing, p.debian)
		}
	}
	if len(s.realNodes()) > 0 && !s.hasRoots(cache) && !matchesAnyFile(debianKeys...) {
		programs, missing = append(programs, "the keys of the Debian archive"), append(missing, "debian-archive-keyring")
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("%s cannot be found: apt-get install -y %s", strings.Join(programs, " and "), strings.Join(missing, " "))
}

// requireKernel checks the kernel of this machine, which nodes share.
func (s Spec) requireKernel() error {
	if len(s.realNodes()) == 0 {
		return nil
	}
	var errs []error
	if known, err := os.ReadFile("/proc/filesystems"); err == nil && !strings.Contains(string(known), "\toverlay\n") {
		if out, err := exec.Command("modprobe", "overlay").CombinedOutput(); err != nil {
			errs = append(errs, fmt.Errorf("the kernel has no overlay file system (modprobe overlay: %s): use a kernel that has", strings.TrimSpace(string(out))))
		}
	}
	if _, err := os.Stat(network.BridgeFirewall); err != nil {
		if out, err := exec.Command("modprobe", "br_netfilter").CombinedOutput(); err != nil {
			errs = append(errs, fmt.Errorf("the kernel has no bridge firewall (modprobe br_netfilter: %s): use a kernel that has", strings.TrimSpace(string(out))))
		}
	}
	return errors.Join(append(errs, s.requireInotify())...)
}

// requireInotify checks the limit of inotify instances: kubelet, containerd and systemd of one node use about 17.
func (s Spec) requireInotify() error {
	const key, each, rest = "/proc/sys/fs/inotify/max_user_instances", 17, 20
	value, err := os.ReadFile(key)
	if err != nil {
		return nil // the kernel has no limit
	}
	limit, err := strconv.Atoi(strings.TrimSpace(string(value)))
	if need := each*len(s.realNodes()) + rest; err == nil && limit < need {
		return fmt.Errorf("%d nodes watch files through about %d inotify instances, and this machine allows %d: sysctl -w fs.inotify.max_user_instances=%d",
			len(s.realNodes()), need, limit, 2*need)
	}
	return nil
}

// requireDiskSpace checks that the cluster's files fit on the disk.
func (s Spec) requireDiskSpace() error {
	p, err := locatePaths(s.Name)
	if err != nil {
		return err
	}
	dir := p.dir
	for {
		if _, err := os.Stat(dir); err == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	need := uint64(256+256*len(s.realNodes())) << 20
	if free, err := build.FreeSpace(dir); err == nil && free < need {
		return fmt.Errorf("the cluster needs about %d MiB in %s, and %d MiB are free: free some space or set XDG_STATE_HOME to a directory with more",
			need>>20, p.dir, free>>20)
	}
	return nil
}
