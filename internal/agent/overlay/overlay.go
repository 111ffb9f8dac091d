// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package overlay lays the files of a package's root_dir over those of a host, and takes them away again.
package overlay

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/skyhook-k8s/skyhook/internal/agent/fault"
	"github.com/skyhook-k8s/skyhook/internal/agent/host"
	"github.com/skyhook-k8s/skyhook/internal/agent/record"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// Change is what the rootfs overlay changes at one path of the host.
type Change struct {
	Path string `json:"path"`
	// Verb is create, replace, restore, remove, or leave.
	Verb string `json:"verb"`
	Why  string `json:"why,omitempty"`

	want *record.Content // the new content; nil removes it
	from string          // the file in the package
	now  *record.Content // the present content; nil for none
	old  *record.File    // what the record says
}

// Plan compares the root_dir of the package with the record and with the host. Without a package it removes
// everything.
func Plan(root *host.Root, copied *host.Dir, was record.Overlay) (changes []Change, dirs map[string]fs.FileMode, err error) {
	dirs = map[string]fs.FileMode{}
	wanted := map[string]bool{}
	if copied != nil && copied.Exists(pack.OverlayDir) {
		err = fs.WalkDir(copied.FS(), pack.OverlayDir, func(name string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			at := "/" + strings.TrimPrefix(strings.TrimPrefix(name, pack.OverlayDir), "/")
			st, err := e.Info()
			if err != nil {
				return err
			}
			if e.IsDir() {
				dirs[at] = st.Mode().Perm() & 0o755
				return nil
			}
			wanted[at] = true
			c, err := planFile(root, copied, name, at, st, was)
			if err == nil && c.Verb != "" {
				changes = append(changes, c)
			}
			return err
		})
		if err != nil {
			return nil, nil, fmt.Errorf("comparing %s with the host: %w", pack.OverlayDir, err)
		}
	}
	for _, f := range was.Files {
		if !wanted[f.Path] {
			c, err := planRemoval(root, f)
			if err != nil {
				return nil, nil, err
			}
			changes = append(changes, c)
		}
	}
	return changes, dirs, nil
}

// planFile is the change for one file of the package; none when the host has it and it is recorded.
func planFile(root *host.Root, copied *host.Dir, name, at string, st fs.FileInfo, was record.Overlay) (Change, error) {
	c := Change{Path: at, from: name, old: findFile(was, at)}
	var err error
	if c.want, err = readFileContent(copied, name, st); err != nil {
		return c, err
	}
	c.want.UID, c.want.GID = 0, 0
	if c.now, err = ReadContent(root, at); err != nil {
		return c, err
	}
	switch {
	case c.now == nil:
		c.Verb = "create"
	case !hasSameContent(c.now, c.want):
		c.Verb = "replace"
		if c.old != nil && !hasSameContent(c.now, &c.old.Wrote) && !hasSameContent(c.now, c.old.Before) && !hasSameContent(c.now, c.old.Origin) {
			c.Why = "somebody else changed it since; what is there is kept in the backup"
		}
	case c.old == nil || !hasSameContent(&c.old.Wrote, c.want):
		c.Verb, c.Why = "replace", "it is there already, and is recorded now"
	}
	return c, nil
}

// asBefore is why nothing is left to do about a file.
const asBefore = "it is as it was before"

// planRemoval is the change for a file that is no longer in the package.
func planRemoval(root *host.Root, f record.File) (Change, error) {
	c := Change{Path: f.Path, old: &f, want: f.Origin}
	var err error
	c.now, err = ReadContent(root, f.Path)
	switch {
	case errors.Is(err, host.ErrUnsafe):
		c.Verb, c.Why = "leave", err.Error()
	case err != nil:
		return c, err
	case hasSameContent(c.now, f.Origin):
		c.Verb, c.Why = "leave", asBefore
	case c.now == nil:
		c.Verb, c.Why = "leave", "somebody else removed it"
	case !hasSameContent(c.now, &f.Wrote) && !hasSameContent(c.now, f.Before):
		c.Verb, c.Why = "leave", "somebody else changed it since"
	case f.Origin == nil:
		c.Verb = "remove"
	default:
		c.Verb = "restore"
	}
	return c, nil
}

func findFile(was record.Overlay, at string) *record.File {
	i, found := slices.BinarySearchFunc(was.Files, at, func(f record.File, at string) int { return strings.Compare(f.Path, at) })
	if !found {
		return nil
	}
	f := was.Files[i]
	return &f
}

// hasSameContent reports whether two paths have the same content. Owners do not count.
func hasSameContent(a, b *record.Content) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Digest == b.Digest && a.Link == b.Link && a.Mode == b.Mode
}

