// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/skyhook-k8s/skyhook/test/cluster/cgroup"
)

// traces lists everything on this machine that tells of the cluster, in the places where a cluster leaves something:
// processes, mounts, network interfaces, named network namespaces, control groups and files.
func traces(t *testing.T, name string) []string {
	t.Helper()
	p, err := locatePaths(name)
	if err != nil {
		t.Fatal(err)
	}
	group, err := cgroup.Open(p.group())
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, pid := range group.Processes() {
		found = append(found, fmt.Sprintf("process %d in the control group", pid))
	}
	for _, dir := range group.Directories() {
		found = append(found, "control group "+dir)
	}
	found = append(found, processesOf(t, p)...)
	found = append(found, mountsOf(t, p)...)
	found = append(found, networkOf(t, p)...)
	patterns := []string{p.dir, p.socket(), p.lockFile(), "/run/netns/*" + name + "*", "/run/systemd/nspawn/*/*" + p.machine(1) + "*", "/run/systemd/nspawn/*/*" + p.machine(2) + "*", "/tmp/nspawn-root-*"}
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			found = append(found, "file "+file)
		}
	}
	return found
}

// processesOf finds processes by what they were started with, wherever they have moved since.
func processesOf(t *testing.T, p clusterPaths) []string {
	t.Helper()
	var found []string
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range lines {
		line, _ := os.ReadFile(file)
		environment, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "environ"))
		if bytes.Contains(line, []byte(p.machine(1)[:len(p.machine(1))-1])) || bytes.Contains(environment, []byte(supervisorVariable+"="+p.name+"\x00")) {
			found = append(found, "process "+filepath.Base(filepath.Dir(file))+": "+string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
		}
	}
	return found
}

func mountsOf(t *testing.T, p clusterPaths) []string {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, p.dir) {
			found = append(found, "mount "+strings.TrimSpace(line))
		}
	}
	return found
}

// ours matches the names of interfaces that a cluster makes, none of which may be seen outside of it.
var ours = regexp.MustCompile(`^\d+: (nodes|node\d+|cni0)(@\S+)?:`)

func networkOf(t *testing.T, p clusterPaths) []string {
	t.Helper()
	links, err := exec.Command("ip", "-o", "link").Output()
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for line := range strings.Lines(string(links)) {
		if ours.MatchString(line) {
			found = append(found, "interface "+strings.TrimSpace(line)+" while "+p.name)
		}
	}
	return found
}

// noTraces fails the test with what is left of the cluster.
func noTraces(t *testing.T, name string) {
	t.Helper()
	if left := traces(t, name); len(left) > 0 {
		t.Errorf("cluster %s left:\n\t%s", name, strings.Join(left, "\n\t"))
	}
}
