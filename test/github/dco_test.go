// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package github

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestDCO checks hack/dco.sh on commits with and without the line of their author.
func TestDCO(t *testing.T) {
	script, err := filepath.Abs(filepath.Join(root, "hack", "dco.sh"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	runIn(t, dir, "git", "init", "-q", "-b", "main")
	commit := func(message string) {
		runIn(t, dir, "git", "-c", "user.name=Ada", "-c", "user.email=ada@example.com", "commit", "-q", "--allow-empty", "-m", message)
	}
	commit("before the rule")
	runIn(t, dir, "git", "branch", "base")
	commit("signed\n\nSigned-off-by: Ada <ada@example.com>")

	cmd := exec.Command(script, "base")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("a signed commit: %v\n%s", err, out)
	}

	commit("unsigned")
	commit("of somebody else\n\nSigned-off-by: Bob <bob@example.com>")
	cmd = exec.Command(script, "base")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	said := string(out)
	if err == nil || strings.Count(said, "Signed-off-by: Ada <ada@example.com>") != 2 || !strings.Contains(said, "git rebase --signoff base") || strings.Contains(said, " signed:") {
		t.Errorf("two commits without a line: %v\n%s", err, said)
	}
}

func runIn(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}
