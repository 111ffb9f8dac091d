// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/skyhook-k8s/skyhook/test/cluster/cgroup"
	"github.com/skyhook-k8s/skyhook/test/cluster/network"
)

// rebooting is the exit status of systemd-nspawn when the host inside asked for a reboot.
const rebooting = 133

// Run boots the node, again after each reboot, and returns when it was shut down or its power was cut. Each boot starts with an
// empty control group and a new network. Run calls started with the process of systemd-nspawn, and with 0 when it has exited.
func (n Node) Run(group cgroup.Group, plug func() (*network.Namespace, error), started func(pid int)) error {
	for {
		if err := errors.Join(group.Create(), group.KillAll()); err != nil {
			return fmt.Errorf("starting node %s: %w", n.Name, err)
		}
		space, err := plug()
		if err != nil {
			return fmt.Errorf("starting node %s: %w", n.Name, err)
		}
		status, err := n.runOnce(group, space, started)
		started(0)
		if err := errors.Join(err, space.Close()); err != nil {
			return fmt.Errorf("running node %s: %w", n.Name, err)
		}
		if status != rebooting {
			return group.KillAll()
		}
	}
}

// runOnce runs the node until it reboots or stops, and returns the exit status of systemd-nspawn.
func (n Node) runOnce(group cgroup.Group, space *network.Namespace, started func(pid int)) (int, error) {
	console, err := os.OpenFile(n.Console(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return 0, fmt.Errorf("opening the console: %w", err)
	}
	defer func() { _ = console.Close() }()
	argv := group.Command(n.nspawnArgs(space)...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = console, console
	cmd.Env = append(os.Environ(), "SYSTEMD_NSPAWN_API_VFS_WRITABLE=network") // net sysctls are the node's own
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("booting: %w", err)
	}
	started(cmd.Process.Pid)
	err = cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	return 0, err
}

func (n Node) nspawnArgs(space *network.Namespace) []string {
	argv := []string{
		"systemd-nspawn", "--quiet", "--keep-unit", "--register=no", "--boot", "--console=pipe",
		"--directory=" + n.root(), "--machine=" + n.Machine, "--hostname=" + n.Name,
		"--capability=all", "--system-call-filter=add_key keyctl bpf request_key perf_event_open",
		"--network-namespace-path=" + space.Path(), "--resolv-conf=off", "--timezone=off", "--link-journal=no",
		"--bind=" + filepath.Join(n.Dir, "containerd") + ":/var/lib/containerd",
		"--bind=" + filepath.Join(n.Dir, "kubelet") + ":/var/lib/kubelet",
		"--bind=/dev/kmsg",
	}
	for _, path := range n.SmallDisks {
		argv = append(argv, "--bind="+n.smallDisk(path)+":"+path)
	}
	for inside, outside := range n.programDirs() {
		argv = append(argv, "--bind-ro="+outside+":"+inside)
	}
	slices.Sort(argv[len(argv)-len(n.programDirs()):])
	return argv
}

// FindLeader returns the node's first process, a child of systemd-nspawn.
func FindLeader(carrier int) (int, error) {
	var leader int
	err := eachProcess("/proc", func(pid int, status []byte) bool {
		parent, inside := statusField(status, "PPid:"), statusField(status, "NSpid:")
		if len(parent) == 1 && parent[0] == strconv.Itoa(carrier) && len(inside) > 1 && inside[len(inside)-1] == "1" {
			leader = pid
		}
		return leader == 0
	})
	if err == nil && leader == 0 {
		err = errors.New("finding the first process of the node: it has none, it is about to boot or to end")
	}
	return leader, err
}

// TranslatePID returns the pid of a node's first process in the process namespace whose /proc is at proc.
func TranslatePID(leader int, proc string) (int, error) {
	namespace, err := os.Stat(fmt.Sprintf("/proc/%d/ns/pid", leader))
	if err != nil {
		return 0, fmt.Errorf("finding the first process of the node: %w", err)
	}
	var outside int
	err = eachProcess(proc, func(pid int, status []byte) bool {
		inside := statusField(status, "NSpid:")
		if len(inside) > 1 && inside[len(inside)-1] == "1" {
			its, err := os.Stat(filepath.Join(proc, strconv.Itoa(pid), "ns", "pid"))
			if err == nil && os.SameFile(namespace, its) {
				outside = pid
			}
		}
		return outside == 0
	})
	if err == nil && outside == 0 {
		err = errors.New("finding the first process of the node: it has just ended")
	}
	return outside, err
}

// eachProcess calls visit for each process until it returns false.
func eachProcess(proc string, visit func(pid int, status []byte) bool) error {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return fmt.Errorf("listing processes: %w", err)
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		status, err := os.ReadFile(filepath.Join(proc, entry.Name(), "status"))
		if err == nil && !visit(pid, status) { // a process that ended meanwhile has no status
			return nil
		}
	}
	return nil
}

func statusField(status []byte, name string) []string {
	for line := range strings.Lines(string(status)) {
		if value, found := strings.CutPrefix(line, name); found {
			return strings.Fields(value)
		}
	}
	return nil
}

// EnterCommand returns the command line that runs argv inside the node with this first process.
func EnterCommand(leader int, argv ...string) []string {
	if len(argv) == 0 {
		argv = []string{"/bin/bash"}
	}
	return append([]string{"nsenter", "--target", strconv.Itoa(leader), "--all", "--root", "--wd", "--"}, argv...)
}
