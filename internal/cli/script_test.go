// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

var update = flag.Bool("update", false, "write what the commands print into the scripts, and the reference into docs/cli.md")

// exitsCmd runs a program and compares its exit code: exits CODE PROGRAM [ARGUMENT…].
func exitsCmd(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// TestFrom runs the scripts of the commands that read files instead of a cluster.
func TestFrom(t *testing.T) {
	dumps, err := filepath.Abs("testdata/dumps")
	if err != nil {
		t.Fatal(err)
	}
	large, err := makeLarge()
	if err != nil {
		t.Fatal(err)
	}
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/from",
		Setup: func(env *testscript.Env) error {
			env.Setenv("DUMPS", dumps)
			env.Setenv("LARGE", large)
			env.Setenv("EXAMPLES", examples)
			env.Vars = append(env.Vars, noSleepAtExit)
			env.Setenv("KUBECONFIG", filepath.Join(env.WorkDir, "none"))
			return nil
		},
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"exits": exitsCmd},
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       *update,
	})
}

// TestExamplesAreSimulated: the script about the examples leaves none out.
func TestExamplesAreSimulated(t *testing.T) {
	script, err := os.ReadFile("testdata/from/examples.txtar")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(files) < 14 {
		t.Fatalf("found %v: %v", files, err)
	}
	for _, file := range files {
		if name := "$EXAMPLES/" + filepath.Base(file) + "\n"; !strings.Contains(string(script), name) {
			t.Errorf("testdata/from/examples.txtar does not simulate %s", file)
		}
	}
}
