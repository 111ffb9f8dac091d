// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

//go:embed all:like
var distributionFiles embed.FS

// emptyFolders are the directories of a Debian host that packages expect.
var emptyFolders = strings.Fields(`boot/grub etc/apt/apt.conf.d etc/apt/keyrings etc/apt/sources.list.d etc/cron.d etc/cron.daily
etc/cron.hourly etc/default/grub.d etc/kubernetes etc/logrotate.d etc/modprobe.d etc/modules-load.d etc/profile.d etc/security/limits.d
etc/ssh/sshd_config.d etc/ssl/certs etc/sudoers.d etc/sysctl.d etc/systemd/journald.conf.d etc/systemd/network etc/systemd/system.conf.d
etc/systemd/system/multi-user.target.wants etc/tmpfiles.d etc/udev/rules.d etc/update-motd.d home media mnt opt srv usr/local/bin
usr/local/etc usr/local/lib usr/local/sbin usr/local/share usr/share/keyrings var/cache/apt/archives var/lib/apt/lists
var/lib/dpkg/info var/lib/dpkg/updates var/spool/cron/crontabs`)

// usualServices run on every created host.
var usualServices = []string{"containerd", "cron", "dbus", "kubelet", "rsyslog", "ssh"}

// requiredPrograms must be on this machine; optionalPrograms are copied when they are:
// Debian's essential ones, and those of a usual cluster node.
var (
	requiredPrograms = strings.Fields("sh bash cat cp ls mkdir rm sed grep")
	optionalPrograms = strings.Fields(`[ arch awk b2sum base32 base64 basename chcon chgrp chmod chown chpasswd chroot cksum cmp comm csplit cut date
dd df diff diff3 dir dircolors dirname dmesg dnsdomainname domainname dpkg dpkg-query dpkg-divert dpkg-statoverride du echo egrep
env expand expr factor false fgrep find findmnt flock fmt fold free getconf getent getopt groupadd groupdel groupmod groups gunzip
gzip head hostid hostname id install ionice ip ipcs iptables join kill killall last ldconfig ldd link ln locale logger logname lsblk
lscpu lsmod lsns mawk md5sum mkfifo mknod mktemp modinfo more mount mountpoint mv nice nl nohup nproc nsenter numfmt od passwd paste
pathchk perl pgrep pidof pinky pkill pr printenv printf prlimit ps ptx pwd readlink realpath renice rev rmdir run-parts runcon
sdiff seq setarch setpriv setsid sha1sum sha224sum sha256sum sha384sum sha512sum shred shuf sleep sort split ss start-stop-daemon
stat stdbuf stty su sum swapoff swapon sync sysctl tac tail tar taskset tee tempfile test timeout top touch tr true truncate tsort
tty ulimit umount uname unexpand uniq unlink unshare update-alternatives uptime useradd userdel usermod vdir vmstat wall wc which who
whoami xargs xz yes zcat zgrep zstd`)
)

// makeMergedFolders makes the folders below /usr to which /bin, /sbin, /lib and /lib64 are links.
func makeMergedFolders(dir string) error {
	for _, link := range []string{"bin", "sbin", "lib", "lib64"} {
		target := path.Join("usr", link)
		if err := os.MkdirAll(filepath.Join(dir, target), 0o755); err != nil { //nolint:gosec // G301: as on every host
			return err
		}
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			return err
		}
	}
	return nil
}

// createRootfs creates a small root file system that resembles a distribution, with the programs of this machine but
// without its configuration.
func createRootfs(what, dir string) error {
	if !slices.Contains(Distributions, what) {
		return fmt.Errorf("a host like %q is not known; there are %s", what, strings.Join(Distributions, ", "))
	}
	if err := makeMergedFolders(dir); err != nil {
		return err
	}
	for _, f := range emptyFolders {
		if err := os.MkdirAll(filepath.Join(dir, f), 0o755); err != nil { //nolint:gosec // G301: as on every host
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "root"), 0o700); err != nil {
		return err
	}
	if err := writeDistributionFiles(what, dir); err != nil {
		return err
	}
	return copyPrograms(dir)
}

