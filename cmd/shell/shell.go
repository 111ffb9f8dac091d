// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Shell is the only program of our package images: /bin/sh, cp, mkdir and a few more, selected by the name they are
// called by. It is static and built for every platform, so that a package image needs no distribution below it.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/u-root/u-root/pkg/core"
	"github.com/u-root/u-root/pkg/core/cat"
	"github.com/u-root/u-root/pkg/core/chmod"
	"github.com/u-root/u-root/pkg/core/ls"
	"github.com/u-root/u-root/pkg/core/mkdir"
	"github.com/u-root/u-root/pkg/core/mv"
	"github.com/u-root/u-root/pkg/core/rm"
)

// applet is one command. It prints errors to standard error and returns its exit code.
type applet func(args []string) int

func listApplets() map[string]applet {
	return map[string]applet{
		"sh": sh, "bash": sh, "cp": cp, "sleep": sleep,
		"cat": runCore("cat", cat.New()), "chmod": runCore("chmod", chmod.New()), "ls": runCore("ls", ls.New()),
		"mkdir": runCore("mkdir", mkdir.New()), "mv": runCore("mv", mv.New()), "rm": runCore("rm", rm.New()),
	}
}

func main() {
	os.Exit(run(os.Args))
}

// run finds the command by the name of the program; by any other name the program is the shell.
func run(args []string) int {
	if cmd, known := listApplets()[filepath.Base(args[0])]; known {
		return cmd(args[1:])
	}
	return sh(args[1:])
}

// runCore runs a command of u-root. One that printed an error has failed: u-root's mkdir returns none of its errors.
func runCore(name string, cmd core.Command) applet {
	return func(args []string) int {
		problems := &countingWriter{to: os.Stderr}
		cmd.SetIO(os.Stdin, os.Stdout, problems)
		if err := cmd.Run(args...); err != nil {
			return printError(name, err, 1)
		}
		return min(problems.bytes, 1)
	}
}

// sleep takes seconds, or a number with s, m or h.
func sleep(args []string) int {
	for _, arg := range args {
		long, err := time.ParseDuration(arg)
		if err != nil {
			long, err = time.ParseDuration(arg + "s")
		}
		if err != nil {
			return printError("sleep", err, 1)
		}
		time.Sleep(long)
	}
	return 0
}

// countingWriter counts what it writes.
type countingWriter struct {
	to    io.Writer
	bytes int
}

func (w *countingWriter) Write(text []byte) (int, error) {
	n, err := w.to.Write(text)
	w.bytes += n
	if err != nil {
		return n, fmt.Errorf("writing an error: %w", err)
	}
	return n, nil
}

// printError prints an error as `cp: text` and returns the exit code.
func printError(name string, err error, code int) int {
	fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
	return code
}

// isMissing reports whether a file does not exist.
func isMissing(err error) bool { return errors.Is(err, os.ErrNotExist) }
