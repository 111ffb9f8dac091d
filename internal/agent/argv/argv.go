// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package argv is the command line of the agent: the four forms that operators use, and commands for people.
package argv

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/skyhook-k8s/skyhook/internal/agent"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// Line is one command line with its environment.
type Line struct {
	Args           []string
	Environ        []string
	Stdout, Stderr io.Writer
	// Version is the version of the program.
	Version string
	// Prepare, if set, is called with the agent before it runs. Tests use it to kill the agent.
	Prepare func(*agent.Agent)
}

// usageError is an invalid command line.
type usageError struct{ error }

// exitStatus ends a command that has printed its result with an exit code.
type exitStatus struct{ code int }

func (e exitStatus) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// Run executes a command line and returns the exit code.
func Run(l Line) (code int) {
	defer func() {
		if crash := recover(); crash != nil {
			fmt.Fprintf(l.Stderr, "the agent crashed: %v\n%s", crash, debug.Stack())
			code = pack.HostProblem.ExitCode()
		}
	}()
	// A run ends before garbage collection pays off; the limit bounds memory as docs/internals/agent.md documents.
	debug.SetGCPercent(400)
	debug.SetMemoryLimit(14 << 20)
	unix.Umask(0o022) // for files of steps; the agent sets the modes of its own files
	root := l.newCommand()
	root.SetArgs(l.Args)
	root.SetOut(l.Stdout)
	root.SetErr(l.Stderr)
	cmd, err := root.ExecuteC()
	var end exitStatus
	var usage usageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &end):
		return end.code
	case errors.As(err, &usage):
		fmt.Fprintf(l.Stderr, "skyhook-agent: %v\n\n%s", usage.error, cmd.UsageString())
		return pack.BadUsage.ExitCode()
	}
	fmt.Fprintf(l.Stderr, "skyhook-agent: %v\n", err)
	return 1
}

func (l Line) newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "skyhook-agent MODE [ROOT_MOUNT] COPY_DIR [INTERRUPT]",
		Short: "Run the steps of a package on this host",
		Long: "Run the steps of a package on this host.\n\n" +
			"Operators call it as MODE ROOT_MOUNT COPY_DIR, or as MODE ROOT_MOUNT COPY_DIR INTERRUPT; without ROOT_MOUNT it is " +
			pack.DefaultRootMount + ".\nModes: " + modeNames() + ".",
		Version:       l.Version,
		SilenceErrors: true, SilenceUsage: true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		Args:              cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			req, known, err := ParseModeForm(args)
			if err != nil {
				return usageError{err}
			}
			if !known {
				fmt.Fprintf(l.Stderr, "warning: mode %q is not known to this agent, so there is nothing to do; it knows %s\n", args[0], modeNames())
				return nil
			}
			return l.runAgent(req, nil)
		},
	}
	root.SetVersionTemplate("skyhook-agent {{.Version}}\n")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(l.runCommand(), l.interruptCommand(), l.sentinelCommand(), l.kairosCommand(), l.validateCommand(), l.planCommand(), l.statusCommand(), l.logsCommand(), l.gcCommand())
	return root
}

// ParseModeForm parses the four forms that operators use. known is false for a mode that this version does not know.
func ParseModeForm(args []string) (req agent.Request, known bool, err error) {
	if len(args) < 2 || len(args) > 4 {
		return req, false, fmt.Errorf("%d arguments given: it takes MODE COPY_DIR, MODE ROOT_MOUNT COPY_DIR, or MODE ROOT_MOUNT COPY_DIR INTERRUPT", len(args))
	}
	req.Mode, known = pack.ParseMode(args[0])
	req.RootMount = pack.DefaultRootMount
	switch {
	case len(args) == 2:
		req.CopyDir = args[1]
	case len(args) == 3 && req.Mode == pack.ModeInterrupt:
		req.CopyDir, req.Interrupt = args[1], args[2]
	case len(args) == 3:
		req.RootMount, req.CopyDir = args[1], args[2]
	default:
		req.RootMount, req.CopyDir, req.Interrupt = args[1], args[2], args[3]
	}
	switch {
	case !known:
		return req, false, nil
	case req.Mode == pack.ModeInterrupt && req.Interrupt == "":
		return req, true, errors.New("interrupt needs the interrupt as its last argument, base64 of an object such as {\"type\": \"no_op\"}")
	case req.Mode != pack.ModeInterrupt && !strings.HasPrefix(req.CopyDir, "/"):
		return req, true, fmt.Errorf("COPY_DIR %q must be an absolute path as the host sees it", req.CopyDir)
	}
	return req, true, nil
}

// runAgent runs the agent until it ends or receives a signal.
func (l Line) runAgent(req agent.Request, change func(*agent.Settings)) error {
	set := agent.ReadSettings(l.Environ)
	if change != nil {
		change(&set)
	}
	a, err := agent.New(req, set, l.Version, l.Stdout)
	if err != nil {
		return usageError{err}
	}
	if l.Prepare != nil {
		l.Prepare(a)
	}
	stop := make(chan struct{})
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(told)
	go func() {
		if _, ok := <-told; ok {
			close(stop)
		}
	}()
	m := a.Run(stop)
	if m.Class == pack.BadUsage {
		return usageError{errors.New(m.Reason)}
	}
	if code := m.Class.ExitCode(); code != 0 {
		return exitStatus{code}
	}
	return nil
}

func modeNames() string {
	var names []string
	for _, m := range pack.Modes() {
		names = append(names, string(m))
	}
	return strings.Join(names, ", ")
}
