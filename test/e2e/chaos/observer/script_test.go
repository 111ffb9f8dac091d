// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package observer

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestScriptsOnFullDisk: both scripts, run with a mountpoint that finds a full disk, tell only a part, which is not taken for a host
// without files; otherwise what they tell is whole.
func TestScriptsOnFullDisk(t *testing.T) {
	for _, c := range []struct {
		mountpoint string
		isWhole    bool
	}{{"exit 0", false}, {"exit 1", true}} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "mountpoint"), []byte("#!/bin/sh\n"+c.mountpoint+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		run := func(script string) string {
			cmd := exec.Command("bash", "-c", script)
			cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
			out, err := cmd.Output()
			if err != nil && c.isWhole {
				t.Errorf("the script ends with %v", err)
			}
			return string(out)
		}
		if _, err := ParseHost(run(HostScript)); (err == nil) != c.isWhole {
			t.Errorf("mountpoint %s: the host was read with %v", c.mountpoint, err)
		}
		if _, err := ParseTree(run(strings.ReplaceAll(TreeScript, treeDirs, dir))); (err == nil) != c.isWhole {
			t.Errorf("mountpoint %s: the tree was read with %v", c.mountpoint, err)
		}
	}
}
