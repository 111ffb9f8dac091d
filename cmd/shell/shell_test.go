// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	commands := map[string]func(){"shell": main}
	for name := range listApplets() {
		commands[name] = main
	}
	testscript.Main(m, commands)
}

func TestScripts(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o022)) // modes in the scripts are those of this umask
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			program, err := os.Executable()
			env.Setenv("PROGRAM", program)
			env.Setenv("GORACE", "atexit_sleep_ms=0") // else each process of a -race run ends a second late
			return err
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"mount-config": mountConfig, "mode": mode, "link": link, "tree-same": treeSame, "running": running,
		},
	})
}

// mountConfig DIR VERSION key=value… writes a directory as the kubelet mounts a ConfigMap: keys are links to
// ..data/KEY, ..data is a link to a folder named after a time. A second call switches as the kubelet does.
func mountConfig(ts *testscript.TestScript, _ bool, args []string) {
	dir, version := ts.MkAbs(args[0]), args[1]
	ts.Check(os.MkdirAll(filepath.Join(dir, version), 0o755))
	for _, kv := range args[2:] {
		key, value, _ := strings.Cut(kv, "=")
		ts.Check(os.WriteFile(filepath.Join(dir, version, key), []byte(value+"\n"), 0o644))
		if _, err := os.Lstat(filepath.Join(dir, key)); err != nil {
			ts.Check(os.Symlink("..data/"+key, filepath.Join(dir, key)))
		}
	}
	old, _ := os.Readlink(filepath.Join(dir, "..data"))
	ts.Check(os.Symlink(version, filepath.Join(dir, "..data_tmp")))
	ts.Check(os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	if old != "" {
		ts.Check(os.RemoveAll(filepath.Join(dir, old)))
	}
	entries, err := os.ReadDir(dir)
	ts.Check(err)
	for _, e := range entries { // keys that are gone
		if _, err := os.Stat(filepath.Join(dir, e.Name())); err != nil {
			ts.Check(os.Remove(filepath.Join(dir, e.Name())))
		}
	}
}

// mode FILE WANT compares the mode of a file, as ls -l writes it.
func mode(ts *testscript.TestScript, _ bool, args []string) {
	st, err := os.Lstat(ts.MkAbs(args[0]))
	ts.Check(err)
	if got := st.Mode().String(); got != args[1] {
		ts.Fatalf("%s has mode %s, want %s", args[0], got, args[1])
	}
}

// link FILE TARGET says where a link has to lead.
func link(ts *testscript.TestScript, _ bool, args []string) {
	got, err := os.Readlink(ts.MkAbs(args[0]))
	ts.Check(err)
	if got != args[1] {
		ts.Fatalf("%s leads to %s, want %s", args[0], got, args[1])
	}
}

// treeSame A B compares two folders: names, modes, links and contents.
func treeSame(ts *testscript.TestScript, neg bool, args []string) {
	a, b := listing(ts, args[0]), listing(ts, args[1])
	if (a == b) == neg {
		ts.Fatalf("%s:\n%s\n%s:\n%s", args[0], a, args[1], b)
	}
}

func listing(ts *testscript.TestScript, dir string) string {
	var all strings.Builder
	dir = ts.MkAbs(dir)
	ts.Check(filepath.Walk(dir, func(file string, st os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, file)
		all.WriteString(st.Mode().String() + " " + rel)
		switch {
		case st.Mode()&os.ModeSymlink != 0:
			target, _ := os.Readlink(file)
			all.WriteString(" -> " + target)
		case st.Mode().IsRegular():
			content, _ := os.ReadFile(file)
			all.WriteString(" " + string(content))
		}
		all.WriteString("\n")
		return nil
	}))
	return all.String()
}

// running FILE starts a program from a file and keeps it until the script ends; the kernel then refuses to write it.
func running(ts *testscript.TestScript, _ bool, args []string) {
	cmd := exec.Command(ts.MkAbs(args[0]))
	cmd.Args[0] = "cat"
	input, err := cmd.StdinPipe() // which stays open
	ts.Check(err)
	ts.Check(cmd.Start())
	ts.Defer(func() { _ = cmd.Process.Kill(); _ = input.Close(); _ = cmd.Wait() })
}

// TestStop stops a shell that waits for a shell that waits: both end at once and say why.
func TestStop(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	for _, name := range []string{"sh", "cat"} {
		if err := os.Symlink(program, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		signal syscall.Signal
		code   int
	}{{syscall.SIGTERM, 143}, {syscall.SIGINT, 130}, {syscall.SIGHUP, 129}} {
		cmd := exec.Command(filepath.Join(bin, "sh"), "-c", `sh -c 'echo up; cat; echo not reached'; echo not reached`)
		cmd.Env = []string{"PATH=" + bin}
		if _, err := cmd.StdinPipe(); err != nil { // which stays open
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		up := make([]byte, 3)
		if _, err := io.ReadFull(out, up); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Process.Signal(tc.signal); err != nil {
			t.Fatal(err)
		}
		rest, err := io.ReadAll(out) // ends when the last of them is gone
		if err != nil || len(rest) > 0 {
			t.Errorf("after %s: %v, output %q", tc.signal, err, rest)
		}
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != tc.code {
			t.Errorf("after %s: %v, want exit code %d", tc.signal, err, tc.code)
		}
	}
}
