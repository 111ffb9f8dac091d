// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// runOnFiles runs a command on several files; an error does not stop the rest.
func runOnFiles(name string, files []string, act func(file string) error) int {
	if len(files) == 0 {
		return printError(name, errors.New("name at least one file"), 1)
	}
	code := 0
	for _, f := range files {
		if err := act(f); err != nil {
			code = printError(name, err, 1)
		}
	}
	return code
}

func parseMode(text string) (fs.FileMode, error) {
	bits, err := strconv.ParseUint(text, 8, 12)
	if err != nil {
		return 0, fmt.Errorf("mode %s is not an octal number, e.g. 0755", text)
	}
	mode := fs.FileMode(bits) & fs.ModePerm
	for bit, is := range map[uint64]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if bits&bit != 0 {
			mode |= is
		}
	}
	return mode, nil
}

func mkdir(args []string) int {
	opts, dirs, err := parseOptions(args, "pvm:", map[string]rune{"parents": 'p', "mode": 'm', "verbose": 'v'})
	if err != nil {
		return printError("mkdir", err, 1)
	}
	var mode fs.FileMode
	if opts.has('m') {
		if mode, err = parseMode(opts['m']); err != nil {
			return printError("mkdir", err, 1)
		}
	}
	return runOnFiles("mkdir", dirs, func(dir string) error {
		if _, err := os.Stat(dir); err == nil && opts.has('p') {
			return mustBeDir(dir)
		}
		if opts.has('p') {
			if err := os.MkdirAll(filepath.Dir(filepath.Clean(dir)), 0o777); err != nil { //nolint:gosec // the umask decides, as for every mkdir
				return err
			}
		}
		if err := os.Mkdir(dir, 0o777); err != nil && (!opts.has('p') || !errors.Is(err, fs.ErrExist)) { //nolint:gosec // the umask decides, as for every mkdir
			return err
		}
		if opts.has('v') {
			fmt.Printf("created %s\n", dir)
		}
		if opts.has('m') {
			return os.Chmod(dir, mode)
		}
		return mustBeDir(dir)
	})
}

func mustBeDir(dir string) error {
	st, err := os.Stat(dir)
	if err == nil && !st.IsDir() {
		return fmt.Errorf("%s is there and not a folder", dir)
	}
	return err
}

func rm(args []string) int {
	opts, files, err := parseOptions(args, "rRfdv", map[string]rune{"recursive": 'r', "force": 'f', "verbose": 'v'})
	if err != nil {
		return printError("rm", err, 1)
	}
	if len(files) == 0 && opts.has('f') {
		return 0
	}
	return runOnFiles("rm", files, func(file string) error {
		if base := filepath.Base(file); base == "." || base == ".." || filepath.Clean(file) == "/" {
			return fmt.Errorf("%s is not removed", file)
		}
		st, err := os.Lstat(file)
		if opts.has('f') && errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if opts.has('r') || opts.has('R') {
			return os.RemoveAll(file)
		}
		if st.IsDir() && !opts.has('d') {
			return fmt.Errorf("%s is a folder; -r removes folders", file)
		}
		return os.Remove(file)
	})
}

func ln(args []string) int {
	opts, files, err := parseOptions(args, "sfnTv", map[string]rune{"symbolic": 's', "force": 'f', "no-dereference": 'n'})
	if err != nil {
		return printError("ln", err, 1)
	}
	if len(files) < 2 {
		return printError("ln", errors.New("name what to link to and the name of the link"), 1)
	}
	to := files[len(files)-1]
	look := os.Stat
	if opts.has('n') || opts.has('T') {
		look = os.Lstat
	}
	st, err := look(to)
	into := err == nil && st.IsDir() && !opts.has('T')
	if len(files) > 2 && !into {
		return printError("ln", fmt.Errorf("%s is not a folder", to), 1)
	}
	return runOnFiles("ln", files[:len(files)-1], func(target string) error {
		name := to
		if into {
			name = filepath.Join(to, filepath.Base(target))
		}
		if opts.has('f') {
			if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		if opts.has('s') {
			return os.Symlink(target, name)
		}
		return os.Link(target, name)
	})
}

func chmod(args []string) int {
	// A mode such as -x would look like a flag; only octal modes and +x are taken.
	if len(args) < 2 {
		return printError("chmod", errors.New("name a mode and the files"), 1)
	}
	return runOnFiles("chmod", args[1:], func(file string) error {
		if args[0] == "+x" {
			st, err := os.Stat(file)
			if err != nil {
				return err
			}
			return os.Chmod(file, st.Mode()|0o111)
		}
		mode, err := parseMode(args[0])
		if err != nil {
			return err
		}
		return os.Chmod(file, mode)
	})
}

func cat(args []string) int {
	_, files, err := parseOptions(args, "u", nil)
	if err != nil {
		return printError("cat", err, 1)
	}
	if len(files) == 0 {
		files = []string{"-"}
	}
	return runOnFiles("cat", files, func(file string) error {
		if file == "-" {
			_, err := io.Copy(os.Stdout, os.Stdin)
			return err
		}
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		_, err = io.Copy(os.Stdout, f)
		return errors.Join(err, f.Close())
	})
}
