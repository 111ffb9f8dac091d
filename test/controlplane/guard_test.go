// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// ending names the variable that turns this test binary into a victim: it says how the victim ends.
const ending = "SKYHOOK_CONTROLPLANE_TEST_ENDING"

// TestVictim is the inside of TestNothingIsLeft.
func TestVictim(t *testing.T) {
	how := os.Getenv(ending)
	if how == "" {
		t.Skip("runs only as the victim of TestNothingIsLeft")
	}
	fmt.Printf("\nvictim %s\n", plane.guard.dir)
	if how == "panic" {
		panic("on purpose")
	}
	select {} // until killed
}

// Whatever ends a test binary, its control plane ends too.
func TestNothingIsLeft(t *testing.T) {
	if os.Getenv(ending) != "" {
		t.Skip("a victim tests nothing else")
	}
	for _, c := range []struct {
		how  string
		kill syscall.Signal
	}{
		{"panic", 0},
		{"interrupt", syscall.SIGINT},
		{"kill", syscall.SIGKILL},
	} {
		t.Run(c.how, func(t *testing.T) {
			t.Parallel()
			victim := exec.Command(os.Args[0], "-test.run=^TestVictim$")
			victim.Env = append(os.Environ(), ending+"="+c.how)
			out, err := victim.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := victim.Start(); err != nil {
				t.Fatal(err)
			}
			dir := victimDirectory(t, out)
			if c.kill != 0 {
				if len(marked(dir)) < 2 {
					t.Errorf("the victim runs %v; etcd and kube-apiserver were expected", marked(dir))
				}
				if err := victim.Process.Signal(c.kill); err != nil {
					t.Fatal(err)
				}
			}
			if err := victim.Wait(); err == nil {
				t.Error("the victim ended well; it was to be killed")
			}
			eventually(t, "its programs end", func() bool { return len(marked(dir)) == 0 })
			eventually(t, "its directory is removed", func() bool { _, err := os.Stat(dir); return os.IsNotExist(err) })
		})
	}
}

func victimDirectory(t *testing.T, out interface{ Read([]byte) (int, error) }) string {
	t.Helper()
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if dir, found := strings.CutPrefix(lines.Text(), "victim "); found {
			return dir
		}
	}
	t.Fatalf("the victim did not start: %v", lines.Err())
	return ""
}

// marked lists the programs of the control plane in dir.
func marked(dir string) []string {
	var found []string
	files, _ := filepath.Glob("/proc/[0-9]*/environ") // the pattern is well formed
	for _, file := range files {
		environment, _ := os.ReadFile(file) // a process that is gone meanwhile has none
		if bytes.Contains(environment, []byte(markVariable+"="+dir+"\x00")) {
			found = append(found, filepath.Base(filepath.Dir(file)))
		}
	}
	return found
}
