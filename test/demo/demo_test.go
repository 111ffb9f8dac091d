// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package demo_test runs make demo with fakes of the programs that it calls.
package demo_test

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// programs are those that testdata/fake.sh stands in for.
var programs = []string{"go", "kind", "docker", "kubectl", "apt-get", "id", "uname", "mmdebstrap", "systemd-nspawn", "busybox", "ip", "iptables"}

// TestDemo runs the scripts. Each has a tree with the demo, and the state of a machine in files: what exists there is true.
func TestDemo(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the demo's bash is that of Linux")
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			at := func(name ...string) string { return filepath.Join(append([]string{env.WorkDir}, name...)...) }
			for _, dir := range []string{"bin", "state", "tree/test/demo", "tree/config/default", "tree/examples"} {
				if err := os.MkdirAll(at(dir), 0o755); err != nil {
					return err
				}
			}
			for from, to := range map[string]string{
				"demo.sh": "tree/test/demo/demo.sh", "testdata/fake.sh": "bin/fake",
				"../../config/default/install.yaml": "tree/config/default/install.yaml", "../../examples/simple.yaml": "tree/examples/simple.yaml",
			} {
				content, err := os.ReadFile(from)
				if err != nil {
					return err
				}
				if err := os.WriteFile(at(to), content, 0o755); err != nil {
					return err
				}
			}
			for _, name := range programs {
				if err := os.Symlink("fake", at("bin", name)); err != nil {
					return err
				}
			}
			env.Setenv("PATH", at("bin")+":"+env.Getenv("PATH"))
			env.Setenv("FAKE", at("bin/fake"))
			env.Setenv("STATE", at("state"))
			env.Setenv("CALLS", at("calls"))
			env.Setenv("HOME", env.WorkDir)
			return nil
		},
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	})
}
