// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package packagecli

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// TestMakeBuildPutsTheAgentBesideThePlugin builds the agent as make build does and looks for it as package test does.
func TestMakeBuildPutsTheAgentBesideThePlugin(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	recipe := regexp.MustCompile(`(?m)^build:.*\n\t.*`).Find(makefile)
	source := regexp.MustCompile(`\./cmd/\S*agent\S*`).Find(recipe)
	if source == nil {
		t.Fatalf("make build does not name the agent: %s", recipe)
	}
	bin := t.TempDir()
	build := exec.Command("go", "build", "-o", bin+"/", string(source))
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", source, err, out)
	}
	if _, err := exec.LookPath(filepath.Join(bin, agentProgram)); err != nil {
		t.Errorf("make build leaves no agent beside the plugin: %v", err)
	}
}
