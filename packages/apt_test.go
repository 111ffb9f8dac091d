// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package packages

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestRealApt runs os-update with the apt and dpkg of Debian roots: testdata/apt/*.sh are scenarios in namespaces of their own, with
// repositories, processes of services and the agent, which runs the preflight with the rights of its pod.
func TestRealApt(t *testing.T) {
	requireRoot(t)
	if testing.Short() {
		t.Skip("short: the first run downloads a Debian root")
	}
	if _, err := exec.LookPath("mmdebstrap"); err != nil {
		t.Skip("mmdebstrap is not installed: apt-get install mmdebstrap")
	}
	scenarios, err := filepath.Glob("testdata/apt/*.sh")
	if err != nil || len(scenarios) < 3 {
		t.Fatal(scenarios, err)
	}
	program := filepath.Join(t.TempDir(), "skyhook-agent")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../cmd/skyhook-agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the agent: %v\n%s", err, out)
	}
	for _, release := range []string{"bookworm", "trixie"} {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			root := filepath.Join(t.TempDir(), "root")
			if out, err := exec.CommandContext(t.Context(), "mmdebstrap", "--variant=apt", "--include=mount", "--mode=root", release, root).CombinedOutput(); err != nil {
				t.Skipf("no Debian root can be made, is a mirror in reach? %v\n%s", err, out)
			}
			for _, file := range scenarios {
				name := strings.TrimSuffix(filepath.Base(file), ".sh")
				if name == "run" || name == "host" {
					continue
				}
				t.Run(name, func(t *testing.T) {
					cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--pid", "--fork", "--kill-child",
						"bash", "testdata/apt/run.sh", root, t.TempDir(), "os-update", name, program)
					if out, err := cmd.CombinedOutput(); err != nil {
						t.Errorf("%v\n%s", err, out)
					}
				})
			}
		})
	}
}
