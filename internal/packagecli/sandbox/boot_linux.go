// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

//go:embed systemctl.sh
var systemctl string

//go:embed update-grub.sh
var updateGrub string

// stateDir holds the state of the simulated systemctl; it creates rebootFile when a reboot is requested.
const (
	stateDir   = "run/skyhook-trial"
	rebootFile = stateDir + "/reboot"
)

// installSystemctl replaces the host's systemctl, under all its names, with the simulated one.
func (h *host) installSystemctl() error {
	if err := h.write("/usr/bin/systemctl", systemctl, 0o755); err != nil {
		return err
	}
	for _, dir := range []string{"bin", "sbin", "usr/sbin"} {
		if st, err := h.root.Lstat(dir); dir != "usr/sbin" && (err != nil || !st.IsDir()) {
			continue // missing, or a link to the directory below /usr
		}
		for _, name := range []string{"systemctl", "reboot", "shutdown", "poweroff", "halt"} {
			at := path.Join(dir, name)
			_, err := h.root.Lstat(at)
			if errors.Is(err, fs.ErrNotExist) && (dir != "usr/sbin" || name == "systemctl") {
				continue
			}
			if same, err := h.isSameFile(at, "usr/bin/systemctl"); err != nil || same {
				if err != nil {
					return err
				}
				continue
			}
			if err := h.root.RemoveAll(at); err != nil {
				return err
			}
			if err := h.root.Symlink("/usr/bin/systemctl", at); err != nil {
				return err
			}
		}
	}
	return nil
}

// isSameFile reports whether two paths name one file, because a parent directory is a link.
func (h *host) isSameFile(a, b string) (bool, error) {
	one, err := h.root.Lstat(a)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	two, err := h.root.Lstat(b)
	return err == nil && os.SameFile(one, two), err
}

// addServices creates unit files for services of the spec that the host does not have, and records
// which services run from the start.
func (h *host) addServices() error {
	for _, name := range h.spec.Services {
		unit := name
		if path.Ext(unit) == "" {
			unit += ".service"
		}
		at := "/usr/lib/systemd/system/" + unit
		if _, err := h.root.Lstat(at[1:]); errors.Is(err, fs.ErrNotExist) {
			text := fmt.Sprintf("[Unit]\nDescription=%s\n\n[Service]\nExecStart=/bin/true\n\n[Install]\nWantedBy=multi-user.target\n", name)
			if err := h.write(at, text, 0o644); err != nil {
				return err
			}
		}
		h.startedUnits = append(h.startedUnits, unit)
	}
	return nil
}

// listEnabledUnits returns the units that are started at boot.
func (h *host) listEnabledUnits() ([]string, error) {
	found, err := filepath.Glob(filepath.Join(h.dir, "etc/systemd/system/*.wants/*"))
	if err != nil {
		return nil, err
	}
	all := map[string]bool{}
	for _, name := range append(found, h.startedUnits...) {
		all[filepath.Base(name)] = true
	}
	return slices.Sorted(maps.Keys(all)), nil
}

// simulateBoot sets a new boot id, empties what is kept in memory, loads the kernel settings of the configuration
// and starts the enabled services.
func (h *host) simulateBoot() error {
	h.boots++
	calls, err := readBounded(h.root.Open(stateDir + "/calls"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, dir := range []string{"run", "tmp"} {
		if err := h.emptyFolder(dir); err != nil {
			return err
		}
	}
	for _, dir := range []string{"units", "lives"} {
		if err := h.root.MkdirAll(path.Join(stateDir, dir), 0o755); err != nil {
			return err
		}
	}
	if err := h.root.WriteFile(stateDir+"/calls", calls, 0o644); err != nil {
		return err
	}
	if err := h.root.Chmod(stateDir+"/calls", 0o666); err != nil { // the steps of a preflight have another user
		return err
	}
	units, err := h.listEnabledUnits()
	if err != nil {
		return err
	}
	for i, u := range units {
		life := fmt.Sprintln(100*h.boots + i)
		if err := errors.Join(h.root.WriteFile(path.Join(stateDir, "units", u), []byte("active\n"), 0o644),
			h.root.WriteFile(path.Join(stateDir, "lives", u), []byte(life), 0o644)); err != nil {
			return err
		}
	}
	if err := h.root.WriteFile(stateDir+"/runs", fmt.Appendln(nil, 100*h.boots+len(units)), 0o644); err != nil {
		return err
	}
	if err := h.resetSettings(); err != nil {
		return err
	}
	h.loadSettings()
	return h.writeCommandLine()
}

// emptyFolder removes everything in a directory of the host.
func (h *host) emptyFolder(dir string) error {
	there, err := os.ReadDir(filepath.Join(h.dir, dir))
	if err != nil {
		return err
	}
	for _, d := range there {
		if err := h.root.RemoveAll(path.Join(dir, d.Name())); err != nil {
			return err
		}
	}
	return nil
}

// loadSettings runs the host's sysctl, if there is one. An unknown setting does not fail the boot.
func (h *host) loadSettings() {
	for _, dir := range []string{"/usr/sbin", "/sbin", "/usr/bin", "/bin"} {
		if _, err := h.root.Stat(path.Join(dir, "sysctl")[1:]); err != nil {
			continue
		}
		cmd := exec.Command(path.Join(dir, "sysctl"), "--system")
		cmd.Dir, cmd.Env, cmd.SysProcAttr = "/", []string{"PATH=" + searchPath}, &syscall.SysProcAttr{Chroot: h.dir}
		_ = cmd.Run()
		return
	}
}

// writeCommandLine writes /proc/cmdline from the boot loader's configuration.
func (h *host) writeCommandLine() error {
	line := "BOOT_IMAGE=/boot/vmlinuz\n"
	if config, err := readBounded(h.root.Open("boot/grub/grub.cfg")); err == nil {
		for text := range strings.Lines(string(config)) {
			if words := strings.Fields(text); len(words) > 1 && words[0] == "linux" {
				line = "BOOT_IMAGE=" + strings.Join(words[1:], " ") + "\n"
				break
			}
		}
	}
	return os.WriteFile(filepath.Join(h.dir, "proc/cmdline"), []byte(line), 0o644) //nolint:gosec // G306: as on every host
}
