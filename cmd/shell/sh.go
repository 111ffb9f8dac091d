// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/interp"
	"mvdan.cc/sh/v3/syntax"
)

const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// An invocation is a command line of the shell.
type invocation struct {
	set     []string // options for `set`
	command *string
	name    string // $0
	params  []string
	stdin   bool
	ask     bool // -i
}

// sh runs a command (-c), a script, standard input, or interactive input. It understands bash, except that apart from
// umask it has no built-in command for processes or limits (kill, jobs, ulimit).
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
	runner, err := interp.New(
		interp.StdIO(os.Stdin, os.Stdout, os.Stderr),
		interp.Params(append(append(inv.set, "--"), inv.params...)...),
		interp.CallHandler(umask),
		interp.ExecHandlers(newExecHandler),
	)
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
	if err != nil {
		return printError("sh", err, 2)
	}
	return 0
}

// stopped is the signal that ended the shell.
type stopped struct{ syscall.Signal }

func (s stopped) Error() string { return "stopped by " + s.String() }

func parseSh(args []string) (invocation, error) {
	inv := invocation{name: "sh"}
	command := false
	for len(args) > 0 && len(args[0]) > 1 && strings.ContainsRune("-+", rune(args[0][0])) {
		arg := args[0]
		args = args[1:]
		if arg == "--" {
			break
		}
		for _, letter := range arg[1:] {
			switch letter {
			case 'c':
				command = true
			case 's':
				inv.stdin = true
			case 'i':
				inv.ask = true
			case 'l': // there is no profile to read
			case 'o':
				if len(args) == 0 {
					return inv, fmt.Errorf("option %co needs a value, e.g. pipefail", arg[0])
				}
				inv.set = append(inv.set, arg[:1]+"o", args[0])
				args = args[1:]
			default:
				inv.set = append(inv.set, arg[:1]+string(letter))
			}
		}
	}
	if command {
		if len(args) == 0 {
			return inv, errors.New("option -c needs a command")
		}
		inv.command, args = &args[0], args[1:]
	}
	if len(args) > 0 && !inv.stdin {
		inv.name, args = args[0], args[1:]
	} else if !command {
		inv.stdin = true
	}
	inv.params = args
	return inv, nil
}

func (inv invocation) runInput(ctx context.Context, r *interp.Runner) error {
	switch {
	case inv.command != nil:
		return runScript(ctx, r, strings.NewReader(*inv.command), inv.name)
	case !inv.stdin:
		f, err := os.Open(inv.name)
		if err != nil {
			printError("sh", err, 0)
			return interp.ExitStatus(127)
		}
		return errors.Join(runScript(ctx, r, f, inv.name), f.Close())
	}
	if st, err := os.Stdin.Stat(); inv.ask || err == nil && st.Mode()&os.ModeCharDevice != 0 {
		return runInteractive(ctx, r)
	}
	return runScript(ctx, r, os.Stdin, inv.name)
}

// runScript reads a whole script, then runs it.
func runScript(ctx context.Context, r *interp.Runner, text io.Reader, name string) error {
	prog, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(text, name)
	if err != nil {
		return err
	}
	return r.Run(ctx, prog)
}

// runInteractive runs interactive input line by line; an error does not end it.
func runInteractive(ctx context.Context, r *interp.Runner) error {
	parser := syntax.NewParser()
	for {
		fmt.Fprint(os.Stderr, "# ")
		var last error
		for stmts, err := range parser.InteractiveSeq(os.Stdin) {
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				last = err
				break
			}
			if parser.Incomplete() {
				fmt.Fprint(os.Stderr, "> ")
				continue
			}
			for _, s := range stmts {
				err := r.Run(ctx, s)
				if r.Exited() || ctx.Err() != nil {
					return err
				}
			}
			fmt.Fprint(os.Stderr, "# ")
		}
		if last == nil {
			return nil
		}
	}
}

// umask is the one command of the shell that acts on the process and is often written.
func umask(ctx context.Context, args []string) ([]string, error) {
	if args[0] != "umask" {
		return args, nil
	}
	hc := interp.HandlerCtx(ctx)
	if len(args) == 1 {
		now := syscall.Umask(0)
		syscall.Umask(now)
		_, err := fmt.Fprintf(hc.Stdout, "%04o\n", now)
		return []string{strconv.FormatBool(err == nil)}, nil // the command true or false
	}
	mask, err := strconv.ParseUint(args[1], 8, 9)
	if err != nil {
		_, err := fmt.Fprintf(hc.Stderr, "umask: %s is not an octal mask, e.g. 022\n", args[1])
		return []string{"false"}, err
	}
	syscall.Umask(int(mask))
	return []string{"true"}, nil
}

// newExecHandler runs commands that are not built in. When the shell is stopped, the program gets SIGTERM and all the time it needs:
// the container limits it.
func newExecHandler(next interp.ExecHandlerFunc) interp.ExecHandlerFunc {
	return func(ctx context.Context, args []string) error {
		hc := interp.HandlerCtx(ctx)
		file, err := interp.LookPathDir(hc.Dir, hc.Env, args[0])
		if err != nil {
			code, why := uint8(127), errors.New("not found")
			if strings.Contains(args[0], "/") && !errors.Is(err, os.ErrNotExist) {
				code, why = 126, err
			}
			return reportStartError(hc, fmt.Errorf("%s: %s", args[0], describeError(why)), code)
		}
		cmd := exec.CommandContext(ctx, file)
		cmd.Args, cmd.Dir, cmd.Env = args, hc.Dir, listExported(hc.Env)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = hc.Stdin, hc.Stdout, hc.Stderr
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		err = cmd.Start()
		if err != nil {
			if errors.Is(err, syscall.ENOEXEC) || errors.Is(err, syscall.ETXTBSY) {
				return next(ctx, args) // which knows how to run a script without a first line, and when to try again
			}
			if errors.Is(err, os.ErrNotExist) {
				return reportStartError(hc, err, 127)
			}
			return reportStartError(hc, err, 126)
		}
		return exitStatus(cmd.Wait())
	}
}

// reportStartError reports why a program did not start.
func reportStartError(hc interp.HandlerContext, err error, code uint8) error {
	if _, err := fmt.Fprintf(hc.Stderr, "sh: %s\n", describeError(err)); err != nil {
		return err
	}
	return interp.ExitStatus(code)
}

// exitStatus is the exit status of a program: 128 plus the number of the signal, or the exit code.
func exitStatus(err error) error {
	var ended *exec.ExitError
	if !errors.As(err, &ended) {
		return err
	}
	if w, is := ended.Sys().(syscall.WaitStatus); is && w.Signaled() {
		return interp.ExitStatus(128 + int(w.Signal()))
	}
	return interp.ExitStatus(ended.ExitCode())
}

func listExported(env expand.Environ) []string {
	var all []string
	env.Each(func(name string, v expand.Variable) bool {
		if v.IsSet() && v.Exported && v.Kind == expand.String {
			all = append(all, name+"="+v.String())
		}
		return true
	})
	return all
}
