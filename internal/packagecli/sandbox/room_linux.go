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

// Try plays an order in a room: processes, mounts, host name and network of its own, so that nothing a step does is seen
// outside. self is the command line of this very program that ends in Serve.
func Try(ctx context.Context, self []string, o Order, log io.Writer) (Report, error) {
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
	// The kernel ends the room when the thread that made it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = cmd.Start()
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EINVAL) {
		return Report{}, fmt.Errorf("making a room for the trial: %w; it needs root, or user namespaces for everybody (sysctl kernel.unprivileged_userns_clone=1)", err)
	}
	if err == nil {
		err = cmd.Wait()
	}
	if ctx.Err() != nil {
		return Report{}, fmt.Errorf("the trial was ended: %w", ctx.Err())
	}
	if err != nil {
		return Report{}, fmt.Errorf("the trial did not come to an end: %w", err)
	}
	var answer struct {
		Report Report
		Error  string
	}
	if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
		return Report{}, fmt.Errorf("reading the report of the trial: %w", err)
	}
	if answer.Error != "" {
		return Report{}, errors.New(answer.Error)
	}
	return answer.Report, nil
}

// Serve is the inside of the room: it reads an order and writes the report.
func Serve(in io.Reader, out io.Writer) error {
	// Capabilities are dropped and programs started on this thread only.
	runtime.LockOSThread()
	var o Order
	if err := json.NewDecoder(in).Decode(&o); err != nil {
		return fmt.Errorf("reading the order: %w", err)
	}
	answer := map[string]any{}
	report, err := o.play()
	if err != nil {
		answer["Error"] = err.Error()
	}
	answer["Report"] = report
	return json.NewEncoder(out).Encode(answer)
}

// play makes the room and takes the package through its life.
func (o Order) play() (Report, error) {
	if os.Getpid() != 1 {
		return Report{}, errors.New("this is no command for people: it is the inside of package test")
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return Report{}, fmt.Errorf("making mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return Report{}, fmt.Errorf("mounting /proc for the processes of the trial: %w", err)
	}
	// In memory all is faster, but the agent refuses to reboot a host that would forget it.
	if !o.Spec.reboots() {
		if err := unix.Mount("tmpfs", o.Work, "tmpfs", unix.MS_NODEV, "mode=755"); err != nil {
			return Report{}, fmt.Errorf("making a place in memory for the host: %w", err)
		}
	}
	if err := unix.Sethostname([]byte("trial")); err != nil {
		return Report{}, fmt.Errorf("naming the host of the trial: %w", err)
	}
	if err := disarm(); err != nil {
		return Report{}, err
	}
	return o.journeys()
}

// disarm gives up what could reach the machine itself from inside: its kernel, its clock, its devices.
func disarm() error {
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

// A host is one throw-away root file system.
type host struct {
	dir      string
	root     *os.Root // the same; nothing written through it leaves it
	spec     Spec
	settings map[string]string // of the kernel, as found
	base     []string          // services that run from the start
	boots    int
}

// newHost makes the host in an empty folder and mounts what belongs to a running one.
func (o Order) newHost(dir string, settings map[string]string) (*host, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // G301: the root of a host is open
		return nil, fmt.Errorf("making a host: %w", err)
	}
	var err error
	switch {
	case o.Root == "":
		err = imitate(o.Like, dir)
	case o.layOver(dir) != nil:
		err = copyTree(o.Root, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("making a host: %w", err)
	}
	h := &host{dir: dir, spec: o.Spec, settings: settings}
	if h.root, err = os.OpenRoot(dir); err != nil {
		return nil, fmt.Errorf("making a host: %w", err)
	}
	for _, step := range []func() error{h.folders, h.mounts, h.stubs, h.services, h.files, h.boot} {
		if err := step(); err != nil {
			return nil, fmt.Errorf("making a host: %w", err)
		}
	}
	return h, nil
}

// layOver mounts the root file system with a layer over it that takes all changes: as good as a copy, and done at once.
// It works for root only: to others the files below would belong to nobody.
func (o Order) layOver(dir string) error {
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

// folders makes what every host has.
func (h *host) folders() error {
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

// files puts the files of the spec in place.
func (h *host) files() error {
	for name, content := range h.spec.Host {
		if err := h.write(name, content, 0o644); err != nil {
			return fmt.Errorf("host file %s: %w", name, err)
		}
	}
	return nil
}

// write writes a file of the host, as the host names it.
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

// close lets go of the host. Its mounts go with the room.
func (h *host) close() error { return h.root.Close() }
