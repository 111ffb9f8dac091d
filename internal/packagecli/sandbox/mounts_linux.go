// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// devices are the device files below /dev.
var devices = []string{"null", "zero", "full", "random", "urandom"}

// mountFilesystems mounts the file systems of a running host. /proc shows the PID namespace; kernel settings and devices
// are files of the host.
func mountFilesystems(dir string) error {
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, m := range []struct {
		what, where string
		flags       uintptr
		data        string
	}{
		{"proc", "proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"tmpfs", "sys", unix.MS_NOSUID | unix.MS_NODEV, "mode=755"},
		{"tmpfs", "dev", unix.MS_NOSUID, "mode=755"},
		{"tmpfs", "run", unix.MS_NOSUID | unix.MS_NODEV, "mode=755"},
	} {
		if err := unix.Mount(m.what, at(m.where), m.what, m.flags, m.data); err != nil {
			return fmt.Errorf("mounting /%s: %w", m.where, err)
		}
	}
	for _, name := range devices {
		if err := makeDevice("/dev/"+name, at("dev/"+name)); err != nil {
			return fmt.Errorf("making /dev/%s: %w", name, err)
		}
	}
	for name, target := range map[string]string{
		"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
	} {
		if err := os.Symlink(target, at("dev/"+name)); err != nil {
			return err
		}
	}
	if err := os.Mkdir(at("dev/shm"), 0o777); err != nil { //nolint:gosec // G301: as on every host
		return err
	}
	if err := coverMachine(at("proc"), at("dev/null")); err != nil {
		return err
	}
	// /proc/cmdline follows the boot loader's configuration, if the host has one.
	if err := os.WriteFile(at("run/.cmdline"), nil, 0o644); err != nil { //nolint:gosec // G306: as on every host
		return err
	}
	if err := unix.Mount(at("run/.cmdline"), at("proc/cmdline"), "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mounting /proc/cmdline: %w", err)
	}
	return os.Remove(at("run/.cmdline"))
}

// makeDevice makes a device file like one of this machine. Its owner and mode are its own where this process may make devices; in a user
// namespace, where it may not, nobody may change those of the machine's either.
func makeDevice(like, at string) error {
	var st unix.Stat_t
	if err := unix.Stat(like, &st); err != nil {
		return err
	}
	if unix.Mknod(at, st.Mode, int(st.Rdev)) == nil {
		return os.Chmod(at, 0o666) //nolint:gosec // G302: as on every host
	}
	if err := os.WriteFile(at, nil, 0o666); err != nil { //nolint:gosec // G306: a place to mount a device on
		return err
	}
	return unix.Mount(like, at, "", unix.MS_BIND, "")
}

// coverMachine covers what /proc has of the whole machine: its folders, such as /proc/sys and /proc/irq, and the files that can be written or that
// not everybody may read, such as /proc/sysrq-trigger. Processes, and what is only read, stay.
func coverMachine(proc, null string) error {
	there, err := os.ReadDir(proc)
	if err != nil {
		return err
	}
	for _, d := range there {
		st, err := d.Info()
		if _, e := strconv.Atoi(d.Name()); e == nil || err != nil || st.Mode()&fs.ModeSymlink != 0 {
			continue
		}
		at := filepath.Join(proc, d.Name())
		switch {
		case d.IsDir():
			err = unix.Mount("tmpfs", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755")
		case st.Mode().Perm() != 0o444 || d.Name() == "keys":
			err = unix.Mount(null, at, "", unix.MS_BIND, "")
		}
		if err != nil {
			return fmt.Errorf("covering /proc/%s: %w", d.Name(), err)
		}
	}
	return nil
}

// bootID is the setting with the boot id.
const bootID = "kernel/random/boot_id"

// readSettings reads the kernel settings of this machine that are readable. Some are counters that change,
// so they are read once for all hosts.
func readSettings() (map[string]string, error) {
	settings := map[string]string{}
	err := filepath.WalkDir("/proc/sys", func(name string, d fs.DirEntry, err error) error {
		short := strings.TrimPrefix(name, "/proc/sys/")
		switch {
		case err != nil || short == "fs/binfmt_misc":
			if d != nil && d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir():
			return nil
		}
		if content, err := os.ReadFile(name); err == nil { //nolint:gosec // G122: nobody puts links below /proc/sys
			settings[short] = string(content)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the kernel's settings: %w", err)
	}
	return settings, nil
}

// resetSettings restores the settings to their values at boot. They are plain files and change no kernel.
func (h *host) resetSettings() error {
	settings := filepath.Join(h.dir, "proc/sys")
	there, err := os.ReadDir(settings)
	if err != nil {
		return err
	}
	for _, d := range there {
		if err := os.RemoveAll(filepath.Join(settings, d.Name())); err != nil {
			return err
		}
	}
	for name, content := range h.settings {
		if name == bootID {
			content = fmt.Sprintf("%08d-0000-4000-8000-000000000000\n", h.boots)
		}
		file := filepath.Join(settings, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { //nolint:gosec // G301: as on every host
			return err
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil { //nolint:gosec // G306: as on every host
			return err
		}
	}
	return nil
}

// copyTree copies a root file system: files, directories, links, owners and modes. It leaves out devices and sockets,
// and the content of /proc, /sys, /dev and /run.
func copyTree(from, to string) error {
	st, err := os.Stat(from)
	if err != nil {
		return err
	}
	if !st.IsDir() {
		return fmt.Errorf("%s is not a folder; unpack it first", from)
	}
	seen := map[[2]uint64]string{} // copies of files with several hard links
	return filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		var info unix.Stat_t
		if err := unix.Lstat(name, &info); err != nil {
			return fmt.Errorf("copying %s: %w", name, err)
		}
		at := filepath.Join(to, rel)
		if err := copyOne(name, at, info, seen); err != nil {
			return fmt.Errorf("copying %s: %w", name, err)
		}
		if d.IsDir() && (rel == "proc" || rel == "sys" || rel == "dev" || rel == "run") {
			return fs.SkipDir
		}
		return nil
	})
}

func copyOne(name, at string, info unix.Stat_t, seen map[[2]uint64]string) error {
	mode := info.Mode & 0o7777
	id := [2]uint64{uint64(info.Dev), info.Ino}
	switch kind := info.Mode & unix.S_IFMT; kind {
	case unix.S_IFDIR:
		if err := os.MkdirAll(at, 0o755); err != nil { //nolint:gosec // G301: the real mode comes below
			return err
		}
	case unix.S_IFLNK:
		target, err := os.Readlink(name)
		if err == nil {
			err = os.Symlink(target, at)
		}
		if err != nil {
			return err
		}
		return ignoreChownError(unix.Lchown(at, int(info.Uid), int(info.Gid)))
	case unix.S_IFREG:
		if first, again := seen[id]; again {
			return os.Link(first, at)
		}
		if info.Nlink > 1 {
			seen[id] = at
		}
		if err := copyFile(name, at); err != nil {
			return err
		}
	case unix.S_IFIFO:
		if err := unix.Mkfifo(at, mode); err != nil {
			return err
		}
	default:
		return nil // devices and sockets are useless in a copy
	}
	if err := ignoreChownError(unix.Lchown(at, int(info.Uid), int(info.Gid))); err != nil {
		return err
	}
	return unix.Chmod(at, mode) // after chown, which clears set-user-ID
}

// ignoreChownError ignores that chown fails in a user namespace with a single user.
func ignoreChownError(err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	return err
}

func copyFile(name, at string) error {
	in, err := os.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(at, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = out.ReadFrom(in)
	return errors.Join(err, out.Close())
}
