// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestTry does what `make try` proposes: it looks at the page, sees the canaries finish, approves the others, and asks about the broken node.
func TestTry(t *testing.T) {
	if testing.Short() {
		t.Skip("starts an API server and the operator")
	}
	path := filepath.Join(t.TempDir(), "scale")
	if said, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput(); err != nil {
		t.Fatalf("building: %v\n%s", err, said)
	}
	program := exec.Command(path, "-try")
	program.Dir, program.Stderr = "../..", os.Stderr
	out, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = program.Process.Signal(os.Interrupt)
		if err := program.Wait(); err != nil {
			t.Errorf("interrupted it ends with %v", err)
		}
	}()
	var dir, broken, page string
	for lines := bufio.NewScanner(out); page == "" && lines.Scan(); {
		for pattern, into := range map[string]*string{`PATH=(.*):\$PATH`: &dir, `why (ip-\S+)`: &broken, `^(http://\S+)`: &page} {
			if found := regexp.MustCompile(pattern).FindStringSubmatch(lines.Text()); found != nil {
				*into = found[1]
			}
		}
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	answer, err := http.Get(page)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("the page %q: %v, %v", page, answer, err)
	}
	_ = answer.Body.Close()
	skyhook := func(args ...string) string {
		said, err := exec.CommandContext(t.Context(), dir+"/kubectl-skyhook", append(args, "--kubeconfig", dir+"/kubeconfig")...).CombinedOutput()
		if err != nil {
			t.Errorf("kubectl skyhook %s: %v", strings.Join(args, " "), err)
		}
		return string(said)
	}
	await := func(want string, args ...string) {
		t.Helper()
		for begin, said := time.Now(), ""; !strings.Contains(said, want); time.Sleep(time.Second) {
			if said = skyhook(args...); time.Since(begin) > 4*time.Minute {
				t.Fatalf("kubectl skyhook %s does not say %q:\n%s", strings.Join(args, " "), want, said)
			}
		}
	}
	await("3 of 50 complete", "status", "tuning")
	await("a person must approve compartment default", "why", "tuning")
	skyhook("approve", "tuning", "default")
	await("Read-only file system", "why", broken)
}
