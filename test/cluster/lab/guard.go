// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// guardVariable holds the cluster's name when this program is started as a guard.
const guardVariable = "SKYHOOK_TEST_CLUSTER_GUARD"

// A guard outlives the process that brought a cluster up, to take the cluster down when that process ended without
// doing so: by a panic, a timeout or kill -9. It listens to a pipe that only that process holds.
type guard struct {
	life io.WriteCloser
	cmd  *exec.Cmd
}

func startGuard(name string) (*guard, error) {
	g := &guard{cmd: exec.Command("/proc/self/exe")}
	g.cmd.Dir = "/"
	g.cmd.Env = append(os.Environ(), guardVariable+"="+name)
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // ^C reaches the process, not its guard
	var err error
	if g.life, err = g.cmd.StdinPipe(); err == nil {
		err = g.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("starting the guard of cluster %s: %w", name, err)
	}
	return g, nil
}

// release sends the guard away: the cluster is down, and its name may soon be another's.
func (g *guard) release() error {
	if g == nil {
		return nil
	}
	_, err := g.life.Write([]byte("down"))
	if err := errors.Join(err, g.life.Close(), g.cmd.Wait()); err != nil {
		return fmt.Errorf("releasing the guard: %w", err)
	}
	return nil
}

// watch is what a guard does.
func watch(name string) error {
	word, err := io.ReadAll(os.Stdin)
	if err != nil || len(word) > 0 {
		return err
	}
	return Down(context.Background(), name)
}
