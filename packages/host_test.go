// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package packages

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// flavors are the simulated hosts, by os-release.
var flavors = map[string]string{
	"debian-12":   "ID=debian\nVERSION_ID=\"12\"\n",
	"ubuntu-24":   "ID=ubuntu\nID_LIKE=debian\nVERSION_ID=\"24.04\"\n",
	"rhel-9":      "ID=\"rhel\"\nID_LIKE=\"fedora\"\nVERSION_ID=\"9.5\"\n",
	"rocky-9":     "ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\nVERSION_ID=\"9.5\"\n",
	"almalinux-9": "ID=\"almalinux\"\nID_LIKE=\"rhel centos fedora\"\nVERSION_ID=\"9.5\"\n",
	"centos-10":   "ID=\"centos\"\nID_LIKE=\"rhel fedora\"\nVERSION_ID=\"10\"\n",
	"fedora-42":   "ID=fedora\nVERSION_ID=42\n",
	"amzn-2023":   "ID=\"amzn\"\nID_LIKE=\"fedora\"\nVERSION_ID=\"2023\"\n",
	"sles-15":     "ID=\"sles\"\nID_LIKE=\"suse\"\nVERSION_ID=\"15.6\"\n",
	"arch":        "ID=arch\n",
}

// kernelDefaults are the initial parameters of a simulated kernel.
var kernelDefaults = map[string]string{
	"fs/nr_open":                          "1048576",
	"kernel/core_pattern":                 "core",
	"net/core/somaxconn":                  "4096",
	"net/core/rmem_max":                   "212992",
	"net/ipv4/tcp_rmem":                   "4096\t131072\t6291456",
	"net/ipv4/conf/all/arp_ignore":        "0",
	"net/ipv4/conf/default/arp_ignore":    "0",
	"net/ipv4/conf/eth0.100/arp_ignore":   "0",
	"net/ipv4/ip_local_reserved_ports":    "",
	"vm/swappiness":                       "60",
	"vm/max_map_count":                    "65530",
	"kernel/unprivileged_bpf_disabled":    "0",
	"kernel/random/boot_id":               "11111111-2222-3333-4444-555555555555",
	"net/netfilter/nf_conntrack_max":      "262144",
	"net/ipv4/tcp_congestion_control":     "cubic",
	"net/ipv6/conf/all/disable_ipv6":      "0",
	"net/ipv6/conf/default/disable_ipv6":  "0",
	"net/ipv6/conf/eth0.100/disable_ipv6": "0",
}

const firstBoot = "BOOT_IMAGE=/vmlinuz-6.1 root=/dev/vda1 ro"

// A host is a root file system with the tools of this machine. Fakes replace what would affect the real machine:
// systemctl, the boot loader, package managers and the files of the kernel.
type host struct {
	root   string
	flavor string
}

// isDebian reports whether the host uses apt and update-grub.
func (h host) isDebian() bool {
	return strings.HasPrefix(h.flavor, "debian") || strings.HasPrefix(h.flavor, "ubuntu")
}

func (h host) path(name string) string { return filepath.Join(h.root, name) }

func (h host) writeFile(name, content string, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(h.path(name)), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(h.path(name), []byte(content), mode); err != nil {
		return err
	}
	return os.Chmod(h.path(name), mode)
}

// newHost creates a simulated host. Fakes listed in without are left out, such as grubby.
func newHost(root, flavor string, without []string) (host, error) {
	h := host{root: root, flavor: flavor}
	release, ok := flavors[flavor]
	if !ok {
		return h, fmt.Errorf("host %q is none of %v", flavor, slices.Sorted(maps.Keys(flavors)))
	}
	for _, dir := range []string{"usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "dev", "etc", "proc", "root", "run", "stub", "tmp", "var/lib", "var/log"} {
		if err := os.MkdirAll(h.path(dir), 0o755); err != nil {
			return h, err
		}
	}
	for _, dir := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := os.Symlink("usr/"+dir, h.path(dir)); err != nil {
			return h, err
		}
	}
	if err := unix.Mknod(h.path("dev/null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
		return h, fmt.Errorf("making /dev/null: %w", err)
	}
	// The steps of a preflight run as nobody.
	if err := errors.Join(os.Chmod(h.path("dev/null"), 0o666), os.Chmod(h.path("tmp"), 0o777|os.ModeSticky)); err != nil {
		return h, err
	}
	if err := errors.Join(h.addTools(without), h.fillRepository()); err != nil {
		return h, err
	}
	files := map[string]string{"/etc/os-release": release, "/stub/calls": "", "/proc/cmdline": firstBoot + "\n",
		"/proc/version": "Linux version 6.1.0-1-amd64 (builder@example) (gcc) #1 SMP PREEMPT_DYNAMIC\n",
		"/proc/stat":    fmt.Sprintf("cpu 1 2 3\nbtime %d\n", time.Now().Add(-time.Hour).Unix()),
		"/proc/uptime":  "3600.00 1.00\n", "/proc/1/cgroup": "0::/init.scope\n"}
	for name, value := range kernelDefaults {
		files["/proc/sys/"+name] = value + "\n"
	}
	if err := h.addFiles(files); err != nil {
		return h, err
	}
	return h, h.startServices()
}

