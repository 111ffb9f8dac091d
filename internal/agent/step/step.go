// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package step runs one program on the host and reports how it ended.
//
// The program runs in the host's root, in its own process group, with exactly the given environment and an empty
// standard input. Its standard output and standard error are one pipe, which preserves their order. It never outlives
// the agent.
package step

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skyhook-k8s/skyhook/internal/agent/host"
)

// Exit codes of programs that could not be started, as shells use them.
const (
	cannotExecute = 126
	notFound      = 127
)

// lingerFor is how long output of processes is read that a program left behind.
const lingerFor = 2 * time.Second

// busyFor limits the waits for a program that another process has open for writing. They double; together they are twice this.
const busyFor = 2 * time.Second

// ErrTimeout is the cause of a context that ends a step at its timeout.
var ErrTimeout = errors.New("the time is up")

// Command is one program to run.
type Command struct {
	Root *host.Root
	// Path and Dir are paths of the host.
	Path string
	Args []string
	Env  []string
	Dir  string
	// Timeout limits the run; zero means no limit.
	Timeout time.Duration
	// Grace is the time between SIGTERM and SIGKILL.
	Grace time.Duration
	// Gentle is a cause after which only SIGTERM is sent, because the kubelet kills the container later.
	Gentle error
	// Output receives its output.
	Output *Output
	// Alive, if set, is called every AliveEvery while it runs.
	Alive      func(time.Duration)
	AliveEvery time.Duration
	// OnlyReads runs it as the user nobody, who may read every file. Root would not be kept from changing the host by a mount that is
	// read-only: services answer on sockets, and /proc leads to the mounts of other processes.
	OnlyReads bool
	// Confined has the kernel refuse calls by which a program gets at more than the files below its root; see confineThread.
	Confined bool
	// Unconnected lets a confined program use no socket of this host, on which services of root listen.
	Unconnected bool
}

// nobody is the user and group that own nothing.
const nobody = 65534

// Result is the result of a program.
type Result struct {
	// Exit is its exit status, that of a shell if it could not be started, or -1 after a signal.
	Exit int
	// Signal is the signal that ended it, such as SIGKILL.
	Signal string
	// Cause is why the agent ended it: ErrTimeout or the cause of the context; nil when it ended by itself.
	Cause error
	// Err is why it could not be started.
	Err      error
	Duration time.Duration
}

// Run runs a program to its end, or to the end of ctx.
func Run(ctx context.Context, c Command) Result {
	start := time.Now()
	ended := make(chan Result, 1)
	go func() { ended <- runProgram(ctx, c, start) }() // the thread of a confined program ends with it
	result := <-ended
	result.Duration = time.Since(start)
	return result
}

func runProgram(ctx context.Context, c Command, start time.Time) Result {
	if cause := context.Cause(ctx); cause != nil {
		return Result{Exit: -1, Cause: cause}
	}
	read, write, err := os.Pipe()
	if err != nil {
		return Result{Exit: cannotExecute, Err: fmt.Errorf("opening a pipe: %w", err)}
	}
	defer read.Close()
	// The kernel kills the program when the thread that started it ends, so the goroutine is locked to its thread.
	runtime.LockOSThread()
	if c.Confined {
		if err := confineThread(c.Unconnected); err != nil {
			return Result{Exit: cannotExecute, Err: err}
		}
	} else {
		defer runtime.UnlockOSThread()
	}
	cmd, err := startProgram(ctx, c, write)
	_ = write.Close()
	if err != nil {
		return describeStartFailure(c, err)
	}
	ended, taken := make(chan struct{}), make(chan struct{})
	go func() {
		c.Output.readFrom(read)
		close(taken)
	}()
	cause := make(chan error, 1)
	go func() { cause <- watchProgram(ctx, c, cmd.Process.Pid, start, ended) }()
	err = cmd.Wait()
	close(ended)
	result := Result{Cause: <-cause}
	// The output of the program is in the pipe now. Its children may keep the other end open.
	_ = read.SetReadDeadline(time.Now().Add(lingerFor))
	<-taken
	return describeExit(result, cmd.ProcessState, err)
}

// startProgram starts the program. A file that somebody still has open for writing cannot be executed, which passes: for a
// moment that is so when a process that wrote it forks.
func startProgram(ctx context.Context, c Command, output *os.File) (*exec.Cmd, error) {
	for wait := time.Millisecond; ; wait *= 2 {
		cmd := exec.Command(c.Path, c.Args...)
		cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = c.Env, c.Dir, output, output
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
		if c.Root.Chroot {
			cmd.SysProcAttr.Chroot = c.Root.Mount
		}
		if c.OnlyReads {
			cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
			if mayReadAll() {
				cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_DAC_READ_SEARCH}
			}
		}
		err := cmd.Start()
		if !errors.Is(err, unix.ETXTBSY) || wait > busyFor {
			return cmd, err
		}
		select {
		case <-ctx.Done():
			return cmd, err
		case <-time.After(wait):
		}
	}
}

