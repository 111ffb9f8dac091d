// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package github

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestToolchain checks that every module names the same Go to build with, which setup-go installs: without one a release is built with the
// oldest Go that the module allows, with the faults of its standard library.
func TestToolchain(t *testing.T) {
	out, err := exec.Command("git", "-C", root, "ls-files", "*go.mod").Output()
	if err != nil {
		t.Fatal(err)
	}
	line, names := regexp.MustCompile(`(?m)^toolchain (go1\.\d+\.\d+)$`), map[string][]string{}
	for _, file := range strings.Fields(string(out)) {
		mod, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		name := string(line.Find(mod))
		names[name] = append(names[name], file)
	}
	if len(names) != 1 || names[""] != nil {
		t.Errorf("modules do not name the same toolchain: %v", names)
	}
}
