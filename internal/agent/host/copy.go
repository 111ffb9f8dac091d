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

// Copy copies the tree of from into the directory to, which is made if it is missing. Links are copied as links; what is
// neither a file, a directory nor a link is refused by name.
func (d *Dir) Copy(from *os.Root, to string) error {
	d.tell("copy", to)
	return fs.WalkDir(from.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("reading %s: %w", name, bare(err))
		}
		if err := d.copyOne(from, name, path.Join(to, name), e); err != nil {
			return d.explain("copying to", path.Join(to, name), err)
		}
		return nil
	})
}

func (d *Dir) copyOne(from *os.Root, name, to string, e fs.DirEntry) error {
	st, err := e.Info()
	if err != nil {
		return err
	}
	switch {
	case e.IsDir():
		if err := d.Mkdir(to, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
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

// copyFile copies one file, following a link of that name as far as it stays in from.
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

// Flatten turns a mounted ConfigMap, a farm of links to a dated folder, into plain private files. Doing it again changes
// nothing.
func (d *Dir) Flatten(name string) error {
	list, err := d.Names(name)
	if err != nil || len(list) == 0 {
		return err
	}
	if err := d.Chmod(name, 0o700); err != nil {
		return d.explain("protecting", name, err)
	}
	for _, e := range list {
		file := path.Join(name, e.Name())
		if len(e.Name()) > 2 && e.Name()[:2] == ".." {
			continue
		}
		st, err := d.Stat(file) // of what the link leads to
		if err != nil {
			return d.explain("reading", file, err)
		}
		if st.IsDir() {
			continue
		}
		if e.Type()&fs.ModeSymlink == 0 {
			if err := d.Chmod(file, private(st.Mode())); err != nil {
				return d.explain("protecting", file, err)
			}
			continue
		}
		if err := d.flattenOne(file, st.Mode()); err != nil {
			return err
		}
	}
	for _, e := range list { // only when no link leads there any more
		if len(e.Name()) > 2 && e.Name()[:2] == ".." {
			if err := d.DeleteAll(path.Join(name, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *Dir) flattenOne(file string, mode fs.FileMode) error {
	in, err := d.Open(file)
	if err != nil {
		return d.explain("reading", file, err)
	}
	defer in.Close()
	return d.put(file, in, attributes{mode: private(mode)}, false)
}

// private keeps the owner's rights: configuration may hold secrets.
func private(mode fs.FileMode) fs.FileMode { return mode.Perm() & 0o700 }

// Digest is the SHA-256 of a file's content, in hex.
func (d *Dir) Digest(name string) (string, error) {
	f, err := d.Open(name)
	if err != nil {
		return "", d.explain("reading", name, err)
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", d.explain("reading", name, err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// Files lists everything below a directory that is not itself a directory, sorted, relative to it.
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
	return files, d.explain("listing", name, err)
}

// Mount flags and kinds of the file system a directory is on.
const (
	noexec = unix.ST_NOEXEC
	tmpfs  = 0x01021994
	ramfs  = 0x858458f6
)

// NoExec tells whether nothing can be executed in a directory of the host.
func (d *Dir) NoExec() bool {
	st, err := d.statfs()
	return err == nil && st.Flags&noexec != 0
}

// Forgets tells whether a directory of the host is kept in memory only, so that a reboot empties it.
func (d *Dir) Forgets() bool {
	st, err := d.statfs()
	return err == nil && (st.Type == tmpfs || st.Type == ramfs)
}

// room is what must be free before work begins that has to be recorded.
const room = 64 << 10

// Room says so with ErrFull when hardly anything more can be written to a directory of the host.
func (d *Dir) Room() error {
	st, err := d.statfs()
	if err != nil {
		return d.explain("looking at", ".", err)
	}
	if st.Bfree*uint64(st.Bsize) < room || st.Files > 0 && st.Ffree == 0 {
		return d.explain("keeping records in", ".", unix.ENOSPC)
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
