// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// packageCmd creates a package: package FROM NAME VERSION TO. FROM has a file "steps" with lines MODE PATH [ARGUMENT…]
// [| OPTION…], and whatever else belongs to the package. A mode without a check gets one that passes. Options: self,
// upgrade, off-host, codes=0,3, timeout=2s, name=x, env.KEY=VALUE. TO is absolute.
func packageCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: package FROM NAME VERSION TO")
	}
	from, to := ts.MkAbs(args[0]), args[3]
	ts.Check(os.MkdirAll(to, 0o755))
	ts.Check(copyTree(from, to))
	steps, err := os.ReadFile(filepath.Join(from, "steps"))
	ts.Check(err)
	modes, err := parseSteps(string(steps))
	ts.Check(err)
	expected, err := os.ReadFile(filepath.Join(from, "expected"))
	if !errors.Is(err, fs.ErrNotExist) {
		ts.Check(err)
	}
	content, err := configJSON(args[1], args[2], strings.Fields(string(expected)), modes)
	ts.Check(err)
	ts.Check(os.WriteFile(filepath.Join(to, "config.json"), []byte(content), 0o644))
	ts.Check(os.MkdirAll(filepath.Join(to, "skyhook_dir"), 0o755))
	ts.Check(os.WriteFile(filepath.Join(to, "skyhook_dir/passes.sh"), []byte("#!/bin/sh\n"), 0o755))
}

func configJSON(name, version string, expected []string, modes map[string][]map[string]any) (string, error) {
	if expected == nil {
		expected = []string{}
	}
	content, err := json.MarshalIndent(map[string]any{
		"schema_version": "v1", "package_name": name, "package_version": version,
		"expected_config_files": expected, "modes": modes,
	}, "", "  ")
	return string(content), err
}

func parseSteps(text string) (map[string][]map[string]any, error) {
	modes := map[string][]map[string]any{}
	for line := range strings.Lines(text) {
		left, right, _ := strings.Cut(line, "|")
		words := strings.Fields(left)
		if len(words) == 0 {
			continue
		}
		step, err := readStep(words[1], words[2:], strings.Fields(right))
		if err != nil {
			return nil, err
		}
		modes[words[0]] = append(modes[words[0]], step)
	}
	for mode := range modes {
		if check := string(pack.Mode(mode).Check()); check != "" && len(modes[check]) == 0 {
			modes[check] = []map[string]any{must2(readStep("passes.sh", nil, nil))}
		}
	}
	return modes, nil
}

func readStep(file string, args, options []string) (map[string]any, error) {
	if args == nil {
		args = []string{}
	}
	env := map[string]string{}
	step := map[string]any{
		"name": strings.ReplaceAll(file, "/", "-"), "path": file, "arguments": args, "returncodes": []int{0},
		"on_host": true, "idempotence": false, "upgrade_step": false, "env": env,
	}
	for _, option := range options {
		key, value, _ := strings.Cut(option, "=")
		switch {
		case key == "self":
			step["idempotence"] = true
		case key == "upgrade":
			step["upgrade_step"] = true
		case key == "off-host":
			step["on_host"] = false
		case key == "timeout", key == "name":
			step[key] = value
		case key == "codes":
			var codes []int
			for text := range strings.SplitSeq(value, ",") {
				code, err := strconv.Atoi(text)
				if err != nil {
					return nil, err
				}
				codes = append(codes, code)
			}
			step["returncodes"] = codes
		case strings.HasPrefix(key, "env."):
			env[strings.TrimPrefix(key, "env.")] = value
		default:
			return nil, fmt.Errorf("option %q is not known", option)
		}
	}
	return step, nil
}

// copyTree copies files, and links as links; scripts become executable, as in an image.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel := must2(filepath.Rel(from, name))
		at := filepath.Join(to, rel)
		switch {
		case rel == "steps" || rel == "expected":
			return nil
		case e.IsDir():
			return os.MkdirAll(at, must2(e.Info()).Mode().Perm())
		case e.Type()&fs.ModeSymlink != 0:
			return os.Symlink(must2(os.Readlink(name)), at)
		}
		mode := must2(e.Info()).Mode().Perm()
		if strings.HasPrefix(rel, "skyhook_dir/") {
			mode |= 0o755
		}
		return os.WriteFile(at, must2(os.ReadFile(name)), mode)
	})
}

// digestCmd sets the expected config to that of a directory: digest FOLDER.
func digestCmd(ts *testscript.TestScript, _ bool, args []string) {
	digest, err := pack.ConfigDigestFS(os.DirFS(ts.MkAbs(args[0])))
	ts.Check(err)
	ts.Setenv(pack.EnvConfigDigest, digest)
}

// multilineCmd sets a variable to several lines: multiline NAME LINE….
func multilineCmd(ts *testscript.TestScript, _ bool, args []string) {
	ts.Setenv(args[0], strings.Join(args[1:], "\n"))
}

// deadlineCmd sets the stage's deadline: deadline DURATION.
func deadlineCmd(ts *testscript.TestScript, _ bool, args []string) {
	d, err := time.ParseDuration(args[0])
	ts.Check(err)
	ts.Setenv(pack.EnvDeadline, pack.FormatDeadline(time.Now().Add(d)))
}