// mayReadAll reports whether this process has the capability to read every file.
func mayReadAll() bool {
	var data [2]unix.CapUserData
	err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &data[0])
	return err == nil && data[0].Permitted&(1<<unix.CAP_DAC_READ_SEARCH) != 0
}

// watchProgram ends the process group of the program at its timeout, or when the agent is told to stop.
func watchProgram(ctx context.Context, c Command, pid int, start time.Time, ended <-chan struct{}) error {
	timeout, alive := afterOrNever(c.Timeout), time.NewTicker(max(c.AliveEvery, time.Second))
	defer alive.Stop()
	var cause error
	for cause == nil {
		select {
		case <-ended:
			return nil
		case <-timeout:
			cause = ErrTimeout
		case <-ctx.Done():
			cause = context.Cause(ctx)
		case <-alive.C:
			if c.Alive != nil && c.AliveEvery > 0 {
				c.Alive(time.Since(start))
			}
		}
	}
	select {
	case <-ended: // it ended by itself at the same time
		return nil
	default:
	}
	_ = syscall.Kill(-pid, syscall.SIGTERM)
	grace := time.After(c.Grace)
	if c.Gentle != nil && errors.Is(cause, c.Gentle) {
		grace = nil
	}
	select {
	case <-ended:
	case <-grace:
	}
	_ = syscall.Kill(-pid, syscall.SIGKILL) // including processes that the program left in its group
	return cause
}

func afterOrNever(d time.Duration) <-chan time.Time {
	if d <= 0 {
		return nil
	}
	return time.After(d)
}

func describeExit(r Result, state *os.ProcessState, err error) Result {
	if state == nil {
		r.Exit, r.Err = -1, fmt.Errorf("waiting for it: %w", err)
		return r
	}
	r.Exit = state.ExitCode()
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		r.Exit, r.Signal = -1, unix.SignalName(ws.Signal())
	}
	return r
}

// describeStartFailure explains why a program could not be started, and what to change.
func describeStartFailure(c Command, err error) Result {
	r := Result{Exit: cannotExecute}
	switch {
	case errors.Is(err, unix.ENOENT):
		r.Exit = notFound
		r.Err = fmt.Errorf("%s is not there on the host", c.Path)
		if first := readShebang(c); first != "" {
			r.Err = fmt.Errorf("its interpreter %q is not there on the host", first)
		} else if _, err := c.Root.Stat(c.Path); err == nil {
			r.Err = fmt.Errorf("the program that loads %s is not there on the host", c.Path)
		}
		if _, err := c.Root.Dir(c.Dir); err != nil {
			r.Err = fmt.Errorf("its working directory %s is not there on the host", c.Dir)
		}
	case errors.Is(err, unix.ENOEXEC):
		r.Err = fmt.Errorf("%s is neither a program nor a script: its first line must name the interpreter, such as #!/bin/sh", c.Path)
	case errors.Is(err, unix.EACCES):
		r.Err = explainDenied(c)
	case errors.Is(err, unix.ETXTBSY):
		r.Err = fmt.Errorf("another process on the host has %s open for writing, so that it cannot be executed", c.Path)
	default:
		var pe *os.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		r.Err = fmt.Errorf("starting %s: %w", c.Path, err)
	}
	return r
}

func explainDenied(c Command) error {
	if dir, _, err := c.Root.Parent(c.Path); err == nil {
		defer dir.Close()
		if dir.IsNoExec() {
			return fmt.Errorf("%s is on a file system of the host that is mounted noexec: nothing there can be executed; put the copy directories on another one", c.Path)
		}
	}
	return fmt.Errorf("the host does not allow to execute %s: it must be a file with its executable bit set, and so must its interpreter", c.Path)
}

// readShebang returns the interpreter of a script; empty if the file is not a script.
func readShebang(c Command) string {
	f, err := c.Root.Open(c.Path)
	if err != nil {
		return ""
	}
	defer f.Close()
	buf := make([]byte, 256)
	n, _ := f.Read(buf)
	first, _, _ := strings.Cut(string(buf[:n]), "\n")
	rest, ok := strings.CutPrefix(first, "#!")
	if fields := strings.Fields(rest); ok && len(fields) > 0 {
		if strings.HasSuffix(first, "\r") {
			return fields[0] + "\r"
		}
		return fields[0]
	}
	return ""
}
