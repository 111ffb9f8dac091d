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

// ErrFull says that the host's disk, or a quota on it, has no room left.
var ErrFull = errors.New("the host's disk is full")

// Write puts a file in place so that after a crash at any moment either the old or the new content is there, whole.
// When it returns, the new content survives a power cut. An existing file or link of that name is replaced, not followed.
func (d *Dir) Write(name string, content io.Reader, mode fs.FileMode) error {
	return d.put(name, content, attributes{mode: mode}, true)
}

// Put is Write for a file with an owner.
func (d *Dir) Put(name string, content io.Reader, mode fs.FileMode, uid, gid int) error {
	return d.put(name, content, attributes{mode: mode, uid: uid, gid: gid, owned: true}, true)
}

type attributes struct {
	mode     fs.FileMode
	uid, gid int
	owned    bool
}

// Note is Write without the wait for the disk, for files that only people read.
func (d *Dir) Note(name, content string, mode fs.FileMode) error {
	return d.put(name, strings.NewReader(content), attributes{mode: mode}, false)
}

func (d *Dir) put(name string, content io.Reader, as attributes, durable bool) error {
	if err := d.write(name, content, as, durable); err != nil {
		_ = d.Root.Remove(tempName(name))
		return d.explain("writing", name, err)
	}
	return nil
}

func (d *Dir) write(name string, content io.Reader, as attributes, durable bool) error {
	temp := tempName(name)
	d.tell("write", name)
	// What a killed agent left behind under this name is ours to remove; O_EXCL makes sure that nobody's link is followed.
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
		err = f.Chmod(as.mode) // not the mode of the creation, which the umask would narrow
	}
	if err == nil && durable {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	d.tell("rename", name)
	if err := d.Root.Rename(temp, name); err != nil {
		return err
	}
	if durable {
		d.tell("sync", name)
		return d.syncParent(name)
	}
	return nil
}

// Link puts a symbolic link in place, as durably as Write.
func (d *Dir) Link(target, name string) error {
	temp := tempName(name)
	d.tell("link", name)
	err := d.Root.Remove(temp)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		if err = d.Symlink(target, temp); err == nil {
			if err = d.Root.Rename(temp, name); err == nil {
				err = d.syncParent(name)
			}
		}
	}
	return d.explain("linking", name, err)
}

// Move renames within the directory.
func (d *Dir) Move(from, to string) error {
	d.tell("move", to)
	return d.explain("renaming", from, d.Root.Rename(from, to))
}

// Delete removes a file, a link or an empty directory; what is not there is as good as removed.
func (d *Dir) Delete(name string) error {
	d.tell("delete", name)
	if err := d.Root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return d.explain("removing", name, err)
	}
	return nil
}

// DeleteAll removes a directory and everything in it.
func (d *Dir) DeleteAll(name string) error {
	d.tell("delete-all", name)
	return d.explain("removing", name, d.RemoveAll(name))
}

// Settle makes earlier renames and removals in the directory itself survive a power cut.
func (d *Dir) Settle() error { return d.sync() }

// Exists tells whether a name is taken, be it by a link that leads nowhere.
func (d *Dir) Exists(name string) bool {
	_, err := d.Lstat(name)
	return err == nil
}

// Bytes reads a file whole.
func (d *Dir) Bytes(name string) ([]byte, error) {
	f, err := d.Open(name)
	if err != nil {
		return nil, d.explain("reading", name, err)
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(content) > maxFile {
		err = fmt.Errorf("it is larger than %d MiB", maxFile>>20)
	}
	return content, d.explain("reading", name, err)
}

// Names lists a directory below this one, sorted; a directory that is not there is empty.
func (d *Dir) Names(name string) ([]fs.DirEntry, error) {
	list, err := fs.ReadDir(d.FS(), name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return list, d.explain("listing", name, err)
}

// Lock takes the lock file of that name and waits for it as long as ctx allows. The lock goes with the agent, however it
// ends. waiting is called once if somebody else holds it.
func (d *Dir) Lock(ctx context.Context, name string, waiting func()) (release func(), err error) {
	f, err := d.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, d.explain("opening the lock", name, err)
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(d.explain("locking", name, err), f.Close())
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

func (d *Dir) tell(change, name string) {
	if d.watch != nil {
		d.watch(change, path.Join(d.Path, name))
	}
}

func (d *Dir) sync() error {
	f, err := d.Open(".")
	if err != nil {
		return d.explain("opening", ".", err)
	}
	return d.explain("syncing", ".", errors.Join(f.Sync(), f.Close()))
}

func (d *Dir) syncParent(name string) error {
	f, err := d.Open(path.Dir(name))
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// explain names the file as it is called on the host, and a full disk by its name.
func (d *Dir) explain(doing, name string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("%s %s on the host: %w; free some space and try again", doing, path.Join(d.Path, name), ErrFull)
	}
	return fmt.Errorf("%s %s on the host: %w", doing, path.Join(d.Path, name), bare(err))
}

// tempName is fixed for a name, so that what a killed agent left is found and replaced by the next one.
func tempName(name string) string {
	sum := sha256.Sum256([]byte(path.Base(name)))
	return path.Join(path.Dir(name), tempPrefix+hex.EncodeToString(sum[:6])+tempSuffix)
}

const tempPrefix, tempSuffix = ".skyhook-", ".tmp"

// IsTemp tells the name of a file on its way into place, which a killed agent may have left.
func IsTemp(name string) bool {
	last := path.Base(name)
	return strings.HasPrefix(last, tempPrefix) && strings.HasSuffix(last, tempSuffix)
}
