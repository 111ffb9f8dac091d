// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Stub replaces the agent in tests: it takes any arguments, sleeps for a while and exits with the configured code.
// Called by the name fault it also injects the faults that the environment or the host configures; see FAULTS in
// fault.go.
package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// job is the work of one container.
type job struct {
	args  []string
	sleep time.Duration
	shown string // the sleep as it was written
	exit  int
}

func main() {
	if filepath.Base(os.Args[0]) == "fault" {
		os.Exit(runWithFault(os.Args[1:], os.Getenv, os.Stdout, termination{}))
	}
	j, err := newJob(os.Args[1:], os.Getenv)
	if err != nil {
		fmt.Fprintln(os.Stderr, "stub:", err)
		os.Exit(2)
	}
	os.Exit(j.run(os.Stdout, termination{}))
}

func newJob(args []string, env func(string) string) (job, error) {
	j := job{args: args, shown: env("SLEEP_LEN")}
	if j.shown == "" {
		j.shown = strconv.Itoa(5 + rand.IntN(5)) //nolint:gosec // any number between 5 and 9 will do
	}
	var err error
	if j.sleep, err = parseSeconds(j.shown); err != nil {
		return j, fmt.Errorf("SLEEP_LEN: %w", err)
	}
	if code := env("EXIT_CODE"); code != "" {
		if j.exit, err = strconv.Atoi(code); err != nil || j.exit < 0 {
			return j, fmt.Errorf("EXIT_CODE: %q is not an exit code; write a number from 0 to 255", code)
		}
	}
	j.exit %= 256
	return j, nil
}

// parseSeconds parses an argument of the command sleep: a number, or one with s, m or h after it.
func parseSeconds(text string) (time.Duration, error) {
	long, err := time.ParseDuration(text)
	if err != nil {
		long, err = time.ParseDuration(text + "s")
	}
	if err != nil || long < 0 || strings.HasPrefix(text, "+") {
		return 0, fmt.Errorf("%q is not a time; write seconds, or a number with s, m or h", text)
	}
	return long, nil
}

// termination is how a container is stopped. The zero value uses the real signals; tests have their own.
type termination struct {
	term  <-chan os.Signal
	sleep func(time.Duration) <-chan time.Time
	last  time.Duration // how long it goes on after SIGTERM
}

func (t termination) withDefaults() termination {
	if t.sleep == nil {
		t.sleep, t.last = time.After, 3*time.Second
	}
	if t.term == nil {
		caught := make(chan os.Signal, 1)
		signal.Notify(caught, syscall.SIGTERM)
		t.term = caught
	}
	return t
}

// run prints what it does, sleeps and returns the exit code. SIGTERM ends it: a message, three seconds, and 0.
func (j job) run(out io.Writer, t termination) int {
	t = t.withDefaults()
	if _, err := fmt.Fprintf(out, "agentless [%s] sleep for %s and exit with %d\n", strings.Join(j.args, " "), j.shown, j.exit); err != nil {
		return 1
	}
	select {
	case <-t.sleep(j.sleep):
		return j.exit
	case <-t.term:
	}
	if _, err := fmt.Fprintln(out, "agentless got SIGTERM, exits in 3 seconds"); err != nil {
		return 1
	}
	<-t.sleep(t.last)
	return 0
}