// ReadContent reads a path of the host; nil when nothing is there.
func ReadContent(root *host.Root, at string) (*record.Content, error) {
	dir, leaf, err := root.Parent(at)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case errors.Is(err, host.ErrUnsafe):
		return nil, fault.New(pack.HostProblem, "%w", err)
	case err != nil:
		return nil, err
	}
	defer dir.Close()
	st, err := dir.Lstat(leaf)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking at %s on the host: %w", at, err)
	}
	return readFileContent(dir, leaf, st)
}

func readFileContent(dir *host.Dir, name string, st fs.FileInfo) (*record.Content, error) {
	c := &record.Content{}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		c.UID, c.GID = int(sys.Uid), int(sys.Gid)
	}
	switch {
	case st.Mode()&fs.ModeSymlink != 0:
		target, err := dir.Readlink(name)
		c.Link = target
		return c, err
	case st.Mode().IsRegular():
		digest, err := dir.Digest(name)
		c.Digest, c.Mode = digest, st.Mode()
		return c, err
	}
	return nil, fault.New(pack.HostProblem, "%s is neither a file nor a link, so the overlay cannot replace it", path.Join(dir.Path, name))
}

// Overlay is that of one package on a host.
type Overlay struct {
	Host *host.Root
	Log  *slog.Logger
	// Record is what the overlay has done before; it is kept in Held.
	Record *record.Package
	Held   *record.Held
}

// Converge copies root_dir of the package to the host; without a package it restores the files that the overlay replaced and removes those
// it created, unless they were changed since. Before the first change, the files it replaces are backed up and recorded. After a run that
// was killed, every file has either the old or the new content, and the next run continues.
func (o *Overlay) Converge(copied *host.Dir) error {
	changes, dirs, err := Plan(o.Host, copied, o.Record.Overlay)
	if err != nil {
		return err
	}
	fresh := o.listMissing(dirs)
	stale := slices.ContainsFunc(o.Record.Overlay.Dirs, func(dir string) bool { _, wanted := dirs[dir]; return !wanted })
	if len(changes) == 0 && len(fresh) == 0 && !stale {
		return nil
	}
	backup, err := o.recordOverlay(changes, fresh)
	if err != nil {
		return err
	}
	defer backup.Close()
	for _, dir := range fresh {
		made, err := o.Host.MakeDir(dir, dirs[dir])
		if err != nil {
			return err
		}
		_ = made.Close()
	}
	for _, c := range changes {
		if err := o.applyChange(backup, copied, c); err != nil {
			return err
		}
	}
	return o.forgetRemoved(backup, changes, dirs)
}

// listMissing lists the directories of the overlay that do not exist on the host, outermost first.
func (o *Overlay) listMissing(dirs map[string]fs.FileMode) []string {
	var fresh []string
	for dir := range dirs {
		if _, err := o.Host.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			fresh = append(fresh, dir)
		}
	}
	slices.Sort(fresh)
	return fresh
}

// recordOverlay records the changes before they are made, and backs up the files that are about to be replaced. It returns the directory
// of the backups.
func (o *Overlay) recordOverlay(changes []Change, fresh []string) (*host.Dir, error) {
	next, replaced := o.planRecord(changes, fresh)
	if err := requireReadable(next, changes); err != nil {
		return nil, err
	}
	backup, err := o.Held.OpenBackup(o.Host)
	if err != nil {
		return nil, err
	}
	for _, c := range replaced {
		if err := o.backUpFile(backup, c); err != nil {
			return nil, errors.Join(err, backup.Close())
		}
	}
	*o.Record = next
	if err := o.Held.Save(next); err != nil {
		return nil, errors.Join(err, backup.Close())
	}
	return backup, nil
}

// planRecord returns the record with the changes, and those that replace a file which is nobody's backup yet.
func (o *Overlay) planRecord(changes []Change, fresh []string) (next record.Package, replaced []Change) {
	next = *o.Record
	var files []record.File
	for _, c := range changes {
		if c.from == "" {
			continue
		}
		f := record.File{Path: c.Path}
		if c.old != nil {
			f = *c.old
		}
		foreign := c.now != nil && (c.old == nil || !hasSameContent(c.now, &f.Wrote) && !hasSameContent(c.now, f.Before) && !hasSameContent(c.now, c.want))
		if foreign && !hasSameContent(c.now, f.Origin) {
			replaced = append(replaced, c)
			f.Origin = c.now
		}
		if c.old != nil && !hasSameContent(&f.Wrote, c.want) {
			before := f.Wrote
			f.Before = &before
		}
		f.Wrote = *c.want
		files = append(files, f)
	}
	next.Overlay.SetFiles(files)
	dirs := slices.Concat(next.Overlay.Dirs, fresh)
	slices.Sort(dirs)
	next.Overlay.Dirs = slices.Compact(dirs)
	return next, replaced
}