// addFiles adds the files of a distribution.
func (h host) addFiles(files map[string]string) error {
	for _, unit := range []string{"containerd", "nvidia_persistenced", "cron"} {
		files["/usr/lib/systemd/system/"+unit+".service"] = "[Service]\nExecStart=/usr/bin/" + unit + "\n"
	}
	files["/etc/security/limits.conf"] = "# limits of sessions\n*  soft  core  0\n"
	files["/etc/sysctl.conf"] = "vm.swappiness = 30\n"
	files["/usr/lib/sysctl.d/50-default.conf"] = "# from the distribution\n-net.ipv4.conf.*.arp_ignore = 0\nnet.core.somaxconn = 4096\n"
	if h.isDebian() {
		files["/etc/pam.d/common-session"] = "session required pam_unix.so\n"
		files["/etc/pam.d/common-session-noninteractive"] = "session required pam_unix.so\n"
		files["/etc/pam.d/sshd"] = "session required pam_limits.so\n@include common-session\n"
		files["/etc/default/grub"] = "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet splash\"\nGRUB_CMDLINE_LINUX=\"\"\n"
		files["/etc/default/grub.d/50-cloudimg-settings.cfg"] = "GRUB_CMDLINE_LINUX_DEFAULT=\"console=tty1 console=ttyS0\"\n"
	} else {
		files["/etc/pam.d/system-auth"] = "session     required      pam_limits.so\n"
		files["/boot/loader/entries/abc-6.1.conf"] = "title Linux\nlinux /vmlinuz-6.1\noptions root=/dev/vda1 ro console=ttyS0 crashkernel=256M\n"
		files["/boot/loader/entries/abc-0-rescue.conf"] = "title Linux (rescue)\nlinux /vmlinuz-0\noptions root=/dev/vda1 ro\n"
	}
	for name, content := range files {
		if err := h.writeFile(name, content, 0o644); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(h.path("etc/sysctl.d"), 0o755); err != nil {
		return err
	}
	if err := os.MkdirAll(h.path("etc/security/limits.d"), 0o755); err != nil {
		return err
	}
	return os.Symlink("../sysctl.conf", h.path("etc/sysctl.d/99-sysctl.conf"))
}

// startServices starts the services as after a boot.
func (h host) startServices() error {
	out, err := h.runScript("systemctl start containerd nvidia_persistenced; systemctl enable containerd; ! command -v update-grub || update-grub")
	if err != nil {
		return fmt.Errorf("starting the services of a simulated host: %w: %s", err, out)
	}
	if err := h.simulateBoot(); err != nil {
		return err
	}
	// The services started a minute after the boot, not now.
	out, err = h.runScript("for f in /proc/[0-9]*/stat; do s=$(cat $f); echo \"${s%% 20 0 1 *} 20 0 1 0 6000 99\" >$f; done")
	if err != nil {
		return fmt.Errorf("making the services older: %w: %s", err, out)
	}
	return nil
}

// runScript runs a script on the host, as its administrator.
func (h host) runScript(script string) (string, error) {
	cmd := exec.Command("/usr/bin/bash", "-c", script)
	cmd.SysProcAttr = chrootAttributes(h.root)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin", "HOME=/root", "LC_ALL=C"}
	cmd.Dir = "/"
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// tools are the programs of this machine that every host gets.
var tools = strings.Fields("bash cat chmod cmp comm cp cut date dirname env find flock getconf grep head id join ln ls mkdir mktemp mv paste readlink rm rmdir sed setsid sh sleep sort stat tac tail tee touch tr uniq wc")

// toolsDir is the folder of the copied tools, once it exists.
var toolsDir string

// copyTools copies the tools and their libraries, once for all hosts.
var copyTools = sync.OnceValues(func() (map[string]string, error) {
	dir, err := os.MkdirTemp("", "packages-tools-")
	if err != nil {
		return nil, err
	}
	toolsDir = dir
	box := map[string]string{}
	for _, tool := range tools {
		at, err := exec.LookPath(tool)
		if err != nil {
			return box, fmt.Errorf("the simulated hosts need %s: %w", tool, err)
		}
		if err := copyProgram(box, dir, at, "/usr/bin/"+tool); err != nil {
			return box, err
		}
	}
	return box, nil
})

// copyProgram copies a program and the libraries it is linked with.
func copyProgram(box map[string]string, dir, from, to string) error {
	if box[to] != "" {
		return nil
	}
	box[to] = filepath.Join(dir, fmt.Sprint(len(box)+1))
	if err := copyFile(from, box[to], 0o755); err != nil {
		return err
	}
	f, err := elf.Open(from)
	if err != nil {
		return nil // a script
	}
	defer f.Close()
	out, err := exec.Command("ldd", from).Output()
	if err != nil {
		return nil // linked statically
	}
	for line := range strings.Lines(string(out)) {
		for _, word := range strings.Fields(line) {
			if strings.HasPrefix(word, "/") {
				if err := copyProgram(box, dir, word, word); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// addTools adds the tools and the fakes.
func (h host) addTools(without []string) error {
	box, err := copyTools()
	if err != nil {
		return err
	}
	for to, from := range box {
		if err := os.MkdirAll(filepath.Dir(h.path(to)), 0o755); err != nil {
			return err
		}
		if err := os.Link(from, h.path(to)); err != nil {
			return err
		}
	}
	stubs := map[string]string{"systemctl": "systemctl", "grubby": "grubby", "dnf": "dnf", "yum": "dnf", "rpm": "rpm", "zypper": "zypper"}
	if h.isDebian() {
		stubs = map[string]string{"systemctl": "systemctl", "update-grub": "update-grub", "apt-get": "apt-get", "dpkg-query": "dpkg-query"}
	}
	stubs["systemd-run"] = "systemd-run"
	for name, from := range stubs {
		if slices.Contains(without, name) {
			continue
		}
		if err := copyFile(filepath.Join("testdata/host", from), h.path("usr/sbin/"+name), 0o755); err != nil {
			return err
		}
	}
	return copyFile("testdata/host/repository.sh", h.path("stub/repository.sh"), 0o755)
}

// fillRepository fills the repository that the host's package manager installs from.
func (h host) fillRepository() error {
	profiles := "usr/lib/tuned/"
	if strings.HasPrefix(h.flavor, "fedora") {
		profiles += "profiles/" // since 2.24
	}
	files := map[string]string{
		"tuned/needs": "python3-dbus virt-what\n",
		"tuned/root/usr/lib/systemd/system/tuned.service":              "[Service]\nExecStart=/usr/sbin/tuned -l\n",
		"tuned/root/etc/tuned/active_profile":                          "",
		"tuned/root/etc/tuned/profile_mode":                            "",
		"tuned/root/etc/tuned/bootcmdline":                             "# none\n",
		"tuned/root/etc/tuned/tuned-main.conf":                         "daemon = 1\n",
		"tuned/root/" + profiles + "balanced/tuned.conf":               "[main]\nsummary=General non-specialized tuned profile\n[sysctl]\nvm.swappiness=40\n",
		"tuned/root/" + profiles + "throughput-performance/tuned.conf": "[main]\nsummary=Broadly applicable tuning\n[sysctl]\nvm.swappiness=10\n",
		"tuned/root/" + profiles + "powersave/tuned.conf":              "[main]\nsummary=Optimize for low power consumption\n[sysctl]\n",
		"python3-dbus/root/usr/lib/python3/dbus.py":                    "# dbus\n",
		"virt-what/root/usr/sbin/virt-what":                            "#!/bin/sh\n",
		"kubernetes-tuner/needs":                                       "tuned\n",
		"kubernetes-tuner/root/usr/bin/kubernetes-tuner":               "#!/bin/sh\n",
		"node-tools/needs":                                             "virt-what\n",
		"node-tools/root/usr/bin/node-tools":                           "#!/bin/sh\n",
	}
	if h.isDebian() {
		files["tuned/root/etc/grub.d/00_tuned"] = "#!/bin/sh\n"
	}
	for name, content := range files {
		if err := h.writeFile("/stub/repo/"+name, content, 0o644); err != nil {
			return err
		}
	}
	if h.isDebian() { // Debian enables and starts a service when it is installed
		if err := h.writeFile("/stub/repo/tuned/after", "#!/bin/sh\nsystemctl daemon-reload\nsystemctl enable tuned\nsystemctl start tuned\n", 0o755); err != nil {
			return err
		}
	}
	for _, name := range []string{"tuned", "tuned-adm"} {
		to := "/stub/repo/tuned/root/usr/sbin/" + name
		if err := os.MkdirAll(filepath.Dir(h.path(to)), 0o755); err != nil {
			return err
		}
		if err := copyFile("testdata/host/"+name, h.path(to), 0o755); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string, mode os.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if errClose := out.Close(); err == nil {
		err = errClose
	}
	return err
}

// simulateBoot resets the kernel's state, reads its arguments from the boot loader and its parameters as systemd-sysctl
// does, and starts the enabled services.
func (h host) simulateBoot() error {
	args, err := h.runScript(`if [ -f /boot/grub/grub.cfg ]; then grep -m 1 linux /boot/grub/grub.cfg; else sed -n 's/^options /x x /p' /boot/loader/entries/abc-6.1.conf; fi`)
	if err != nil {
		return err
	}
	words := strings.Fields(args)[2:]
	if err := h.writeFile("/proc/cmdline", "BOOT_IMAGE=/vmlinuz-6.1 "+strings.Join(words, " ")+"\n", 0o644); err != nil {
		return err
	}
	values := maps.Clone(kernelDefaults)
	if err := h.applyBootParameters(values); err != nil {
		return err
	}
	for name, value := range values {
		if err := h.writeFile("/proc/sys/"+name, value+"\n", 0o644); err != nil {
			return err
		}
	}
	out, err := h.runScript("systemctl daemon-reload; for d in /run/units/*/pid; do n=${d%/pid}; systemctl restart ${n##*/}; done; : >/stub/calls")
	if err != nil {
		return fmt.Errorf("booting: %w: %s", err, out)
	}
	return nil
}

// applyBootParameters is a second implementation of sysctl.d(5), independent of the package's.
func (h host) applyBootParameters(values map[string]string) error {
	byName := map[string]string{}
	for _, dir := range []string{"usr/lib", "run", "etc"} {
		found, err := filepath.Glob(h.path(dir + "/sysctl.d/*.conf"))
		if err != nil {
			return err
		}
		for _, f := range found {
			byName[filepath.Base(f)] = f
		}
	}
	exact := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		file := byName[name]
		if to, err := os.Readlink(file); err == nil {
			file = filepath.Join(filepath.Dir(file), to)
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(content)) {
			key, value, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "-"), "=")
			key, value = strings.TrimSpace(key), strings.TrimSpace(value)
			if !ok || strings.HasPrefix(key, "#") {
				continue
			}
			if first := strings.IndexAny(key, "./"); first >= 0 && key[first] == '.' {
				key = strings.NewReplacer(".", "/", "/", ".").Replace(key)
			}
			if !strings.Contains(key, "*") {
				exact[key] = value
				continue
			}
			for k := range values {
				if match, _ := filepath.Match(key, k); match {
					values[k] = value
				}
			}
		}
	}
	for key, value := range exact {
		if _, ok := values[key]; ok {
			values[key] = value
		}
	}
	return nil
}

// requireRoot skips a test that cannot run here.
func requireRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("the scenarios run the packages in a chroot, which needs root")
	}
	at := filepath.Join(t.TempDir(), "null")
	if err := unix.Mknod(at, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
		t.Skip("the scenarios need their own /dev/null, which root cannot create on this machine")
	}
}
