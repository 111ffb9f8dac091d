// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/skyhook-k8s/skyhook/internal/cli"
)

// runOnTerminal runs the plugin with a terminal as its output, and returns what was written to the terminal.
func runOnTerminal(t *testing.T, args ...string) string { return runOnTerminalOf(t, 200, args...) }

// runOnTerminalOf is runOnTerminal with a number of columns.
func runOnTerminalOf(t *testing.T, columns uint16, args ...string) string {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	defer screen.Close()
	number, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(int(screen.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 60, Col: columns})
	}
	if err != nil {
		t.Fatal(err)
	}
	end, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	read := make(chan struct{})
	go func() {
		_, _ = io.Copy(&got, screen) // it ends with an error when nobody writes any more
		close(read)
	}()
	code := cli.Run(context.Background(), cli.Line{Args: args, Stdin: strings.NewReader(""), Stdout: end, Stderr: io.Discard})
	_ = end.Close()
	<-read
	if code != 0 {
		t.Errorf("%v: exit code %d", args, code)
	}
	return got.String()
}

// TestTerminal checks that only terminals get colours and are redrawn.
func TestTerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	once := []string{"status", "--from", "testdata/dumps/stuck.yaml"}
	if got := runOnTerminal(t, once...); !strings.Contains(got, "\x1b[33min_progress\x1b[0m") {
		t.Errorf("there are no colours:\n%q", got)
	}
	watched := runOnTerminal(t, "status", "driver", "-w", "--from", "testdata/dumps/stuck.yaml")
	for _, want := range []string{"\x1b[2J\x1b[H", "\x1b[K", "\x1b[J"} {
		if !strings.Contains(watched, want) {
			t.Errorf("%q is missing from\n%q", want, watched)
		}
	}
	t.Setenv("NO_COLOR", "1")
	if got := runOnTerminal(t, once...); strings.Contains(got, "\x1b") {
		t.Errorf("colours that nobody wants:\n%q", got)
	}
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "dumb")
	if got := runOnTerminal(t, append(once, "-w")...); strings.Contains(got, "\x1b") {
		t.Errorf("a dumb terminal is sent\n%q", got)
	}
	t.Setenv("TERM", "xterm")
	var out bytes.Buffer
	if cli.Run(t.Context(), cli.Line{Args: append(once, "-w"), Stdout: &out, Stderr: io.Discard}); strings.Contains(out.String(), "\x1b") || out.Len() == 0 {
		t.Errorf("a file is sent\n%q", out.String())
	}
}

// TestTerminalIsNotControlled checks that what others wrote has no control characters when it is printed.
func TestTerminalIsNotControlled(t *testing.T) {
	dir := t.TempDir()
	const config = `{"schema_version":"v1","package_name":"a\u001b[2Jb","package_version":"1.0.0","expected_config_files":[],"modes":{}}`
	if err := os.WriteFile(dir+"/config.json", []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{`a\u001b[2Jb`: {"package", "inspect", dir}, `no\u001b[2Jsuch`: {"status", "--from", "no\x1b[2Jsuch"}} {
		var out bytes.Buffer
		cli.Run(t.Context(), cli.Line{Args: args, Stdout: &out, Stderr: &out, Stdin: strings.NewReader("")})
		if !strings.Contains(out.String(), want) || strings.Contains(out.String(), "\x1b") {
			t.Errorf("%q prints\n%q", args, out.String())
		}
	}
}

// TestTerminalIsNarrow checks that lines are wrapped at the width of the terminal, and that nothing is lost.
func TestTerminalIsNarrow(t *testing.T) {
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "1")
	for _, args := range [][]string{{"status"}, {"status", "driver"}, {"status", "base"}, {"why", "driver"}, {"why", "n2"}, {"simulate", "base", "driver"}} {
		args = append(args, "--from", "testdata/dumps/stuck.yaml")
		narrow, wide := runOnTerminalOf(t, 80, args...), runOnTerminalOf(t, 1000, args...)
		for _, line := range strings.Split(narrow, "\r\n") {
			if n := utf8.RuneCountInString(line); n > 80 {
				t.Errorf("%v prints %d columns:\n%s", args, n, line)
			}
		}
		words := strings.Fields(narrow)
		if args[0] != "status" && !slices.Equal(words, strings.Fields(wide)) {
			t.Errorf("%v says something else on a narrow terminal:\n%s\nand on a wide one:\n%s", args, narrow, wide)
		}
	}
}

// lockedBuffer is a buffer for several goroutines.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *lockedBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *lockedBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// TestWatchAppends checks that -w appends changes when the output is no terminal.
func TestWatchAppends(t *testing.T) {
	s := newTestCluster(t, 2)
	s.Apply(stuckBase)
	s.Patch(s.GetSkyhook("base"), `{"metadata":{"annotations":{"skyhook.nvidia.com/pause":"true"}}}`)
	ctx, cancel := context.WithCancel(t.Context())
	out, ended := &lockedBuffer{}, make(chan int, 1)
	go func() {
		ended <- cli.Run(ctx, cli.Line{
			Args:   []string{"--kubeconfig", s.file, "--operator-namespace", s.Namespace, "status", "base", "-w", "--interval", "20ms"},
			Stdout: out, Stderr: io.Discard, Stdin: strings.NewReader(""),
		})
	}()
	s.Eventually("it looked several times", func() bool {
		looks := slices.DeleteFunc(s.proxy.listCalls(), func(call string) bool { return call != "GET /api/v1/nodes" })
		return len(looks) > 3
	})
	if got := out.String(); strings.Count(got, "Skyhook base: paused\n") != 1 || strings.Contains(got, "\x1b") {
		t.Errorf("nothing changed, and it says\n%s", got)
	}
	s.Patch(s.GetSkyhook("base"), `{"metadata":{"annotations":{"skyhook.nvidia.com/pause":null}}}`)
	s.Eventually("the change is appended", func() bool { return strings.Count(out.String(), "\n\nSkyhook base: ") > 0 })
	cancel()
	select {
	case code := <-ended:
		if code != 0 {
			t.Errorf("it ended with %d", code)
		}
	case <-time.After(time.Minute):
		t.Error("it goes on after it was interrupted")
	}
}

// TestCompletion checks that names are completed from the cluster.
func TestCompletion(t *testing.T) {
	s := newTestCluster(t, 2)
	s.Apply(stuckBase)
	for args, want := range map[string]string{
		"__complete status ":           "base\n",
		"__complete why n":             "n1\nn2\n",
		"__complete node ignore n":     "n1\nn2\n",
		"__complete node list --sky":   "--skyhook",
		"__complete pause ":            "base\n",
		"completion bash":              "__start_kubectl-skyhook",
		"__complete package rerun --n": "--node",
	} {
		words := strings.Split(args, " ")
		if got := s.run(0, words...); !strings.Contains(got, want) {
			t.Errorf("%s gives\n%s", args, got)
		}
	}
}
