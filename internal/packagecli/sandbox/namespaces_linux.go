// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// RunTest runs a test in namespaces of its own for processes, mounts, host name and network, so that steps do not affect
// this machine. self is the command line of this program that calls ServeRequest.
func RunTest(ctx context.Context, self []string, o Request, log io.Writer) (Report, error) {
	o.Privileged = os.Geteuid() == 0
	order, err := json.Marshal(o)
	if err != nil {
		return Report{}, err
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args, cmd.Stdin, cmd.Stderr = self, bytes.NewReader(order), log
	var out bytes.Buffer
	cmd.Stdout = &out
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL,
	}
	if !o.Network {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWNET
	}
	if !o.Privileged {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	// Pdeathsig refers to the thread that started the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = cmd.Start()
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EINVAL) {
		return Report{}, fmt.Errorf("creating namespaces for the test: %w; it needs root, or unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1)", err)
	}
	if err == nil {
		err = cmd.Wait()
	}
	if ctx.Err() != nil {
		return Report{}, fmt.Errorf("the test was cancelled: %w", ctx.Err())
	}
	if err != nil {
		return Report{}, fmt.Errorf("the test did not finish: %w", err)
	}
	var answer struct {
		Report Report
		Error  string
	}
	if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
		return Report{}, fmt.Errorf("reading the report of the test: %w", err)
	}
	if answer.Error != "" {
		return Report{}, errors.New(answer.Error)
	}
	return answer.Report, nil
}

// ServeRequest runs inside the namespaces: it reads a request and writes the report.
func ServeRequest(in io.Reader, out io.Writer) error {
	// Capabilities are dropped for this thread only, so all programs are started from it.
	runtime.LockOSThread()
	var o Request
	if err := json.NewDecoder(in).Decode(&o); err != nil {
		return fmt.Errorf("reading the order: %w", err)
	}
	answer := map[string]any{}
	report, err := o.runInNamespaces()
	if err != nil {
		answer["Error"] = err.Error()
	}
	answer["Report"] = report
	return json.NewEncoder(out).Encode(answer)
}

// runInNamespaces prepares the namespaces and runs all lifecycles.
func (o Request) runInNamespaces() (Report, error) {
	if os.Getpid() != 1 {
		return Report{}, errors.New("this command is only started by package test")
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return Report{}, fmt.Errorf("making mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return Report{}, fmt.Errorf("mounting /proc for the processes of the test: %w", err)
	}
	// A tmpfs is faster, but the agent refuses to reboot a host whose records would not survive.
	if !o.Spec.hasReboot() {
		if err := unix.Mount("tmpfs", o.Work, "tmpfs", unix.MS_NODEV, "mode=755"); err != nil {
			return Report{}, fmt.Errorf("making a place in memory for the host: %w", err)
		}
	}
	if err := unix.Sethostname([]byte("trial")); err != nil {
		return Report{}, fmt.Errorf("naming the host of the test: %w", err)
	}
	if err := dropCapabilities(); err != nil {
		return Report{}, err
	}
	return o.runLifecycles()
}

// dropCapabilities drops the capabilities that could affect the machine's kernel, clock and devices.
func dropCapabilities() error {
	for _, c := range []uintptr{
		unix.CAP_SYS_MODULE, unix.CAP_SYS_RAWIO, unix.CAP_SYS_BOOT, unix.CAP_SYS_TIME, unix.CAP_SYSLOG, unix.CAP_MAC_ADMIN,
		unix.CAP_MAC_OVERRIDE, unix.CAP_AUDIT_CONTROL, unix.CAP_WAKE_ALARM, unix.CAP_MKNOD,
	} {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("giving up capability %d: %w", c, err)
		}
	}
	return nil
}

// host is a temporary root file system.
type host struct {
	dir          string
	root         *os.Root // the same directory; writes cannot escape it
	spec         Spec
	settings     map[string]string // kernel settings of this machine
	startedUnits []string          // units that run from the start
	boots        int
}

// newHost creates the host in an empty directory and mounts the file systems of a running host.
func (o Request) newHost(dir string, settings map[string]string) (*host, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // G301: the root of a host is open
		return nil, fmt.Errorf("making a host: %w", err)
	}
	var err error
	switch {
	case o.Root == "":
		err = createRootfs(o.Distribution, dir)
	case o.mountOverlay(dir) != nil:
		err = copyTree(o.Root, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("making a host: %w", err)
	}
	h := &host{dir: dir, spec: o.Spec, settings: settings}
	if h.root, err = os.OpenRoot(dir); err != nil {
		return nil, fmt.Errorf("making a host: %w", err)
	}
	for _, step := range []func() error{h.makeFolders, h.mountFilesystems, h.installSystemctl, h.addServices, h.writeHostFiles, h.simulateBoot} {
		if err := step(); err != nil {
			return nil, fmt.Errorf("making a host: %w", err)
		}
	}
	return h, nil
}

// mountOverlay mounts the root file system below an overlay that takes all changes, which is faster than a copy.
// It works for root only: in a user namespace the files would have no owner.
func (o Request) mountOverlay(dir string) error {
	upper, work := dir+".upper", dir+".work"
	switch {
	case !o.Privileged:
		return errors.New("only root can")
	case strings.ContainsAny(o.Root+dir, `:,\`):
		return errors.New("the names of the folders cannot be given to the kernel")
	}
	st, err := os.Stat(o.Root)
	if err != nil {
		return err
	}
	for _, d := range []string{upper, work} {
		if err := os.Mkdir(d, st.Mode().Perm()); err != nil {
			return err
		}
	}
	return unix.Mount("overlay", dir, "overlay", 0, "lowerdir="+o.Root+",upperdir="+upper+",workdir="+work)
}

// makeFolders creates the directories of every host.
func (h *host) makeFolders() error {
	for _, dir := range []string{"dev", "etc", "proc", "root", "run", "sys", "tmp", "usr/bin", "usr/sbin", "var/lib", "var/log", "var/tmp"} {
		if err := h.root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		top, _, _ := strings.Cut(dir, "/")
		if st, err := h.root.Lstat(top); err != nil || !st.IsDir() {
			return errors.Join(fmt.Errorf("/%s is not a folder", top), err)
		}
	}
	return errors.Join(h.root.Chmod("tmp", 0o777|fs.ModeSticky), h.root.Chmod("var/tmp", 0o777|fs.ModeSticky))
}

// writeHostFiles writes the files of the spec.
func (h *host) writeHostFiles() error {
	for name, content := range h.spec.Host {
		if err := h.write(name, content, 0o644); err != nil {
			return fmt.Errorf("host file %s: %w", name, err)
		}
	}
	return nil
}

// write writes a file by its absolute path on the host.
func (h *host) write(name, content string, mode fs.FileMode) error {
	name = strings.TrimPrefix(name, "/")
	if err := h.root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	if err := h.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := h.root.WriteFile(name, []byte(content), mode); err != nil {
		return err
	}
	return h.root.Chmod(name, mode)
}

// close closes the root. The mounts disappear with the mount namespace.
func (h *host) close() error { return h.root.Close() }
