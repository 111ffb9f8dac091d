// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// Copy copies the tree of from into the directory to, which is made if it is missing, and then only root may enter it: the config in it is not
// private yet. Links are copied as links; anything but files, directories and links is an error.
func (d *Dir) Copy(from *os.Root, to string) error {
	d.notifyChange("copy", to)
	return fs.WalkDir(from.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("reading %s: %w", name, stripPath(err))
		}
		if err := d.copyEntry(from, name, path.Join(to, name), e); err != nil {
			return d.describeError("copying to", path.Join(to, name), err)
		}
		return nil
	})
}

func (d *Dir) copyEntry(from *os.Root, name, to string, e fs.DirEntry) error {
	st, err := e.Info()
	if err != nil {
		return err
	}
	switch {
	case e.IsDir():
		mode := fs.FileMode(0o755)
		if name == "." {
			mode = 0o700
		}
		if err := d.Mkdir(to, mode); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return nil
	case st.Mode()&fs.ModeSymlink != 0:
		target, err := from.Readlink(name)
		if err != nil {
			return err
		}
		return d.Symlink(target, to)
	case st.Mode().IsRegular():
		return d.copyFile(from, name, to, st.Mode())
	}
	return fmt.Errorf("%s is neither a file nor a directory nor a link", name)
}

// copyFile copies one file, following links that stay inside from.
func (d *Dir) copyFile(from *os.Root, name, to string, mode fs.FileMode) error {
	in, err := from.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := d.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode.Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err == nil {
		err = out.Chmod(mode)
	}
	return errors.Join(err, out.Close())
}

// CopyNames copies entries of from into the directory to, which is made if it is missing. A directory is listed before what is in it, and is
// copied without it.
func (d *Dir) CopyNames(from *os.Root, names []string, to string) error {
	if err := d.Mkdir(to, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return d.describeError("making", to, err)
	}
	for _, name := range names {
		d.notifyChange("copy", path.Join(to, name))
		st, err := from.Lstat(name)
		if err == nil {
			err = d.copyEntry(from, name, path.Join(to, name), fs.FileInfoToDirEntry(st))
		}
		if err != nil {
			return d.describeError("copying to", path.Join(to, name), err)
		}
	}
	return nil
}

// Flatten replaces the links of a mounted ConfigMap by plain private files. It is idempotent.
func (d *Dir) Flatten(name string) error {
	list, err := d.Names(name)
	if err != nil || len(list) == 0 {
		return err
	}
	if err := d.Chmod(name, 0o700); err != nil {
		return d.describeError("protecting", name, err)
	}
	for _, e := range list {
		file := path.Join(name, e.Name())
		if len(e.Name()) > 2 && e.Name()[:2] == ".." {
			continue
		}
		st, err := d.Stat(file) // of the target of the link
		if err != nil {
			return d.describeError("reading", file, err)
		}
		if st.IsDir() {
			continue
		}
		if e.Type()&fs.ModeSymlink == 0 {
			if err := d.Chmod(file, PrivateMode(st.Mode())); err != nil {
				return d.describeError("protecting", file, err)
			}
			continue
		}
		if err := d.flattenFile(file, st.Mode()); err != nil {
			return err
		}
	}
	for _, e := range list { // only when no link refers to them any more
		if len(e.Name()) > 2 && e.Name()[:2] == ".." {
			if err := d.DeleteAll(path.Join(name, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *Dir) flattenFile(file string, mode fs.FileMode) error {
	in, err := d.Open(file)
	if err != nil {
		return d.describeError("reading", file, err)
	}
	defer in.Close()
	return d.writeOnce(file, in, attributes{mode: PrivateMode(mode)}, false)
}

// PrivateMode keeps the permissions of the owner only: configuration may hold secrets.
func PrivateMode(mode fs.FileMode) fs.FileMode { return mode.Perm() & 0o700 }

// Digest is the SHA-256 of a file's content, in hex.
func (d *Dir) Digest(name string) (string, error) {
	f, err := d.Open(name)
	if err != nil {
		return "", d.describeError("reading", name, err)
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", d.describeError("reading", name, err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// Files lists everything but directories below a directory, sorted, with relative paths.
func (d *Dir) Files(name string) ([]string, error) {
	var files []string
	err := fs.WalkDir(d.FS(), name, func(file string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			rel := file
			if name != "." {
				rel = file[len(name)+1:]
			}
			files = append(files, rel)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return files, d.describeError("listing", name, err)
}

// Mount flags and kinds of the file system a directory is on.
const (
	noexec = unix.ST_NOEXEC
	tmpfs  = 0x01021994
	ramfs  = 0x858458f6
)

// IsNoExec reports whether a directory of the host is on a file system mounted with noexec.
func (d *Dir) IsNoExec() bool {
	st, err := d.statfs()
	return err == nil && st.Flags&noexec != 0
}

// IsInMemory reports whether a directory of the host is on a file system that a reboot empties.
func (d *Dir) IsInMemory() bool {
	st, err := d.statfs()
	return err == nil && (st.Type == tmpfs || st.Type == ramfs)
}

// minFreeBytes must be free before work starts that has to be recorded.
const minFreeBytes = 64 << 10

// CheckFreeSpace returns ErrFull when the file system of a directory of the host is almost full.
func (d *Dir) CheckFreeSpace() error {
	st, err := d.statfs()
	if err != nil {
		return d.describeError("looking at", ".", err)
	}
	if st.Bfree*uint64(st.Bsize) < minFreeBytes || st.Files > 0 && st.Ffree == 0 {
		return d.describeError("keeping records in", ".", unix.ENOSPC)
	}
	return nil
}

func (d *Dir) statfs() (unix.Statfs_t, error) {
	var st unix.Statfs_t
	f, err := d.Open(".")
	if err != nil {
		return st, err
	}
	defer f.Close()
	return st, unix.Fstatfs(int(f.Fd()), &st)
}
