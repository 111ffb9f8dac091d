// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// makeHost creates a minimal root file system in which scripts run.
func makeHost(root, shell string) error {
	for _, dir := range []string{"bin", "dev", "etc", "proc/sys/kernel/random", "root", "tmp", "usr/bin", "var/lib", "var/log"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	if err := os.Link(shell, filepath.Join(root, "bin/busybox")); err != nil {
		return err
	}
	for _, name := range strings.Fields("sh cat cp rm mv ls ln mkdir touch chmod sleep env grep sed printf head tail date kill mount true false test seq wc stat id ps dd") {
		if err := os.Symlink("busybox", filepath.Join(root, "bin", name)); err != nil {
			return err
		}
	}
	for name, content := range map[string]string{
		"dev/null":                       "",
		"etc/resolv.conf":                "nameserver 192.0.2.1\n",
		"proc/sys/kernel/random/boot_id": "boot-one\n",
		"proc/stat":                      "btime 1700000000\n",
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// staticBusybox copies the shell of the fake hosts to a directory in which hard links to it can be created.
func staticBusybox(t testing.TB, dir string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("the scenarios run steps in a chroot, which needs root")
	}
	at, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("the scenarios need a static busybox: apt-get install busybox-static")
	}
	f, err := elf.Open(at)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Skip("the scenarios need a static busybox: apt-get install busybox-static")
		}
	}
	to := filepath.Join(dir, "busybox")
	if err := os.WriteFile(to, must(os.ReadFile(at))(t), 0o755); err != nil {
		t.Fatal(err)
	}
	return to
}

// memoryDir is a directory in memory, if possible: these tests do not check durability, and thousands of syncs to a
// disk are slow.
func memoryDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "skyhook-agent")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// canMount reports whether file systems can be mounted here, in a new mount namespace if possible.
func canMount() bool {
	at, err := os.MkdirTemp("", "mount")
	if err != nil {
		return false
	}
	defer os.Remove(at)
	if unix.Mount("tmpfs", at, "tmpfs", 0, "size=64k") != nil {
		return false
	}
	return unix.Unmount(at, unix.MNT_DETACH) == nil
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func must2[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
