// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

const (
	// markVariable is in the environment of every program of one control plane, so that the guard finds them.
	markVariable = "SKYHOOK_CONTROLPLANE_DIR"
	// exitWithParent makes the programs that test/cluster builds end with this test binary.
	exitWithParent = "SKYHOOK_EXIT_WITH_PARENT"
)

// guard outlives the test binary for a moment. It reads from a pipe that only the test binary can write to; when the
// pipe closes, the test binary has ended, by a panic, ^C or kill -9. Then the guard ends the marked processes and
// removes the directory.
type guard struct {
	dir  string
	log  *os.File
	life io.WriteCloser
	cmd  *exec.Cmd
}

const guardScript = `
cat >/dev/null
for p in /proc/[0-9]*; do
	tr '\0' '\n' 2>/dev/null <"$p/environ" | grep -qxF "$0" && [ "${p#/proc/}" != $$ ] && kill -9 "${p#/proc/}" 2>/dev/null
done
for try in 1 2 3 4 5 6 7 8 9 10; do rm -rf "${0#*=}" && exit 0; sleep 0.2; done
exit 1`

func newGuard() (*guard, error) {
	dir, err := os.MkdirTemp("", "skyhook-controlplane-")
	if err != nil {
		return nil, fmt.Errorf("making a directory for the control plane: %w", err)
	}
	g := &guard{dir: dir}
	if g.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		return nil, errors.Join(fmt.Errorf("making a log for the control plane: %w", err), os.RemoveAll(dir))
	}
	g.cmd = exec.Command("/bin/sh", "-c", guardScript, markVariable+"="+dir)
	g.cmd.Dir = "/"
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // ^C reaches the test binary, not its guard
	if g.life, err = g.cmd.StdinPipe(); err == nil {
		err = g.cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting the guard of the control plane: %w", err), g.log.Close(), os.RemoveAll(dir))
	}
	return g, nil
}

// setEnvironment marks the programs that are started until the returned function is called.
func (g *guard) setEnvironment() func() {
	variables := map[string]string{markVariable: g.dir, exitWithParent: "1"}
	before := map[string]*string{}
	for name, value := range variables {
		if old, set := os.LookupEnv(name); set {
			before[name] = &old
		} else {
			before[name] = nil
		}
		_ = os.Setenv(name, value) // fails only for names that cannot be
	}
	return func() {
		for name, old := range before {
			if old == nil {
				_ = os.Unsetenv(name)
			} else {
				_ = os.Setenv(name, *old)
			}
		}
	}
}

// lastWords returns the end of the programs' logs.
func (g *guard) lastWords() string {
	text, err := os.ReadFile(g.log.Name())
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4096):])
}

// close makes the guard finish its work now, and waits for it.
func (g *guard) close() error {
	err := errors.Join(g.life.Close(), g.cmd.Wait(), g.log.Close())
	if err != nil {
		return fmt.Errorf("removing %s: %w", g.dir, err)
	}
	return nil
}
