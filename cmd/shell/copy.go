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
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// copyFile copies everything but a directory. The copy gets a temporary name and is then renamed.
func (c *copier) copyFile(src string, st fs.FileInfo, dst string) error {
	if !c.opts.has('r') && st.Mode()&fs.ModeSymlink == 0 {
		if to, err := filepath.EvalSymlinks(dst); err == nil {
			dst = to // cp FILE LINK writes to what the link leads to
		}
	}
	if old, err := os.Lstat(dst); err == nil && old.Mode()&(fs.ModeDevice|fs.ModeNamedPipe) != 0 && !c.opts.has('r') {
		return overwrite(src, dst)
	}
	beside := filepath.Join(filepath.Dir(dst), fmt.Sprintf(".cp.%d", os.Getpid()))
	if err := os.Remove(beside); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err := c.createTemporary(src, st, beside)
	if err == nil {
		err = os.Rename(beside, dst)
	}
	if err == nil {
		return nil
	}
	if rm := os.Remove(beside); rm != nil && !errors.Is(rm, fs.ErrNotExist) {
		err = errors.Join(err, rm)
	}
	// A mount point cannot be replaced, and a directory may be read-only while its files are not.
	if st.Mode().IsRegular() && (errors.Is(err, syscall.EBUSY) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS)) {
		if old, look := os.Lstat(dst); look == nil && old.Mode().IsRegular() {
			return overwrite(src, dst)
		}
	}
	return renameInError(err, beside, dst)
}

// renameInError replaces the temporary name in an error by the requested one.
func renameInError(err error, beside, dst string) error {
	var p *fs.PathError
	if errors.As(err, &p) && p.Path == beside {
		return &fs.PathError{Op: p.Op, Path: dst, Err: p.Err}
	}
	return err
}

// createTemporary makes a copy under an unused name.
func (c *copier) createTemporary(src string, st fs.FileInfo, dst string) error {
	switch mode := st.Mode(); {
	case mode&fs.ModeSymlink != 0:
		target, err := os.Readlink(src)
		if err != nil {
			return err
		}
		if err := os.Symlink(target, dst); err != nil {
			return err
		}
		return c.copyAttributes(dst, st)
	case mode&fs.ModeSocket != 0:
		return fmt.Errorf("%s is a socket, which cannot be copied", src)
	case mode&(fs.ModeDevice|fs.ModeNamedPipe) != 0 && c.opts.has('r'):
		s := st.Sys().(*syscall.Stat_t)
		if err := unix.Mknod(dst, s.Mode, int(s.Rdev)); err != nil {
			return &fs.PathError{Op: "mknod", Path: dst, Err: err}
		}
		return c.copyAttributes(dst, st)
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
	if err = errors.Join(err, out.Close(), in.Close()); err != nil {
		return err
	}
	return c.copyAttributes(dst, st)
}

// overwrite writes into the existing file.
func overwrite(src, dst string) error {
	in, err := os.Open(src)
	if err != nil {
		return err
	}
	out, err := os.OpenFile(dst, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return errors.Join(err, in.Close())
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close(), in.Close())
}

// copyAttributes sets the mode of the source on a copy, as far as the umask allows, and with -p the whole mode, the owner and
// the times. An owner that only root can set is skipped without an error, as in other implementations.
func (c *copier) copyAttributes(dst string, st fs.FileInfo) error {
	link := st.Mode()&fs.ModeSymlink != 0
	if c.opts.has('p') {
		s := st.Sys().(*syscall.Stat_t)
		if err := os.Lchown(dst, int(s.Uid), int(s.Gid)); err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	if !link {
		mode := st.Mode().Perm() &^ c.umask
		if c.opts.has('p') {
			mode = st.Mode() & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)
		}
		if err := os.Chmod(dst, mode); err != nil {
			return err
		}
	}
	if !c.opts.has('p') {
		return nil
	}
	when := unix.NsecToTimespec(st.ModTime().UnixNano())
	seen := unix.NsecToTimespec(accessTime(st).UnixNano())
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, dst, []unix.Timespec{seen, when}, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &fs.PathError{Op: "utimes", Path: dst, Err: err}
	}
	return nil
}

func accessTime(st fs.FileInfo) time.Time {
	s := st.Sys().(*syscall.Stat_t)
	return time.Unix(int64(s.Atim.Sec), int64(s.Atim.Nsec))
}
