// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fakeHierarchies creates directories that look like control groups of two controllers.
func fakeHierarchies(t *testing.T) Group {
	t.Helper()
	g := Group{name: "cluster/node1"}
	for range 2 {
		g.dirs = append(g.dirs, filepath.Join(t.TempDir(), "cluster", "node1"))
	}
	return g
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A program is in every hierarchy before its first instruction, and keeps its arguments.
func TestCommand(t *testing.T) {
	g := fakeHierarchies(t)
	for _, dir := range g.dirs {
		write(t, filepath.Join(dir, "cgroup.procs"), "")
	}
	argv := g.Command("/bin/sh", "-c", `cat "$@"; echo $$`, "sh", filepath.Join(g.dirs[0], "cgroup.procs"), filepath.Join(g.dirs[1], "cgroup.procs"))
	out, err := exec.Command(argv[0], argv[1:]...).Output()
	if err != nil {
		t.Fatal(err)
	}
	pids := strings.Fields(string(out))
	if len(pids) != 3 || pids[0] != pids[2] || pids[1] != pids[2] {
		t.Errorf("the groups hold and the program is: %v", pids)
	}
	argv = g.Command("true")
	if err := os.RemoveAll(g.dirs[1]); err != nil {
		t.Fatal(err)
	}
	if exec.Command(argv[0], argv[1:]...).Run() == nil {
		t.Error("a program ran outside of its group")
	}
}

// New groups of version 1 inherit the cpuset, groups of version 2 get their parent's controllers.
func TestMake(t *testing.T) {
	g := fakeHierarchies(t)
	one, two := filepath.Dir(filepath.Dir(g.dirs[0])), filepath.Dir(filepath.Dir(g.dirs[1]))
	write(t, filepath.Join(one, "cpuset.cpus"), "0-1")
	write(t, filepath.Join(two, "cgroup.controllers"), "cpu memory")
	if err := g.Create(); err != nil {
		t.Fatal(err)
	}
	if cpus, err := os.ReadFile(filepath.Join(g.dirs[0], "cpuset.cpus")); err != nil || string(cpus) != "0-1" {
		t.Errorf("the group has the processors %q, %v", cpus, err)
	}
	if given, err := os.ReadFile(filepath.Join(two, "cgroup.subtree_control")); err != nil || string(given) != "+memory" { // a file keeps the last of two writes
		t.Errorf("the children were given %q, %v", given, err)
	}
	if err := g.Create(); err != nil {
		t.Errorf("making what is there: %v", err)
	}
	if len(g.Directories()) != 2 {
		t.Errorf("there are %v", g.Directories())
	}
}

// Each process of a group, or of one below it, in any hierarchy is listed once.
func TestProcesses(t *testing.T) {
	g := fakeHierarchies(t)
	write(t, filepath.Join(g.dirs[0], "cgroup.procs"), "7\n5\n")
	write(t, filepath.Join(g.dirs[0], "pods", "one", "cgroup.procs"), "11\n")
	write(t, filepath.Join(g.dirs[1], "cgroup.procs"), "5\n0\n")
	if got := g.Processes(); !slices.Equal(got, []int{5, 7, 11}) {
		t.Errorf("in the group are %v", got)
	}
	if got := (Group{name: "gone", dirs: []string{"/nowhere/gone"}}); len(got.Processes()) != 0 || got.Remove() != nil {
		t.Error("a group that does not exist cannot be removed again")
	}
}
