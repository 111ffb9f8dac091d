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

// stateDir is where the systemctl of the host remembers, and rebootFile what it makes when a reboot is asked for.
const (
	stateDir   = "run/skyhook-trial"
	rebootFile = stateDir + "/reboot"
)

// stubs puts our own systemctl in the place of the host's, under all its names.
func (h *host) stubs() error {
	if err := h.write("/usr/bin/systemctl", systemctl, 0o755); err != nil {
		return err
	}
	for _, dir := range []string{"bin", "sbin", "usr/sbin"} {
		if st, err := h.root.Lstat(dir); dir != "usr/sbin" && (err != nil || !st.IsDir()) {
			continue // a link to the folder below /usr, or not there
		}
		for _, name := range []string{"systemctl", "reboot", "shutdown", "poweroff", "halt"} {
			at := path.Join(dir, name)
			_, err := h.root.Lstat(at)
			if errors.Is(err, fs.ErrNotExist) && (dir != "usr/sbin" || name == "systemctl") {
				continue
			}
			if same, err := h.same(at, "usr/bin/systemctl"); err != nil || same {
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

// same says that two names are one file, because a folder above is a link.
func (h *host) same(a, b string) (bool, error) {
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

// services makes the unit files of services that the spec names and the host does not have, and finds out which run from
// the start: those, and those that are enabled.
func (h *host) services() error {
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
		h.base = append(h.base, unit)
	}
	return nil
}

// enabled are the units that something wants at boot.
func (h *host) enabled() ([]string, error) {
	found, err := filepath.Glob(filepath.Join(h.dir, "etc/systemd/system/*.wants/*"))
	if err != nil {
		return nil, err
	}
	all := map[string]bool{}
	for _, name := range append(found, h.base...) {
		all[filepath.Base(name)] = true
	}
	return slices.Sorted(maps.Keys(all)), nil
}

// boot plays a boot: another boot id, what was kept in memory is gone, the kernel's settings are those of its
// configuration, and enabled services run.
func (h *host) boot() error {
	h.boots++
	calls, err := h.root.ReadFile(stateDir + "/calls")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, dir := range []string{"run", "tmp"} {
		if err := h.empty(dir); err != nil {
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
	units, err := h.enabled()
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
	return h.commandLine()
}

// empty removes all below a folder of the host.
func (h *host) empty(dir string) error {
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

// loadSettings loads the settings of the host's configuration, as its own program does. A host without one has none, and
// a setting it does not know is no failure of the boot.
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

// commandLine shows the kernel's command line that the boot loader's configuration has now.
func (h *host) commandLine() error {
	line := "BOOT_IMAGE=/boot/vmlinuz\n"
	if config, err := h.root.ReadFile("boot/grub/grub.cfg"); err == nil {
		for text := range strings.Lines(string(config)) {
			if words := strings.Fields(text); len(words) > 1 && words[0] == "linux" {
				line = "BOOT_IMAGE=" + strings.Join(words[1:], " ") + "\n"
				break
			}
		}
	}
	return os.WriteFile(filepath.Join(h.dir, "proc/cmdline"), []byte(line), 0o644) //nolint:gosec // G306: as on every host
}
