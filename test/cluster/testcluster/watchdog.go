// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// watchdogVariable holds the cluster's name when this program is started as a watchdog.
const watchdogVariable = "SKYHOOK_TEST_CLUSTER_WATCHDOG"

// watchdog is a process that takes the cluster down if the process that brought it up exits without doing so: by a panic, a
// timeout or kill -9. It reads from a pipe that only that process has open.
type watchdog struct {
	pipe io.WriteCloser
	cmd  *exec.Cmd
}

func startWatchdog(name string) (*watchdog, error) {
	g := &watchdog{cmd: exec.Command("/proc/self/exe")}
	g.cmd.Dir = "/"
	g.cmd.Env = append(os.Environ(), watchdogVariable+"="+name)
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // ^C must not kill the watchdog
	var err error
	if g.pipe, err = g.cmd.StdinPipe(); err == nil {
		err = g.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("starting the watchdog of cluster %s: %w", name, err)
	}
	return g, nil
}

// stop ends the watchdog without taking the cluster down: another cluster may soon have its name.
func (g *watchdog) stop() error {
	if g == nil {
		return nil
	}
	_, err := g.pipe.Write([]byte("down"))
	if err := errors.Join(err, g.pipe.Close(), g.cmd.Wait()); err != nil {
		return fmt.Errorf("stopping the watchdog: %w", err)
	}
	return nil
}

// runWatchdog takes the cluster down when the pipe is closed without a word.
func runWatchdog(name string) error {
	word, err := io.ReadAll(os.Stdin)
	if err != nil || len(word) > 0 {
		return err
	}
	return Down(context.Background(), name)
}
