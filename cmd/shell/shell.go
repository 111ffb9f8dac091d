// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Shell is the only program of our package images: /bin/sh, cp, mkdir and a few more, selected by the name they are
// called by. It is static and built for every platform, so that a package image needs no distribution below it.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// applet is one command. It prints errors to standard error and returns its exit code.
type applet func(args []string) int

func listApplets() map[string]applet {
	return map[string]applet{
		"sh": sh, "bash": sh,
		"cp": cp, "mkdir": mkdir, "rm": rm, "ln": ln, "ls": ls, "cat": cat, "chmod": chmod, "chroot": chroot,
		"sleep": sleep, "echo": echo,
		"true":  func([]string) int { return 0 },
		"false": func([]string) int { return 1 },
	}
}

func main() {
	os.Exit(run(os.Args))
}

// run finds the command by the name of the program, or by the first argument when the program has a name of its own.
func run(args []string) int {
	all := listApplets()
	name := filepath.Base(args[0])
	if name != "" && name[0] == '-' { // a login shell
		name = name[1:]
	}
	if cmd, known := all[name]; known {
		return cmd(args[1:])
	}
	if len(args) > 1 {
		if cmd, known := all[args[1]]; known {
			return cmd(args[2:])
		}
		return printError(args[1], errors.New("there is no such command in this image"), 127)
	}
	return sh(nil)
}

// printError prints an error as `cp: text` and returns the exit code.
func printError(name string, err error, code int) int {
	fmt.Fprintf(os.Stderr, "%s: %s\n", name, describeError(err))
	return code
}

// describeError formats an error as commands print it: the file, then the error.
func describeError(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return fmt.Sprintf("%s: %s", p.Path, trimErrno(p.Err))
	}
	var l *os.LinkError
	if errors.As(err, &l) {
		return fmt.Sprintf("%s: %s", l.New, trimErrno(l.Err))
	}
	return err.Error()
}

func trimErrno(err error) string {
	var n syscall.Errno
	if errors.As(err, &n) && n == syscall.ENOENT {
		return "no such file or directory"
	}
	return err.Error()
}