// tmpfsCmd mounts a tmpfs: tmpfs FOLDER [OPTIONS].
func tmpfsCmd(ts *testscript.TestScript, _ bool, args []string) {
	at := ts.MkAbs(args[0])
	options, flags := "", uintptr(0)
	for _, option := range args[1:] {
		if option == "noexec" {
			flags |= unix.MS_NOEXEC
		} else {
			options = option
		}
	}
	ts.Check(unix.Mount("tmpfs", at, "tmpfs", flags, options))
	ts.Defer(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
}

// treeCmd writes what is in a folder to a file, to compare it later: tree FOLDER FILE.
func treeCmd(ts *testscript.TestScript, _ bool, args []string) {
	from, out := ts.MkAbs(args[0]), ""
	ts.Check(filepath.WalkDir(from, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st := must2(e.Info())
		out += fmt.Sprintf("%s %s %s", st.Mode(), st.ModTime().Format(time.RFC3339Nano), must2(filepath.Rel(from, name)))
		switch {
		case e.Type()&fs.ModeSymlink != 0:
			out += " -> " + must2(os.Readlink(name))
		case e.Type().IsRegular():
			out += fmt.Sprintf(" %x", sha256.Sum256(must2(os.ReadFile(name))))
		}
		out += "\n"
		return nil
	}))
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(out), 0o644))
}

// readOnlyCmd mounts a folder read-only at another one: read-only FOLDER TO.
func readOnlyCmd(ts *testscript.TestScript, _ bool, args []string) {
	from, to := ts.MkAbs(args[0]), ts.MkAbs(args[1])
	ts.Check(os.MkdirAll(to, 0o755))
	ts.Check(unix.Mount(from, to, "", unix.MS_BIND, ""))
	ts.Defer(func() { _ = unix.Unmount(to, unix.MNT_DETACH) })
	ts.Check(unix.Mount("", to, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
}

// systemdCmd installs a fake systemctl and services on the host: systemd NAME[,KEY=VALUE…]….
func systemdCmd(ts *testscript.TestScript, _ bool, args []string) {
	root := ts.Getenv("HOST")
	for _, dir := range []string{"sd/units", "sd/fail", "sd/kill"} {
		ts.Check(os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	script, err := os.ReadFile(ts.Getenv("SYSTEMCTL"))
	ts.Check(err)
	ts.Check(os.WriteFile(filepath.Join(root, "usr/bin/systemctl"), script, 0o755))
	for i, arg := range args {
		name, rest, _ := strings.Cut(arg, ",")
		text := fmt.Sprintf("load=loaded\nactive=active\nsub=running\ninv=i%d\npid=%d\nsince=%d\nfixed=no\ntransient=no\n", i, i+1, i+1)
		text += strings.ReplaceAll(rest, ",", "\n") + "\n"
		ts.Check(os.WriteFile(filepath.Join(root, "sd/units", name), []byte(text), 0o644))
	}
}

// terminateCmd sends SIGTERM to background programs.
func terminateCmd(ts *testscript.TestScript, _ bool, _ []string) {
	for _, cmd := range ts.BackgroundCmds() {
		ts.Check(cmd.Process.Signal(unix.SIGTERM))
	}
}

// goneCmd waits until the process ends whose ID is in a file: gone FILE.
func goneCmd(ts *testscript.TestScript, _ bool, args []string) {
	pid, err := strconv.Atoi(strings.TrimSpace(ts.ReadFile(args[0])))
	ts.Check(err)
	for limit := time.Now().Add(5 * time.Minute); unix.Kill(pid, 0) == nil; time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			ts.Fatalf("process %d is still there", pid)
		}
	}
}

// exitsCmd runs a program and requires this exit code: exits CODE PROGRAM [ARGUMENT…].
func exitsCmd(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM [ARGUMENT…]")
	}
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		code = exit.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s\nstdout:\n%sstderr:\n%s", code, args[0], ts.ReadFile("stdout"), ts.ReadFile("stderr"))
	}
}

// awaitCmd waits until a file exists, or contains a text: await FILE [TEXT].
func awaitCmd(ts *testscript.TestScript, _ bool, args []string) {
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		names, _ := filepath.Glob(ts.MkAbs(args[0]))
		for _, name := range names {
			if len(args) < 2 {
				return
			}
			if content, err := os.ReadFile(name); err == nil && strings.Contains(string(content), args[1]) {
				return
			}
		}
		if time.Now().After(deadline) {
			ts.Fatalf("waited in vain for %s", strings.Join(args, " "))
		}
	}
}

// modeCmd compares permission bits: mode 0600 FILE….
func modeCmd(ts *testscript.TestScript, _ bool, args []string) {
	for _, pattern := range args[1:] {
		names, _ := filepath.Glob(ts.MkAbs(pattern))
		if len(names) == 0 {
			ts.Fatalf("there is no %s", pattern)
		}
		for _, name := range names {
			st, err := os.Lstat(name)
			ts.Check(err)
			if got := fmt.Sprintf("%04o", st.Mode().Perm()); got != args[0] {
				ts.Fatalf("%s has mode %s, want %s", name, got, args[0])
			}
		}
	}
}

// countCmd counts files that match: count N PATTERN.
func countCmd(ts *testscript.TestScript, _ bool, args []string) {
	names, err := filepath.Glob(ts.MkAbs(args[1]))
	ts.Check(err)
	if strconv.Itoa(len(names)) != args[0] {
		ts.Fatalf("%d files match %s, want %s: %s", len(names), args[1], args[0], strings.Join(names, "\n"))
	}
}

// numberedCmd counts the lines of a file that contain a text: numbered N TEXT FILE.
func numberedCmd(ts *testscript.TestScript, _ bool, args []string) {
	n := strings.Count(ts.ReadFile(args[2]), args[1])
	if strconv.Itoa(n) != args[0] {
		ts.Fatalf("%s holds %q %d times, want %s:\n%s", args[2], args[1], n, args[0], ts.ReadFile(args[2]))
	}
}
