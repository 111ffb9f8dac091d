// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// FAULTS. The image fault is the image stub until one of these is set, in the environment of the container or, also
// for containers that get no environment of a package, on the host in <root mount>/var/lib/skyhook-fault/env or
// env.MODE, as KEY=VALUE lines; MODE is the first argument (apply, apply-check, interrupt …), and its file wins.
//
//	FAULT          exit: exits with FAULT_CODE after SLEEP_LEN; crash: exits with 139 after a random part of SLEEP_LEN;
//	               kill: exits with 137, like a process out of memory; hang: never ends;
//	               flood: writes FAULT_BYTES of output, then as exit
//	FAULT_ON       the modes in which the fault is injected, separated by commas; unset: all
//	FAULT_TIMES    how often the fault is injected on this node, per FAULT_ID and mode; unset: always
//	FAULT_ID       the id that faults are counted for; unset: SKYHOOK_RESOURCE_ID
//	FAULT_CODE     an exit code, 1 when unset
//	FAULT_BYTES    16777216 when unset
//	FAULT_MESSAGE  the termination message, as it is, or @malformed (cut JSON), @huge (8 KiB), @binary
//	FAULT_TERM     ignore: SIGTERM does nothing
//
// Every run appends a line to <root mount>/var/lib/skyhook-fault/runs/<FAULT_ID>/<MODE>.
const faultDir = "var/lib/skyhook-fault"

var (
	terminationLog = "/dev/termination-log"
	kinds          = []string{"exit", "crash", "kill", "hang", "flood"}
)

// fault is the fault of one container.
type fault struct {
	kind        string // empty: nothing
	modes       []string
	times       int // -1: always
	id          string
	code        int
	bytes       int64
	message     string
	ignoresTerm bool
}

// runWithFault injects the fault if this container is to have it, otherwise it runs the stub.
func runWithFault(args []string, env func(string) string, out io.Writer, t termination) int {
	root, mode := "/root", ""
	if len(args) > 0 {
		mode = args[0]
	}
	if len(args) > 2 {
		root = args[1]
	}
	dir := filepath.Join(root, faultDir)
	env, err := mergeHostRules(dir, mode, env)
	if err != nil {
		return printUsageError(out, err)
	}
	f, err := newFault(env)
	if err != nil {
		return printUsageError(out, err)
	}
	j, err := newJob(args, env)
	if err != nil {
		return printUsageError(out, err)
	}
	struck, err := f.recordRun(filepath.Join(dir, "runs", fileName(f.id)), fileName(mode), bootID(root))
	if err != nil {
		return printUsageError(out, err)
	}
	if !struck {
		return j.run(out, t)
	}
	return f.inject(j, out, t)
}

// bootID returns the boot id of the host; empty when no host is mounted.
func bootID(root string) string {
	id, err := os.ReadFile(filepath.Join(root, "proc/sys/kernel/random/boot_id"))
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(id))
}

func printUsageError(out io.Writer, err error) int {
	if _, say := fmt.Fprintln(out, "fault:", err); say != nil {
		return 1
	}
	return 2
}

// mergeHostRules merges the files of the host over the environment.
func mergeHostRules(dir, mode string, env func(string) string) (func(string) string, error) {
	rules := map[string]string{}
	for _, name := range []string{"env", "env." + fileName(mode)} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading faults of this host: %w", err)
		}
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSpace(line)
			if line == "" || line[0] == '#' {
				continue
			}
			key, value, found := strings.Cut(line, "=")
			if !found {
				return nil, fmt.Errorf("%s: line %q is not KEY=VALUE", filepath.Join(dir, name), line)
			}
			rules[key] = value
		}
	}
	return func(key string) string {
		if value, there := rules[key]; there {
			return value
		}
		return env(key)
	}, nil
}

