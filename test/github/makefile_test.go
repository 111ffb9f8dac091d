// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package github

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestTagsRunNothing: whoever may push a tag chooses its name, and the release's recipes run nothing that stands in it.
func TestTagsRunNothing(t *testing.T) {
	makefile, err := filepath.Abs(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, program := range []string{"bin/go", "bin/gh", "bin/git", "hack/release.sh"} { // which do nothing
		file := filepath.Join(dir, program)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	run := func(target, variable string) bool {
		cmd := exec.Command("make", "-f", makefile, target, variable, "PUSH=registry.example/packages", "COSIGN=true")
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if _, err := os.Stat(filepath.Join(dir, "pwned")); err == nil {
			t.Errorf("make %s %s runs what stands in the name:\n%s", target, variable, out)
			_ = os.Remove(filepath.Join(dir, "pwned"))
		}
		return err == nil
	}
	for variable, targets := range map[string][]string{"VERSION=v1.2.3": {"build", "image", "release", "github-release", "krew-manifest"}, "TAG=tuning/1.2.3": {"sign-package"}} {
		for _, target := range append(targets, "help") {
			if !run(target, variable) || !run(target, variable+"-rc.1") {
				t.Errorf("make %s %s fails", target, variable)
			}
			for _, suffix := range []string{";touch${IFS}pwned", "`touch${IFS}pwned`", "$(touch pwned)", "$(shell touch pwned)", "';touch${IFS}pwned;'", `";touch${IFS}pwned;"`, "|touch\tpwned", " x"} {
				if run(target, variable+suffix) {
					t.Errorf("make %s %q does not fail", target, variable+suffix)
				}
			}
		}
	}
	for _, variable := range []string{"TAG=../../etc/1.2.3", "TAG=tuning/../1.2.3", "TAG=--output=x/1.2.3", "VERSION=--help", "VERSION=v1/../2"} {
		if run("help", variable) {
			t.Errorf("make %s does not fail", variable)
		}
	}
}
