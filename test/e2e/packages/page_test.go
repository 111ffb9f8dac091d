// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package packages_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/test/e2e/suite"
)

// authorLimit is how long an author waits from an empty folder to a service restarted on two nodes.
const authorLimit = 4 * time.Minute

var (
	fencedBlock = regexp.MustCompile("(?ms)^( *)```(sh|yaml)\n(.*?)^ *```$")
	fileOfBlock = regexp.MustCompile("write this to `(\\S+\\.yaml)`")
)

// author follows a page in a folder of its own, with the tools that make demo leaves in PATH.
type author struct {
	*testing.T
	dir, tools string
}

// newAuthor builds the tools as make demo does.
func newAuthor(t *testing.T) author {
	t.Helper()
	a := author{T: t, dir: t.TempDir(), tools: t.TempDir()}
	for _, build := range [][]string{
		{"go", "build", "-o", a.tools + "/", "./cmd/kubectl-skyhook", "./cmd/skyhook-agent"},
		{"go", "run", "./hack/mkimage", "--only", "shell", "--out", filepath.Join(a.tools, "base")},
		{"mv", filepath.Join(a.tools, "base", "shell.tar"), filepath.Join(a.tools, "skyhook-shell.tar")},
	} {
		cmd := exec.Command(build[0], build[1:]...)
		cmd.Dir = suite.Root()
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", build, err, out)
		}
	}
	return a
}

// run runs the commands of a block, and answers yes to their questions.
func (a author) run(script string) {
	a.Helper()
	begin := time.Now()
	cmd := cluster.Command("bash", "-euo", "pipefail", "-c", script)
	cmd.Dir, cmd.Stdin = a.dir, strings.NewReader("yes\n")
	cmd.Env = append(cmd.Env, "PATH="+a.tools+":"+filepath.Dir(cluster.KubectlCommand().Path)+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	a.Logf("%s: %s\n%s", strings.TrimSpace(script), time.Since(begin).Round(time.Second), out)
	if err != nil {
		a.Fatal(err)
	}
}

// TestPageOfPackage follows docs/tasks/package.md word for word: each command and manifest as it stands, with the names of two nodes and
// of a registry as the page asks. The author's service restarts on both nodes, in time.
func TestPageOfPackage(t *testing.T) {
	nodes := cluster.ShareInterruptibleNodes(t, 2)
	registry, err := cluster.LocalCluster(t, "a registry that both nodes and this machine know as localhost").Registry(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(suite.Root(), "docs", "tasks", "package.md"))
	if err != nil {
		t.Fatal(err)
	}
	names := strings.NewReplacer("registry.example.com", registry, "worker-1", nodes[0], "worker-2", nodes[1])
	a := newAuthor(t)
	cluster.Label(t, "skyhook.nvidia.com/test-node=none", nodes...) // removed at the end
	cluster.Kubectl(t, "label", "node", nodes[0], nodes[1], "skyhook.nvidia.com/test-node-")
	t.Cleanup(func() {
		_, _ = cluster.TryKubectl("", "delete", "skyhook", "motd", "--wait=false", "--ignore-not-found")
	})
	invocations := func() (ids [2]string) {
		for i, n := range nodes {
			ids[i] = cluster.Exec(t, n, "systemctl show --property InvocationID --value systemd-journald")
		}
		return ids
	}

	before, begin, restarted := invocations(), time.Now(), false
	for _, block := range fencedBlock.FindAllSubmatchIndex(page, -1) {
		indent, kind, text := string(page[block[2]:block[3]]), string(page[block[4]:block[5]]), string(page[block[6]:block[7]])
		text = names.Replace(strings.TrimPrefix(strings.ReplaceAll("\n"+text, "\n"+indent, "\n"), "\n"))
		if kind == "yaml" {
			files := fileOfBlock.FindAllSubmatch(page[:block[0]], -1)
			if err := os.WriteFile(filepath.Join(a.dir, string(files[len(files)-1][1])), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		a.run(text)
		if after := invocations(); !restarted && after[0] != before[0] && after[1] != before[1] {
			restarted = true
			if took := time.Since(begin); took > authorLimit {
				t.Errorf("the service restarted on both nodes after %s, and at most %s are promised", took, authorLimit)
			}
		}
	}
	if !restarted {
		t.Errorf("no command of the page restarted the service on both nodes: its invocations were %v and are %v", before, invocations())
	}
	for _, n := range nodes {
		if got := cluster.Exec(t, n, "cat /opt/motd/settings.conf"); got != "greeting = hello" {
			t.Errorf("/opt/motd/settings.conf on %s has %q", n, got)
		}
	}
	cluster.RemoveSkyhook(t, "motd")
	for _, n := range nodes {
		cluster.Exec(t, n, "test ! -e /opt/motd")
	}
}
