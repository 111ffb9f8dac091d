// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// The root file system of a node: a small Debian with systemd, cron as a service that packages may restart, and what
// Kubernetes wants of a host.
const (
	Bookworm     = "bookworm" // Debian 12
	Trixie       = "trixie"   // Debian 13
	nodePackages = "systemd,systemd-sysv,dbus,cron,iproute2,iptables,kmod,procps,runc,containernetworking-plugins"
)

// Root returns the directory with the root file system of a node with a release of Debian. Building it needs root and mmdebstrap.
func (c *Cache) Root(ctx context.Context, debian string) (string, error) {
	options := []string{
		"--variant=minbase", "--include=" + nodePackages, `--aptopt=APT::Install-Recommends "false"`,
		"--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
	}
	return c.getOrBuild(ctx, artifact{
		name: "root-" + debian, inputs: append([]string{debian}, options...), needed: 1 << 30,
		note: "a Debian root file system for nodes, about a minute with a good connection",
		make: func(ctx context.Context, dir string) error {
			cmd := exec.CommandContext(ctx, "mmdebstrap", append(options, debian, dir)...)
			if err := c.runCommand(cmd); err != nil {
				return fmt.Errorf("%w; is the Debian mirror reachable, and is debian-archive-keyring installed?", err)
			}
			return removeAptSources(dir)
		},
	})
}

// removeAptSources removes the configuration of apt for this machine's mirror: a node installs no packages from there.
func removeAptSources(root string) error {
	var errs []error
	for _, pattern := range []string{"etc/apt/sources.list", "etc/apt/sources.list.d/*", "etc/apt/apt.conf.d/99mmdebstrap", "etc/resolv.conf"} {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		errs = append(errs, err)
		for _, path := range paths {
			errs = append(errs, os.RemoveAll(path))
		}
	}
	return errors.Join(errs...)
}

// HasRoot reports whether the root file system of a node with a release of Debian is in the cache.
func (c *Cache) HasRoot(debian string) bool {
	made, _ := filepath.Glob(filepath.Join(c.Dir, "root-"+debian+"-*"))
	return len(made) > 0
}

// Pause returns the program that pod sandboxes run.
func (c *Cache) Pause(ctx context.Context) (string, error) {
	source, err := Source()
	if err != nil {
		return "", err
	}
	inputs, err := readFiles(filepath.Join(source, "pause"), "main.go")
	if err != nil {
		return "", fmt.Errorf("building pause: %w", err)
	}
	dir, err := c.getOrBuild(ctx, artifact{
		name: "pause", inputs: inputs, needed: 64 << 20, note: "a few seconds",
		make: func(ctx context.Context, dir string) error {
			return c.runCommand(goCommand(ctx, source, "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(dir, "pause"), "./pause"))
		},
	})
	return filepath.Join(dir, "pause"), err
}
