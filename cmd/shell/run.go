// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func echo(args []string) int {
	end := "\n"
	if len(args) > 0 && args[0] == "-n" {
		args, end = args[1:], ""
	}
	if _, err := fmt.Print(strings.Join(args, " ") + end); err != nil {
		return printError("echo", err, 1)
	}
	return 0
}

// sleep takes seconds, also fractions, and s, m, h or d after a number; several are added.
func sleep(args []string) int {
	if len(args) == 0 {
		return printError("sleep", errors.New("say how long, in seconds"), 1)
	}
	var long time.Duration
	units := map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour}
	for _, arg := range args {
		number, unit := arg, time.Second
		if arg != "" && units[arg[len(arg)-1]] != 0 {
			number, unit = arg[:len(arg)-1], units[arg[len(arg)-1]]
		}
		n, err := strconv.ParseFloat(number, 64)
		if arg == "infinity" || arg == "inf" {
			for {
				time.Sleep(math.MaxInt64)
			}
		}
		if err != nil || n < 0 || n > 1e8 {
			return printError("sleep", fmt.Errorf("%q is not a time; write seconds, or a number with s, m, h or d", arg), 1)
		}
		long += time.Duration(n * float64(unit))
	}
	time.Sleep(long)
	return 0
}

// chroot runs a program in another root, e.g. the mounted root of the host.
func chroot(args []string) int {
	if len(args) == 0 {
		return printError("chroot", errors.New("name the new root and a command"), 125)
	}
	command := args[1:]
	if len(command) == 0 {
		command = []string{"/bin/sh", "-i"}
	}
	if err := syscall.Chroot(args[0]); err != nil {
		return printError("chroot", fmt.Errorf("%s: %w", args[0], err), 125)
	}
	if err := os.Chdir("/"); err != nil {
		return printError("chroot", err, 125)
	}
	file, err := exec.LookPath(command[0])
	if err != nil {
		return printError("chroot", err, 127)
	}
	err = syscall.Exec(file, command, os.Environ())
	return printError("chroot", fmt.Errorf("%s: %w", file, err), 126)
}