func newFault(env func(string) string) (fault, error) {
	f := fault{kind: env("FAULT"), times: -1, id: env("FAULT_ID"), code: 1, bytes: 16 << 20, message: env("FAULT_MESSAGE")}
	if f.kind != "" && !slices.Contains(kinds, f.kind) {
		return f, fmt.Errorf("FAULT: %q is none of %s", f.kind, strings.Join(kinds, ", "))
	}
	if f.id == "" {
		f.id = env("SKYHOOK_RESOURCE_ID")
	}
	if on := env("FAULT_ON"); on != "" {
		f.modes = strings.Split(on, ",")
	}
	for _, n := range []struct {
		key string
		set func(int64)
	}{
		{"FAULT_TIMES", func(n int64) { f.times = int(n) }},
		{"FAULT_CODE", func(n int64) { f.code = int(n % 256) }},
		{"FAULT_BYTES", func(n int64) { f.bytes = n }},
	} {
		text := env(n.key)
		if text == "" {
			continue
		}
		value, err := strconv.ParseInt(text, 10, 64)
		if err != nil || value < 0 {
			return f, fmt.Errorf("%s: %q is not a number of 0 or more", n.key, text)
		}
		n.set(value)
	}
	switch term := env("FAULT_TERM"); term {
	case "", "ignore":
		f.ignoresTerm = term == "ignore"
	default:
		return f, fmt.Errorf("FAULT_TERM: %q is not known; ignore is", term)
	}
	if strings.HasPrefix(f.message, "@") {
		text, known := testMessages()[f.message]
		if !known {
			return f, fmt.Errorf("FAULT_MESSAGE: %q is none of @malformed, @huge, @binary", f.message)
		}
		f.message = text
	}
	return f, nil
}

func testMessages() map[string]string {
	return map[string]string{
		"@malformed": `{"mode":"apply","outcome":`,
		"@huge":      strings.Repeat("x", 8<<10),
		"@binary":    "\xff\xfe\x00\x01\x80",
	}
}

// recordRun writes the line of this run and reports whether the fault is injected.
func (f fault) recordRun(dir, mode, boot string) (struck bool, err error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return false, fmt.Errorf("counting runs: %w", err)
	}
	runs, err := os.OpenFile(filepath.Join(dir, mode), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return false, fmt.Errorf("counting runs: %w", err)
	}
	defer func() {
		if shut := runs.Close(); err == nil && shut != nil {
			err = fmt.Errorf("counting runs: %w", shut)
		}
	}()
	if err := syscall.Flock(int(runs.Fd()), syscall.LOCK_EX); err != nil {
		return false, fmt.Errorf("counting runs: %w", err)
	}
	before, err := io.ReadAll(runs)
	if err != nil {
		return false, fmt.Errorf("counting runs: %w", err)
	}
	struck = f.kind != "" || f.message != "" || f.ignoresTerm
	struck = struck && (f.modes == nil || slices.Contains(f.modes, mode))
	struck = struck && (f.times < 0 || bytes.Count(before, []byte(" fault ")) < f.times)
	what := "stub"
	if struck {
		what = "fault " + f.String()
	}
	_, err = fmt.Fprintf(runs, "%s run %d boot %s %s\n", time.Now().UTC().Format(time.RFC3339), bytes.Count(before, []byte("\n"))+1, boot, what)
	if err != nil {
		return false, fmt.Errorf("counting runs: %w", err)
	}
	return struck, nil
}

func (f fault) String() string {
	switch {
	case f.kind == "exit" || f.kind == "flood":
		return fmt.Sprintf("%s %d", f.kind, f.code)
	case f.kind != "":
		return f.kind
	case f.message != "":
		return "message"
	}
	return "ignore SIGTERM"
}

// inject injects the fault.
func (f fault) inject(j job, out io.Writer, t termination) int {
	if f.ignoresTerm {
		signal.Ignore(syscall.SIGTERM)
		t.term = make(chan os.Signal)
	}
	if f.message != "" {
		if err := os.WriteFile(terminationLog, []byte(f.message), 0o600); err != nil {
			return printUsageError(out, fmt.Errorf("writing the termination message: %w", err))
		}
	}
	switch f.kind {
	case "exit":
		j.exit = f.code
	case "crash":
		j.exit, j.sleep = 139, time.Duration(rand.Int64N(int64(j.sleep)+1)) //nolint:gosec // any time will do
	case "kill":
		j.exit = 137
	case "flood":
		j.exit = f.code
		if err := flood(out, f.bytes); err != nil {
			return printUsageError(out, err)
		}
	case "hang":
		t = t.withDefaults()
		if _, err := fmt.Fprintf(out, "fault [%s] hangs\n", strings.Join(j.args, " ")); err != nil {
			return 1
		}
		<-t.term
		return 143
	}
	return j.run(out, t)
}

func flood(out io.Writer, left int64) error {
	line := append(bytes.Repeat([]byte("flood "), 20), '\n')
	for left > 0 {
		n, err := out.Write(line[:min(left, int64(len(line)))])
		if err != nil {
			return fmt.Errorf("filling the output: %w", err)
		}
		left -= int64(n)
	}
	_, err := fmt.Fprintln(out)
	return err
}

// fileName makes a file name of any text: path separators and excess length are replaced.
func fileName(text string) string {
	name := strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || r == '.' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, text)
	if strings.Trim(name, ".") == "" {
		return "none"
	}
	return name[:min(len(name), 200)]
}
