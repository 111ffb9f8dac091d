// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/u-root/u-root/pkg/uroot/unixflag"
)

// copier is one run of cp.
//
// It is our own because a package on a host needs what others lack: a file is replaced atomically, so that a running
// program can be replaced and no partial file is ever visible; the new file has the mode of its source; and a recursive
// copy replaces a symbolic link in the target instead of writing through it, so that a second copy over a mounted
// ConfigMap, whose keys are links, works and never leaves the target.
type copier struct {
	recursive, follow bool
	umask             fs.FileMode
	made              map[inode]bool // folders this run made: none of them is copied again
	failed            bool
}

type inode struct{ dev, ino uint64 }

func cp(args []string) int {
	mask := syscall.Umask(0)
	syscall.Umask(mask)
	c := &copier{umask: fs.FileMode(mask), made: map[inode]bool{}}
	f := flag.NewFlagSet("cp", flag.ContinueOnError)
	f.BoolVar(&c.recursive, "r", false, "copy folders, and links as links")
	f.BoolVar(&c.recursive, "R", false, "the same")
	f.BoolVar(&c.follow, "L", false, "copy what links lead to")
	f.Bool("f", true, "no effect: files are always replaced")
	if err := f.Parse(unixflag.ArgsToGoArgs(args)); err != nil {
		return 1 // the flag set has printed it
	}
	if f.NArg() < 2 {
		return printError("cp", errors.New("name the files to copy and where to"), 1)
	}
	last := f.NArg() - 1
	c.copyAll(f.Args()[:last], f.Arg(last))
	if c.failed {
		return 1
	}
	return 0
}

func (c *copier) copyAll(from []string, to string) {
	st, err := os.Stat(to)
	into := err == nil && st.IsDir()
	if !into && (len(from) > 1 || strings.HasSuffix(to, "/") && !c.recursive) {
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
	look := os.Stat
	if c.recursive && !c.follow {
		look = os.Lstat
	}
	st, err := look(src)
	if err != nil {
		c.fail(err)
		return
	}
	switch {
	case st.IsDir() && !c.recursive:
		err = fmt.Errorf("%s is a folder and not copied; -r copies folders", src)
	case st.IsDir():
		err = c.copyDir(src, st, dst, named)
	default:
		err = c.copyFile(src, st, dst)
	}
	if err != nil {
		c.fail(err)
	}
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
	isNew := isMissing(err)
	switch {
	case isNew:
		if err := os.Mkdir(dst, 0o700); err != nil {
			return err
		}
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
	if err != nil || !isNew {
		return err
	}
	return os.Chmod(dst, st.Mode().Perm()&^c.umask)
}

func inodeOf(st fs.FileInfo) inode {
	s := st.Sys().(*syscall.Stat_t)
	return inode{uint64(s.Dev), s.Ino}
}

// copyFile copies a file or a link. The copy gets a temporary name and is then renamed.
func (c *copier) copyFile(src string, st fs.FileInfo, dst string) error {
	if !st.Mode().IsRegular() && st.Mode()&fs.ModeSymlink == 0 {
		return fmt.Errorf("%s is neither a file nor a folder and not copied", src)
	}
	if !c.recursive {
		if to, err := filepath.EvalSymlinks(dst); err == nil {
			dst = to // cp FILE LINK writes to what the link leads to
		}
	}
	switch old, err := os.Lstat(dst); {
	case err == nil && old.IsDir():
		return fmt.Errorf("%s is a folder and not replaced by %s, which is none", dst, src)
	case err == nil && os.SameFile(st, old):
		return fmt.Errorf("%s and %s are the same file", src, dst)
	}
	beside := filepath.Join(filepath.Dir(dst), fmt.Sprintf(".cp.%d", os.Getpid()))
	if err := os.Remove(beside); err != nil && !isMissing(err) {
		return err
	}
	err := c.createCopy(src, st, beside)
	if err == nil {
		err = os.Rename(beside, dst)
	}
	if err == nil {
		return nil
	}
	if rm := os.Remove(beside); rm != nil && !isMissing(rm) {
		err = errors.Join(err, rm)
	}
	return err
}

// createCopy makes a copy under an unused name, with the mode of the source as far as the umask allows.
func (c *copier) createCopy(src string, st fs.FileInfo, dst string) error {
	if st.Mode()&fs.ModeSymlink != 0 {
		target, err := os.Readlink(src)
		if err != nil {
			return err
		}
		return os.Symlink(target, dst)
	}
	in, err := os.Open(src)
	if err != nil {
		return err
	}
	out, err := os.OpenFile(dst, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return errors.Join(err, in.Close())
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Chmod(st.Mode().Perm()&^c.umask), out.Close(), in.Close())
}
