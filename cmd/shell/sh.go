// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"math"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"mvdan.cc/sh/v3/interp"
	"mvdan.cc/sh/v3/syntax"
)

const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// sh runs a command (-c), a script, or standard input. It understands bash, except that it has no built-in command for
// processes or limits (kill, jobs, ulimit, umask).
func sh(args []string) int {
	inv, err := parseSh(args)
	if err != nil {
		return printError("sh", err, 2)
	}
	if os.Getenv("PATH") == "" {
		if err := os.Setenv("PATH", searchPath); err != nil {
			return printError("sh", err, 2)
		}
	}
	runner, err := interp.New(interp.StdIO(os.Stdin, os.Stdout, os.Stderr), interp.Params(append(append(inv.options, "--"), inv.params...)...),
		// A program that is stopped gets all the time it needs: the container limits it.
		interp.ExecHandlers(func(interp.ExecHandlerFunc) interp.ExecHandlerFunc { return interp.DefaultExecHandler(math.MaxInt64) }))
	if err != nil {
		return printError("sh", err, 2)
	}
	ctx, stop := context.WithCancelCause(context.Background())
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	go func() { stop(stopped{(<-caught).(syscall.Signal)}) }()
	err = inv.runInput(ctx, runner)
	var by stopped
	if errors.As(context.Cause(ctx), &by) {
		return 128 + int(by.Signal)
	}
	var status interp.ExitStatus
	if errors.As(err, &status) {
		return int(status)
	}
	if isMissing(err) {
		return printError("sh", err, 127)
	}
	if err != nil {
		return printError("sh", err, 2)
	}
	return 0
}

// stopped is the signal that ended the shell.
type stopped struct{ syscall.Signal }

func (s stopped) Error() string { return "stopped by " + s.String() }

// An invocation is a command line of the shell.
type invocation struct {
	options []string // for `set`
	command *string
	name    string // $0; the script, unless there is a command
	params  []string
}

func parseSh(args []string) (invocation, error) {
	inv := invocation{}
	hasCommand := false
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		letters := args[0][1:]
		args = args[1:]
		for _, letter := range letters {
			switch letter {
			case 'c':
				hasCommand = true
			case 'o':
				if len(args) == 0 {
					return inv, errors.New("option -o needs a value, e.g. pipefail")
				}
				inv.options, args = append(inv.options, "-o", args[0]), args[1:]
			default:
				inv.options = append(inv.options, "-"+string(letter))
			}
		}
	}
	if hasCommand {
		if len(args) == 0 {
			return inv, errors.New("option -c needs a command")
		}
		inv.command, args = &args[0], args[1:]
	}
	if len(args) > 0 {
		inv.name, inv.params = args[0], args[1:]
	}
	return inv, nil
}

func (inv invocation) runInput(ctx context.Context, r *interp.Runner) error {
	switch {
	case inv.command != nil && inv.name == "":
		return runScript(ctx, r, strings.NewReader(*inv.command), "sh")
	case inv.command != nil:
		return runScript(ctx, r, strings.NewReader(*inv.command), inv.name)
	case inv.name == "":
		return runScript(ctx, r, os.Stdin, "sh")
	}
	f, err := os.Open(inv.name)
	if err != nil {
		return err
	}
	return errors.Join(runScript(ctx, r, f, inv.name), f.Close())
}

// runScript reads a whole script, then runs it.
func runScript(ctx context.Context, r *interp.Runner, text io.Reader, name string) error {
	prog, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(text, name)
	if err != nil {
		return err
	}
	return r.Run(ctx, prog)
}
