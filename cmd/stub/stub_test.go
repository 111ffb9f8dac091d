// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if name := os.Getenv("PLAY"); name != "" {
		os.Args[0] = name
		main()
	}
	os.Exit(m.Run())
}

// TestRealSignal sends SIGTERM to the program itself.
func TestRealSignal(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "apply", "/root", "/copy")
	cmd.Env = []string{"PLAY=stub", "SLEEP_LEN=3600", "EXIT_CODE=1"}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	first, err := lines.ReadString('\n')
	if err != nil || first != "agentless [apply /root /copy] sleep for 3600 and exit with 1\n" {
		t.Errorf("first line %q, %v", first, err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(lines)
	if err != nil || string(rest) != "agentless got SIGTERM, exits in 3 seconds\n" {
		t.Errorf("then %q, %v", rest, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ends with %v, want exit code 0", err)
	}
}

func vars(kv ...string) func(string) string {
	all := map[string]string{}
	for _, s := range kv {
		key, value, _ := strings.Cut(s, "=")
		all[key] = value
	}
	return func(key string) string { return all[key] }
}

// dream is a termination in which time passes at once; slept is told how long each sleep was.
func dream(slept *[]time.Duration) termination {
	return termination{term: make(chan os.Signal), last: 3 * time.Second, sleep: func(d time.Duration) <-chan time.Time {
		*slept = append(*slept, d)
		over := make(chan time.Time)
		close(over)
		return over
	}}
}

func TestStub(t *testing.T) {
	for _, tc := range []struct {
		args []string
		env  func(string) string
		out  string
		code int
		long time.Duration
	}{
		{[]string{"apply", "/root", "/copy"}, vars("SLEEP_LEN=2", "EXIT_CODE=0"), "agentless [apply /root /copy] sleep for 2 and exit with 0\n", 0, 2 * time.Second},
		{nil, vars("SLEEP_LEN=0.5", "EXIT_CODE=3"), "agentless [] sleep for 0.5 and exit with 3\n", 3, time.Second / 2},
		{nil, vars("SLEEP_LEN=1m", "EXIT_CODE=300"), "agentless [] sleep for 1m and exit with 44\n", 44, time.Minute},
		{[]string{"--help"}, vars("SLEEP_LEN=0"), "agentless [--help] sleep for 0 and exit with 0\n", 0, 0},
	} {
		j, err := newJob(tc.args, tc.env)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		var slept []time.Duration
		if code := j.run(&out, dream(&slept)); code != tc.code || out.String() != tc.out || len(slept) != 1 || slept[0] != tc.long {
			t.Errorf("%v: exit %d after %v, output %q; want %d after %s, %q", tc.args, code, slept, out.String(), tc.code, tc.long, tc.out)
		}
	}
}

func TestStubSleepsFiveToNineSeconds(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 500 {
		j, err := newJob(nil, vars())
		if err != nil || j.sleep < 5*time.Second || j.sleep > 9*time.Second || j.shown+"s" != j.sleep.String() {
			t.Fatalf("sleeps %s, shown as %q, %v", j.sleep, j.shown, err)
		}
		seen[j.sleep] = true
	}
	if len(seen) != 5 {
		t.Errorf("only %d lengths in 500 runs: %v", len(seen), seen)
	}
}

func TestStubEndsOnTerm(t *testing.T) {
	term := make(chan os.Signal, 1)
	term <- syscall.SIGTERM
	var last time.Duration
	world := termination{term: term, last: 3 * time.Second, sleep: func(d time.Duration) <-chan time.Time {
		if d == time.Hour {
			return nil // never over
		}
		last = d
		over := make(chan time.Time)
		close(over)
		return over
	}}
	var out bytes.Buffer
	code := job{sleep: time.Hour, shown: "3600", exit: 7}.run(&out, world)
	if code != 0 || last != 3*time.Second || !strings.Contains(out.String(), "SIGTERM") {
		t.Errorf("exit %d, slept %s, output %q", code, last, out.String())
	}
}

func TestRefusals(t *testing.T) {
	for _, tc := range []struct{ env, want string }{
		{"SLEEP_LEN=soon", `SLEEP_LEN: "soon" is not a time; write seconds, or a number with s, m or h`},
		{"SLEEP_LEN=-1", `SLEEP_LEN: "-1" is not a time`},
		{"EXIT_CODE=bad", `EXIT_CODE: "bad" is not an exit code; write a number from 0 to 255`},
		{"FAULT=sulk", `FAULT: "sulk" is none of exit, crash, kill, hang, flood`},
		{"FAULT_TIMES=-2", `FAULT_TIMES: "-2" is not a number of 0 or more`},
		{"FAULT_CODE=x", `FAULT_CODE: "x" is not a number`},
		{"FAULT_TERM=maybe", `FAULT_TERM: "maybe" is not known; ignore is`},
		{"FAULT_MESSAGE=@other", `FAULT_MESSAGE: "@other" is none of @malformed, @huge, @binary`},
	} {
		var out bytes.Buffer
		var slept []time.Duration
		code := runWithFault([]string{"apply", t.TempDir(), "/copy"}, vars(tc.env), &out, dream(&slept))
		if code != 2 || !strings.Contains(out.String(), tc.want) || len(slept) != 0 {
			t.Errorf("%s: exit %d, %q; want 2, %q", tc.env, code, out.String(), tc.want)
		}
	}
}

// TestFaultsStrikeAndEnd: two failures per node, package and mode, then all is well; another mode counts for itself.
func TestFaultsStrikeAndEnd(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "proc/sys/kernel/random"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "proc/sys/kernel/random/boot_id"), []byte("b-1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	env := []string{"SLEEP_LEN=1", "FAULT=exit", "FAULT_CODE=9", "FAULT_TIMES=2", "FAULT_ON=apply,config", "SKYHOOK_RESOURCE_ID=cr-uid-1_demo_1.0.0"}
	run := func(mode string, more ...string) int {
		var out bytes.Buffer
		var slept []time.Duration
		return runWithFault([]string{mode, root, "/copy"}, vars(append(env, more...)...), &out, dream(&slept))
	}
	for i, want := range []int{9, 9, 0, 0} {
		if got := run("apply"); got != want {
			t.Errorf("run %d of apply exits with %d, want %d", i+1, got, want)
		}
	}
	if got := run("config"); got != 9 {
		t.Errorf("the first config exits with %d, want 9", got)
	}
	if got := run("apply-check"); got != 0 {
		t.Errorf("apply-check is not named by FAULT_ON and exits with %d", got)
	}
	if got := run("apply", "SKYHOOK_RESOURCE_ID=cr-uid-2_demo_1.0.0"); got != 9 {
		t.Errorf("another id counts for itself, but exits with %d", got)
	}
	lines, err := os.ReadFile(filepath.Join(root, faultDir, "runs/cr-uid-1_demo_1.0.0/apply"))
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?m)\A\S+Z run 1 boot b-1 fault exit 9\n\S+Z run 2 boot b-1 fault exit 9\n\S+Z run 3 boot b-1 stub\n\S+Z run 4 boot b-1 stub\n\z`).Match(lines) {
		t.Errorf("the runs are written as\n%s", lines)
	}
}

func TestFaultKinds(t *testing.T) {
	for _, tc := range []struct {
		env  []string
		code int
		out  int // bytes at least
	}{
		{[]string{"FAULT=exit"}, 1, 0},
		{[]string{"FAULT=exit", "FAULT_CODE=0"}, 0, 0},
		{[]string{"FAULT=crash"}, 139, 0},
		{[]string{"FAULT=kill"}, 137, 0},
		{[]string{"FAULT=flood", "FAULT_BYTES=100000", "FAULT_CODE=0"}, 0, 100000},
	} {
		var out bytes.Buffer
		var slept []time.Duration
		code := runWithFault([]string{"apply", t.TempDir(), "/copy"}, vars(append(tc.env, "SLEEP_LEN=4")...), &out, dream(&slept))
		if code != tc.code || out.Len() < tc.out || len(slept) != 1 || slept[0] > 4*time.Second {
			t.Errorf("%v: exit %d after %v, %d bytes; want %d", tc.env, code, slept, out.Len(), tc.code)
		}
	}
}

func TestHang(t *testing.T) {
	term := make(chan os.Signal)
	ended := make(chan int)
	go func() {
		var out bytes.Buffer
		ended <- runWithFault([]string{"apply", t.TempDir(), "/copy"}, vars("FAULT=hang"), &out, termination{term: term, sleep: time.After})
	}()
	term <- syscall.SIGTERM // taken only by one that waits for it
	if code := <-ended; code != 143 {
		t.Errorf("a hanging container exits with %d after SIGTERM, want 143", code)
	}
}

func TestMessage(t *testing.T) {
	defer func(old string) { terminationLog = old }(terminationLog)
	terminationLog = filepath.Join(t.TempDir(), "log")
	for _, tc := range []struct {
		message string
		want    func(string) bool
	}{
		{`{"outcome":"failed"}`, func(s string) bool { return s == `{"outcome":"failed"}` }},
		{"@malformed", func(s string) bool { return strings.HasPrefix(s, `{"`) && !strings.HasSuffix(s, "}") }},
		{"@huge", func(s string) bool { return len(s) > 4096 }},
		{"@binary", func(s string) bool { return strings.Contains(s, "\x00") }},
	} {
		var out bytes.Buffer
		var slept []time.Duration
		if code := runWithFault([]string{"apply", t.TempDir(), "/copy"}, vars("SLEEP_LEN=1", "FAULT_MESSAGE="+tc.message), &out, dream(&slept)); code != 0 {
			t.Errorf("%s: exit %d: %s", tc.message, code, out.String())
		}
		got, err := os.ReadFile(terminationLog)
		if err != nil || !tc.want(string(got)) {
			t.Errorf("%s: message %q, %v", tc.message, got, err)
		}
	}
}

