// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// copier is one run of cp.
//
// It differs from other implementations where a package on a host needs it: a file is replaced atomically, so that a
// running program can be replaced and no partial file is ever visible; the new file has the mode of its source; and
// a recursive copy replaces a symbolic link in the target instead of writing through it, so that a second copy over a
// mounted ConfigMap, whose keys are links, works and never leaves the target.
type copier struct {
	opts   options
	umask  fs.FileMode
	made   map[inode]bool // folders this run made: none of them is copied again
	failed bool
}

type inode struct{ dev, ino uint64 }

func cp(args []string) int {
	opts, files, err := parseOptions(args, "rRaLPHdpfnvTt:", map[string]rune{
		"recursive": 'r', "archive": 'a', "dereference": 'L', "no-dereference": 'P', "preserve": 'p', "force": 'f',
		"no-clobber": 'n', "verbose": 'v', "no-target-directory": 'T', "target-directory": 't',
	})
	if err != nil {
		return printError("cp", err, 1)
	}
	if opts.has('R') || opts.has('a') {
		opts['r'] = ""
	}
	if opts.has('a') {
		opts['p'] = ""
	}
	if opts.has('d') || opts.has('a') {
		opts['P'] = ""
	}
	if opts.has('t') {
		files = append(files, opts['t'])
	}
	switch len(files) {
	case 0:
		return printError("cp", errors.New("name the files to copy and where to"), 1)
	case 1:
		return printError("cp", fmt.Errorf("name where to copy %s to", files[0]), 1)
	}
	mask := syscall.Umask(0)
	syscall.Umask(mask)
	c := &copier{opts: opts, umask: fs.FileMode(mask), made: map[inode]bool{}}
	c.copyAll(files[:len(files)-1], files[len(files)-1])
	if c.failed {
		return 1
	}
	return 0
}

func (c *copier) copyAll(from []string, to string) {
	st, err := os.Stat(to)
	into := err == nil && st.IsDir() && !c.opts.has('T')
	if !into && (len(from) > 1 || c.opts.has('t') || strings.HasSuffix(to, "/") && !c.opts.has('r')) {
		c.fail(fmt.Errorf("%s is not a folder", to))
		return
	}
	for _, src := range from {
		dst := to
		if into {
			dst = filepath.Join(to, filepath.Base(src))
		}
		c.copy(src, dst, true)
	}
}

func (c *copier) fail(err error) {
	c.failed = true
	printError("cp", err, 1)
}

// copy copies one file or directory; named tells whether it is on the command line. An error is printed, and the rest is copied.
func (c *copier) copy(src, dst string, named bool) {
	look := os.Lstat
	if c.opts.has('L') || c.opts.has('H') && named || !c.opts.has('r') && !c.opts.has('P') {
		look = os.Stat
	}
	st, err := look(src)
	if err != nil {
		c.fail(err)
		return
	}
	switch {
	case st.IsDir() && !c.opts.has('r'):
		err = fmt.Errorf("%s is a folder and not copied; -r copies folders", src)
	case st.IsDir():
		err = c.copyDir(src, st, dst, named)
	default:
		var skip bool
		if skip, err = c.mayReplace(src, st, dst); err == nil && !skip {
			c.printCopied(src, dst)
			err = c.copyFile(src, st, dst)
		}
	}
	if err != nil {
		c.fail(err)
	}
}

func (c *copier) printCopied(src, dst string) {
	if c.opts.has('v') {
		fmt.Printf("'%s' -> '%s'\n", src, dst)
	}
}

// mayReplace returns an error for what would destroy the source or a directory, and skips what -n keeps.
func (c *copier) mayReplace(src string, st fs.FileInfo, dst string) (skip bool, err error) {
	old, err := os.Lstat(dst)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if old.IsDir() {
		return false, fmt.Errorf("%s is a folder and not replaced by %s, which is none", dst, src)
	}
	if c.opts.has('n') {
		return true, nil
	}
	if old.Mode()&fs.ModeSymlink != 0 && !c.opts.has('r') && st.Mode()&fs.ModeSymlink == 0 {
		if old, err = os.Stat(dst); err != nil {
			return false, fmt.Errorf("%s is a link that leads nowhere; nothing is written through it", dst)
		}
	}
	if os.SameFile(st, old) {
		return false, fmt.Errorf("%s and %s are the same file", src, dst)
	}
	return false, nil
}

func (c *copier) copyDir(src string, st fs.FileInfo, dst string, named bool) error {
	if c.made[inodeOf(st)] {
		return fmt.Errorf("%s is part of the copy itself and left out", src)
	}
	look := os.Lstat
	if named { // a link to a folder that a person names is meant as the folder
		look = os.Stat
	}
	old, err := look(dst)
	made := errors.Is(err, fs.ErrNotExist)
	switch {
	case made:
		if err := os.Mkdir(dst, 0o700); err != nil {
			return err
		}
		c.printCopied(src, dst)
		if old, err = os.Lstat(dst); err != nil {
			return err
		}
		c.made[inodeOf(old)] = true
	case err != nil:
		return err
	case !old.IsDir():
		return fmt.Errorf("%s is not a folder and not replaced by folder %s", dst, src)
	case os.SameFile(st, old):
		return fmt.Errorf("%s and %s are the same folder", src, dst)
	}
	below, err := os.ReadDir(src)
	for _, e := range below {
		c.copy(filepath.Join(src, e.Name()), filepath.Join(dst, e.Name()), false)
	}
	if err != nil {
		return err
	}
	if made || c.opts.has('p') {
		return c.copyAttributes(dst, st)
	}
	return nil
}

func inodeOf(st fs.FileInfo) inode {
	s := st.Sys().(*syscall.Stat_t)
	return inode{uint64(s.Dev), s.Ino}
}
