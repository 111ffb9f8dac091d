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
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// RunTest runs a test in namespaces of its own for processes, mounts, host name and network, so that steps neither see nor
// affect this machine: they get no environment, no terminal and no open file of the caller. self is the command line of this
// program that calls ServeRequest.
func RunTest(ctx context.Context, self []string, o Request, log io.Writer) (Report, error) {
	o.Privileged = os.Geteuid() == 0
	order, err := json.Marshal(o)
	if err != nil {
		return Report{}, err
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	// A writer that is not a file is reached through a pipe, so that no step can open the terminal behind it.
	cmd.Args, cmd.Env, cmd.Stdin, cmd.Stderr = self, []string{}, bytes.NewReader(order), struct{ io.Writer }{log}
	var out bytes.Buffer
	cmd.Stdout = &out
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL,
		Setsid:     true,
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

// Where things are below the root of the namespaces.
const (
	newHostDir      = "/new"
	upgradedHostDir = "/upgraded"
	packageDir      = "/package"
	olderDir        = "/older"
	agentFile       = "/agent"
)

// runInNamespaces brings all that the lifecycles need into one folder, leaves everything else, and runs them.
func (o Request) runInNamespaces() (Report, error) {
	if os.Getpid() != 1 {
		return Report{}, errors.New("this command is only started by package test")
	}
	settings, err := readSettings()
	if err != nil {
		return Report{}, err
	}
	for _, step := range []func() error{closeOnExec, o.mountWork, o.copyPackages, o.copyAgent, o.makeHosts, o.leaveMachine, dropPrivileges} {
		if err := step(); err != nil {
			return Report{}, err
		}
	}
	o.Work, o.Package.Dir = "/", packageDir
	if o.Older != nil {
		o.Older.Dir = olderDir
	}
	return o.runLifecycles(settings)
}

// closeOnExec keeps the files that this process has open, also those of a shell, from the programs that it starts.
func closeOnExec() error {
	open, err := os.ReadDir("/proc/self/fd")
	for _, d := range open {
		if fd, e := strconv.Atoi(d.Name()); e == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return err
}

// mountWork makes the work folder a mount, so that it can become a root.
func (o Request) mountWork() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	// A tmpfs is faster, but the agent refuses to reboot a host whose records would not survive.
	what, kind, flags, data := "tmpfs", "tmpfs", uintptr(unix.MS_NODEV), "mode=755"
	if o.Spec.hasReboot() {
		what, kind, flags, data = o.Work, "", unix.MS_BIND, ""
	}
	if err := unix.Mount(what, o.Work, kind, flags, data); err != nil {
		return fmt.Errorf("making a place for the host: %w", err)
	}
	return nil
}

// copyPackages copies the packages below the work folder.
func (o Request) copyPackages() error {
	root, err := os.OpenRoot(o.Work)
	if err != nil {
		return err
	}
	defer root.Close()
	work := &host{dir: o.Work, root: root}
	err = work.copyPackage(o.Package.Dir, packageDir)
	if o.Older != nil {
		err = errors.Join(err, work.copyPackage(o.Older.Dir, olderDir))
	}
	return err
}

// copyAgent copies the agent and its libraries below the work folder.
func (o Request) copyAgent() error {
	if err := makeMergedFolders(o.Work); err != nil {
		return err
	}
	l := newLibraries()
	if err := l.copyProgram(o.Agent, filepath.Join(o.Work, agentFile)); err != nil {
		return fmt.Errorf("copying the agent: %w", err)
	}
	return l.copyAll(o.Work)
}

// makeHosts makes the files of the hosts below the work folder, and mounts the file systems of each. The root of the namespaces has them too: the agent
// runs there.
func (o Request) makeHosts() error {
	for _, name := range []string{"/", newHostDir, upgradedHostDir} {
		if name == upgradedHostDir && o.Older == nil {
			continue
		}
		dir := filepath.Join(o.Work, name)
		if name != "/" {
			if err := o.makeRootfs(dir); err != nil {
				return fmt.Errorf("making a host: %w", err)
			}
		}
		if err := errors.Join(makeFolders(dir), mountFilesystems(dir)); err != nil {
			return fmt.Errorf("making a host: %w", err)
		}
	}
	return nil
}

// leaveMachine makes the work folder the root of all processes here. Nothing else of the machine stays mounted.
func (o Request) leaveMachine() error {
	if err := unix.Sethostname([]byte("trial")); err != nil {
		return fmt.Errorf("naming the host of the test: %w", err)
	}
	// The old root comes to lie on the new one, and is detached from there: see pivot_root(2).
	for _, step := range []func() error{
		func() error { return unix.Chdir(o.Work) },
		func() error { return unix.PivotRoot(".", ".") },
		func() error { return unix.Unmount(".", unix.MNT_DETACH) },
		func() error { return unix.Chdir("/") },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("leaving the machine's files: %w", err)
		}
	}
	return nil
}

// host is a temporary root file system. It ends with the process, and its mounts with the namespace.
type host struct {
	dir          string
	root         *os.Root // the same directory; writes cannot escape it
	spec         Spec
	settings     map[string]string // kernel settings of this machine
	startedUnits []string          // units that run from the start
	boots        int
}

// makeRootfs makes the root file system of a host.
func (o Request) makeRootfs(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // G301: the root of a host is open
		return err
	}
	switch {
	case o.Root == "":
		return createRootfs(o.Distribution, dir)
	case o.mountOverlay(dir) != nil:
		return copyTree(o.Root, dir)
	}
	return nil
}

// newHost completes a host that makeHosts made, and boots it.
func (o Request) newHost(dir string, settings map[string]string) (*host, error) {
	h := &host{dir: dir, spec: o.Spec, settings: settings}
	var err error
	if h.root, err = os.OpenRoot(dir); err != nil {
		return nil, fmt.Errorf("making a host: %w", err)
	}
	for _, step := range []func() error{h.installSystemctl, h.addServices, h.writeHostFiles, h.simulateBoot} {
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
	return unix.Mount("overlay", dir, "overlay", unix.MS_NODEV, "lowerdir="+o.Root+",upperdir="+upper+",workdir="+work)
}

// makeFolders creates the directories of every host.
func makeFolders(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, name := range []string{"dev", "etc", "proc", "root", "run", "sys", "tmp", "usr/bin", "usr/sbin", "var/lib", "var/log", "var/tmp"} {
		if err := root.MkdirAll(name, 0o755); err != nil {
			return err
		}
		top, _, _ := strings.Cut(name, "/")
		if st, err := root.Lstat(top); err != nil || !st.IsDir() {
			return errors.Join(fmt.Errorf("/%s is not a folder", top), err)
		}
	}
	return errors.Join(root.Chmod("tmp", 0o777|fs.ModeSticky), root.Chmod("var/tmp", 0o777|fs.ModeSticky))
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
