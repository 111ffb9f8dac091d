// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package cgroup puts the programs of a test cluster into control groups of their own, on machines with one hierarchy
// (version 2), with one per controller (version 1), and with both.
package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Group is a control group in every hierarchy of the machine.
type Group struct {
	name string   // below the root of each hierarchy
	dirs []string // one per hierarchy
}

// Open returns a group that may not exist yet; see Create.
func Open(name string) (Group, error) {
	roots, err := hierarchyRoots()
	if err != nil {
		return Group{}, err
	}
	g := Group{name: name}
	for _, root := range roots {
		g.dirs = append(g.dirs, filepath.Join(root, name))
	}
	return g, nil
}

// hierarchyRoots lists the mount points of the hierarchies.
func hierarchyRoots() ([]string, error) {
	f, err := os.Open("/proc/self/mounts")
	if err != nil {
		return nil, fmt.Errorf("finding the control groups: %w", err)
	}
	defer func() { _ = f.Close() }()
	var found []string
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) > 2 && (fields[2] == "cgroup" || fields[2] == "cgroup2") && !slices.Contains(found, fields[1]) {
			found = append(found, fields[1])
		}
	}
	if len(found) == 0 {
		return nil, errors.New("finding the control groups: none are mounted; mount them at /sys/fs/cgroup")
	}
	return found, nil
}

// Create creates the group and its parents, with all available controllers.
func (g Group) Create() error {
	for _, dir := range g.dirs {
		root := strings.TrimSuffix(dir, "/"+g.name)
		at := root
		for _, part := range strings.Split(g.name, "/") {
			delegateControllers(at)
			at = filepath.Join(at, part)
			if err := os.Mkdir(at, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("making the control group %s: %w", at, err)
			}
			inheritCPUSet(at)
		}
	}
	return nil
}

// delegateControllers enables the controllers of a version 2 group for its children. It ignores controllers that cannot be enabled
// because the group itself has processes: the kubelet reports those that it misses.
func delegateControllers(dir string) {
	controllers, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return // version 1
	}
	for _, controller := range strings.Fields(string(controllers)) {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0o644)
	}
}

// inheritCPUSet copies the CPUs and memory nodes of the parent to a version 1 cpuset, which is created empty.
func inheritCPUSet(dir string) {
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		if value, err := os.ReadFile(filepath.Join(filepath.Dir(dir), name)); err == nil {
			_ = os.WriteFile(filepath.Join(dir, name), value, 0o644) // version 2 takes the parent's anyway
		}
	}
}

// Command wraps argv in a shell that first moves itself into the group.
func (g Group) Command(argv ...string) []string {
	const enter = `while [ "$1" != -- ]; do echo $$ >"$1/cgroup.procs" || exit 1; shift; done; shift; exec "$@"`
	command := append([]string{"/bin/sh", "-c", enter, "sh"}, g.dirs...)
	return append(append(command, "--"), argv...)
}

// Enter moves this process into the group.
func (g Group) Enter() error {
	for _, dir := range g.dirs {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
			return fmt.Errorf("entering the control group %s: %w", dir, err)
		}
	}
	return nil
}

// Processes lists the processes of the group and of the groups below it.
func (g Group) Processes() []int {
	seen := map[int]bool{}
	for _, dir := range g.dirs {
		_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Base(path) != "cgroup.procs" {
				return nil // a group that vanishes meanwhile is empty
			}
			list, _ := os.ReadFile(path)
			for _, field := range strings.Fields(string(list)) {
				if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
					seen[pid] = true
				}
			}
			return nil
		})
	}
	pids := make([]int, 0, len(seen))
	for pid := range seen {
		pids = append(pids, pid)
	}
	slices.Sort(pids)
	return pids
}

// KillAll kills all processes of the group and below it, and removes the groups below it.
func (g Group) KillAll() error {
	deadline := time.Now().Add(20 * time.Second)
	for {
		pids := slices.DeleteFunc(g.Processes(), func(pid int) bool { return pid == os.Getpid() })
		for _, pid := range pids {
			_ = unix.Kill(pid, syscall.SIGKILL)
		}
		if len(pids) == 0 && g.removeChildren() {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("emptying the control group %s: processes %v do not end", g.name, pids)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// removeChildren removes the groups below this one, the deepest first.
func (g Group) removeChildren() bool {
	done := true
	for _, dir := range g.dirs {
		var below []string
		_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() && path != dir {
				below = append(below, path)
			}
			return nil
		})
		for _, path := range slices.Backward(below) {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				done = false
			}
		}
	}
	return done
}

// Remove kills all processes of the group, and removes it.
func (g Group) Remove() error {
	if err := g.KillAll(); err != nil {
		return err
	}
	for _, dir := range g.dirs {
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing the control group: %w", err)
		}
	}
	return nil
}

// Directories lists the existing directories of the group.
func (g Group) Directories() []string {
	return slices.DeleteFunc(slices.Clone(g.dirs), func(dir string) bool {
		_, err := os.Stat(dir)
		return err != nil
	})
}