// requireReadable returns an error when the record would become too large to be read again. What is delivered may fill a half of it: a
// check that passes records each file once more.
func requireReadable(next record.Package, changes []Change) error {
	if !slices.ContainsFunc(changes, func(c Change) bool { return c.from != "" }) {
		return nil // it becomes smaller
	}
	next.Delivered = nil
	content, err := record.Encode(next)
	if err == nil && len(content) > host.MaxFile/2 {
		err = fault.New(pack.InvalidPackage, "%s has too many files: with %d of them the record of the package would become larger than %d MiB and could not be read again; nothing was changed on the host; deliver an archive that a step unpacks", pack.OverlayDir, len(next.Overlay.Files), host.MaxFile>>20)
	}
	return err
}

// backUpFile copies a file of the host to the backup, named by its digest.
func (o *Overlay) backUpFile(backup *host.Dir, c Change) error {
	if c.now.Link != "" || backup.Exists(c.now.Digest) {
		return nil
	}
	dir, leaf, err := o.Host.Parent(c.Path)
	if err != nil {
		return err
	}
	defer dir.Close()
	f, err := dir.Open(leaf)
	if err != nil {
		return fmt.Errorf("keeping %s of the host: %w", c.Path, err)
	}
	defer f.Close()
	sum := sha256.New()
	if err := backup.WriteOwned(c.now.Digest, io.TeeReader(f, sum), 0o600, os.Geteuid(), os.Getegid()); err != nil {
		return err
	}
	if hex.EncodeToString(sum.Sum(nil)) != c.now.Digest {
		return errors.Join(fault.New(pack.HostProblem, "%s on the host changed while it was being kept; nothing was replaced", c.Path), backup.Delete(c.now.Digest))
	}
	return nil
}

// applyChange applies one change.
func (o *Overlay) applyChange(backup, copied *host.Dir, c Change) error {
	if c.Verb == "leave" {
		if c.Why != asBefore {
			o.Log.Warn("a file the overlay put on the host is left as it is", "path", c.Path, "why", c.Why)
		}
		return nil
	}
	dir, leaf, err := o.Host.Parent(c.Path)
	if err != nil {
		return err
	}
	defer dir.Close()
	o.Log.Info("overlay", "verb", c.Verb, "path", c.Path, "why", c.Why)
	switch {
	case c.Verb == "remove":
		return errors.Join(dir.Delete(leaf), dir.SyncDir())
	case hasSameContent(c.now, c.want):
		return nil
	case c.want.Link != "":
		return dir.Link(c.want.Link, leaf)
	}
	source, name := copied, c.from
	if c.Verb == "restore" {
		source, name = backup, c.want.Digest
	}
	f, err := source.Open(name)
	if err != nil {
		return fmt.Errorf("opening what belongs at %s on the host: %w", c.Path, err)
	}
	defer f.Close()
	return dir.WriteOwned(leaf, f, c.want.Mode, c.want.UID, c.want.GID)
}

// forgetRemoved removes records of removed files, their directories, and backups that are not needed.
func (o *Overlay) forgetRemoved(backup *host.Dir, changes []Change, dirs map[string]fs.FileMode) error {
	removed := map[string]bool{}
	for _, c := range changes {
		removed[c.Path] = c.from == ""
	}
	o.Record.Overlay.Files = slices.DeleteFunc(o.Record.Overlay.Files, func(f record.File) bool { return removed[f.Path] })
	var kept []string
	for _, dir := range slices.Backward(o.Record.Overlay.Dirs) {
		if _, wanted := dirs[dir]; wanted {
			kept = append(kept, dir)
			continue
		}
		if parent, leaf, err := o.Host.Parent(dir); err == nil {
			err := parent.Delete(leaf) // stays when it has other entries
			if err != nil && !errors.Is(err, syscall.ENOTEMPTY) {
				fault.LogIgnored(o.Log, err)
			}
			_ = parent.Close()
		}
	}
	slices.Sort(kept)
	o.Record.Overlay.Dirs = kept
	if err := o.Held.Save(*o.Record); err != nil {
		return err
	}
	return o.pruneBackup(backup)
}

func (o *Overlay) pruneBackup(backup *host.Dir) error {
	list, err := backup.Names(".")
	if err != nil {
		return err
	}
	used := map[string]bool{}
	for _, f := range o.Record.Overlay.Files {
		if f.Origin != nil {
			used[f.Origin.Digest] = true
		}
	}
	for _, e := range list {
		if !used[e.Name()] {
			if err := backup.Delete(e.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}