// writeDistributionFiles writes the common files, then those of the distribution.
func writeDistributionFiles(what, dir string) error {
	for _, part := range []string{"like/common", "like/" + what} {
		err := fs.WalkDir(distributionFiles, part, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			content, err := distributionFiles.ReadFile(name)
			if err != nil {
				return err
			}
			mode := fs.FileMode(0o644)
			if d.Name() == "shadow" {
				mode = 0o640
			}
			return writeFile(dir, strings.TrimPrefix(name, part+"/"), string(content), mode)
		})
		if err != nil {
			return err
		}
	}
	for _, name := range usualServices {
		text := fmt.Sprintf("[Unit]\nDescription=%s\n\n[Service]\nExecStart=/usr/bin/%s\n\n[Install]\nWantedBy=multi-user.target\n", name, name)
		if err := writeFile(dir, "usr/lib/systemd/system/"+name+".service", text, 0o644); err != nil {
			return err
		}
		link := filepath.Join(dir, "etc/systemd/system/multi-user.target.wants", name+".service")
		if err := os.Symlink("/usr/lib/systemd/system/"+name+".service", link); err != nil {
			return err
		}
	}
	sysctl := "[Unit]\nDescription=Apply Kernel Variables\n\n[Service]\nType=oneshot\nExecStart=/usr/lib/systemd/systemd-sysctl\n"
	if err := writeFile(dir, "usr/lib/systemd/system/systemd-sysctl.service", sysctl, 0o644); err != nil {
		return err
	}
	if err := writeFile(dir, "usr/sbin/update-grub", updateGrub, 0o755); err != nil {
		return err
	}
	if err := writeFile(dir, "usr/sbin/update-initramfs", "#!/bin/sh\n# A test host has no initramfs.\n", 0o755); err != nil {
		return err
	}
	return writeFile(dir, "boot/grub/grub.cfg", "menuentry 'trial' {\n  linux /boot/vmlinuz root=/dev/vda1 ro quiet\n}\n", 0o644)
}

func writeFile(dir, name, content string, mode fs.FileMode) error {
	at := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil { //nolint:gosec // G301: as on every host
		return err
	}
	if err := os.WriteFile(at, []byte(content), mode); err != nil {
		return err
	}
	return os.Chmod(at, mode)
}

// copyPrograms copies programs of this machine with the libraries they need.
func copyPrograms(dir string) error {
	libraries := newLibraries()
	for i, name := range append(slices.Clone(requiredPrograms), optionalPrograms...) {
		at, err := findProgram(name)
		if err != nil {
			if i < len(requiredPrograms) {
				return fmt.Errorf("this machine has no %s, so it cannot create a host; name a root file system with --root", name)
			}
			continue
		}
		to := filepath.Join(dir, mergedPath(at))
		if _, err := os.Lstat(to); err == nil {
			continue // ours
		}
		if err := libraries.copyProgram(at, to); err != nil {
			return fmt.Errorf("copying program %s: %w", name, err)
		}
	}
	if err := libraries.copyAll(dir); err != nil {
		return err
	}
	for _, pattern := range []string{"/usr/lib/*/perl-base", "/usr/lib/locale/C.utf8"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		for _, at := range found {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, at)), 0o755); err != nil { //nolint:gosec // G301: as on every host
				return err
			}
			if err := copyTree(at, filepath.Join(dir, at)); err != nil {
				return err
			}
		}
	}
	return nil
}

// findProgram returns the path of a program of this machine.
func findProgram(name string) (string, error) {
	for _, dir := range []string{"/usr/bin", "/usr/sbin", "/bin", "/sbin"} {
		at := filepath.Join(dir, name)
		if st, err := os.Stat(at); err == nil && st.Mode().IsRegular() && unix.Access(at, unix.R_OK|unix.X_OK) == nil {
			return at, nil
		}
	}
	return "", &exec.Error{Name: name, Err: errors.New("not found")}
}

// mergedPath returns the path on a host whose /bin, /sbin and /lib are links below /usr.
func mergedPath(name string) string {
	for _, top := range []string{"/bin/", "/sbin/", "/lib/", "/lib64/"} {
		if strings.HasPrefix(name, top) {
			return path.Join("/usr", name)
		}
	}
	return name
}
