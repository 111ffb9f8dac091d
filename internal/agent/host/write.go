// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrFull means that the disk of the host, or a quota on it, is full.
var ErrFull = errors.New("the host's disk is full")

// Write replaces a file atomically: after a crash it has either the old or the new content. When Write returns, the new
// content survives a power failure. An existing link of that name is replaced, not followed. What ReadFile could not read again is an error.
func (d *Dir) Write(name string, content []byte, mode fs.FileMode) error {
	return d.writeBounded(name, string(content), mode, true)
}

// WriteOwned is Write for a file of any size, with an owner.
func (d *Dir) WriteOwned(name string, content io.Reader, mode fs.FileMode, uid, gid int) error {
	return d.writeOnce(name, content, attributes{mode: mode, uid: uid, gid: gid, owned: true}, true)
}

type attributes struct {
	mode     fs.FileMode
	uid, gid int
	owned    bool
}

// WriteUnsynced is Write without fsync, for files that only people read.
func (d *Dir) WriteUnsynced(name, content string, mode fs.FileMode) error {
	return d.writeBounded(name, content, mode, false)
}

func (d *Dir) writeBounded(name, content string, mode fs.FileMode, durable bool) error {
	if len(content) > MaxFile {
		return fmt.Errorf("writing %s on the host: it would be larger than %d MiB and could not be read again; it was left as it is", path.Join(d.Path, name), MaxFile>>20)
	}
	return d.writeOnce(name, strings.NewReader(content), attributes{mode: mode}, durable)
}

func (d *Dir) writeOnce(name string, content io.Reader, as attributes, durable bool) error {
	if err := d.write(name, content, as, durable); err != nil {
		_ = d.Root.Remove(tempName(name))
		return d.describeError("writing", name, err)
	}
	return nil
}

func (d *Dir) write(name string, content io.Reader, as attributes, durable bool) error {
	temp := tempName(name)
	d.notifyChange("write", name)
	// A killed agent may have left a file of this name. O_EXCL makes sure that no link is followed.
	if err := d.Root.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := d.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	if err == nil && as.owned {
		err = f.Chown(as.uid, as.gid)
	}
	if err == nil {
		err = f.Chmod(as.mode) // the umask restricts the mode at creation
	}
	if err == nil && durable {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	d.notifyChange("rename", name)
	if err := d.Root.Rename(temp, name); err != nil {
		return err
	}
	if durable {
		d.notifyChange("sync", name)
		return d.syncParent(name)
	}
	return nil
}

// Link creates or replaces a symbolic link, as durably as Write.
func (d *Dir) Link(target, name string) error {
	temp := tempName(name)
	d.notifyChange("link", name)
	err := d.Root.Remove(temp)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		if err = d.Symlink(target, temp); err == nil {
			if err = d.Root.Rename(temp, name); err == nil {
				err = d.syncParent(name)
			}
		}
	}
	return d.describeError("linking", name, err)
}

// Move renames within the directory.
func (d *Dir) Move(from, to string) error {
	d.notifyChange("move", to)
	return d.describeError("renaming", from, d.Root.Rename(from, to))
}

// Delete removes a file, a link or an empty directory. A missing one is not an error.
func (d *Dir) Delete(name string) error {
	d.notifyChange("delete", name)
	if err := d.Root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return d.describeError("removing", name, err)
	}
	return nil
}

// DeleteAll removes a directory and everything in it.
func (d *Dir) DeleteAll(name string) error {
	d.notifyChange("delete-all", name)
	return d.describeError("removing", name, d.RemoveAll(name))
}

// Exists reports whether a name exists, even as a dangling link.
func (d *Dir) Exists(name string) bool {
	_, err := d.Lstat(name)
	return err == nil
}

// ReadFile reads a whole file.
func (d *Dir) ReadFile(name string) ([]byte, error) {
	f, err := d.Open(name)
	if err != nil {
		return nil, d.describeError("reading", name, err)
	}
	defer f.Close()
	content, err := readBounded(f)
	return content, d.describeError("reading", name, err)
}

// Names lists a directory below this one, sorted. A missing directory is empty.
func (d *Dir) Names(name string) ([]fs.DirEntry, error) {
	list, err := fs.ReadDir(d.FS(), name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return list, d.describeError("listing", name, err)
}

// Lock locks the lock file of that name and waits for it until ctx ends. The kernel releases it when the agent ends.
// waiting is called once if another process holds it.
func (d *Dir) Lock(ctx context.Context, name string, waiting func()) (release func(), err error) {
	f, err := d.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, d.describeError("opening the lock", name, err)
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(d.describeError("locking", name, err), f.Close())
		}
		if waiting != nil {
			waiting()
			waiting = nil
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, fmt.Errorf("waiting for the lock %s on the host: %w", path.Join(d.Path, name), context.Cause(ctx))
		case <-tick.C:
		}
	}
}

func (d *Dir) notifyChange(change, name string) {
	if d.watch != nil {
		d.watch(change, path.Join(d.Path, name))
	}
}

// SyncDir makes earlier renames and removals in the directory durable.
func (d *Dir) SyncDir() error {
	f, err := d.Open(".")
	if err != nil {
		return d.describeError("opening", ".", err)
	}
	return d.describeError("syncing", ".", errors.Join(f.Sync(), f.Close()))
}

func (d *Dir) syncParent(name string) error {
	f, err := d.Open(path.Dir(name))
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// describeError adds the path on the host to an error, and turns a full disk into ErrFull.
func (d *Dir) describeError(doing, name string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("%s %s on the host: %w; free some space and try again", doing, path.Join(d.Path, name), ErrFull)
	}
	return fmt.Errorf("%s %s on the host: %w", doing, path.Join(d.Path, name), stripPath(err))
}

// tempName depends only on the name, so that the next agent replaces the file that a killed one left.
func tempName(name string) string {
	sum := sha256.Sum256([]byte(path.Base(name)))
	return path.Join(path.Dir(name), tempPrefix+hex.EncodeToString(sum[:6])+tempSuffix)
}

const tempPrefix, tempSuffix = ".skyhook-", ".tmp"

// IsTemp reports whether a name is that of a temporary file, which a killed agent may have left.
func IsTemp(name string) bool {
	last := path.Base(name)
	return strings.HasPrefix(last, tempPrefix) && strings.HasSuffix(last, tempSuffix)
}