// TestHostRules: what the host says wins over the environment, and its file for one mode over that for all.
func TestHostRules(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, faultDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run := func(mode string) (int, string) {
		var out bytes.Buffer
		var slept []time.Duration
		code := runWithFault([]string{mode, root, "/copy", "e30="}, vars("SLEEP_LEN=1", "FAULT=exit", "FAULT_CODE=5"), &out, dream(&slept))
		return code, out.String()
	}
	write("env", "# for all\nFAULT_CODE=6\n\nSLEEP_LEN=8\n")
	write("env.interrupt", "FAULT_CODE=7\n")
	if code, out := run("apply"); code != 6 || !strings.Contains(out, "sleep for 8") {
		t.Errorf("apply: exit %d, %q", code, out)
	}
	if code, _ := run("interrupt"); code != 7 {
		t.Errorf("interrupt: exit %d", code)
	}
	write("env", "rubbish\n")
	if code, out := run("apply"); code != 2 || !strings.Contains(out, `line "rubbish" is not KEY=VALUE`) {
		t.Errorf("rubbish: exit %d, %q", code, out)
	}
}

func TestFileName(t *testing.T) {
	for text, want := range map[string]string{
		"": "none", "..": "none", "../../etc": ".._.._etc", "a b/c": "a_b_c", strings.Repeat("x", 300): strings.Repeat("x", 200),
	} {
		if got := fileName(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}
