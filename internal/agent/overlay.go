// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/skyhook-k8s/skyhook/internal/agent/host"
	"github.com/skyhook-k8s/skyhook/internal/agent/record"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// A Change is what the overlay does to one path of the host.
type Change struct {
	Path string `json:"path"`
	// Verb is create, replace, restore, remove, or leave.
	Verb string `json:"verb"`
	Why  string `json:"why,omitempty"`

	want *record.Content // what to put there; nil takes away
	from string          // the file in the package
	now  *record.Content // what is there; nil is nothing
	old  *record.File    // what the record says
}

// overlayPlan compares the package's root_dir with the record and with what is on the host. Without a package everything
// goes.
func overlayPlan(root *host.Root, copied *host.Dir, was record.Overlay) (changes []Change, dirs map[string]fs.FileMode, err error) {
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
			c, err := laying(root, copied, name, at, st, was)
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
			c, err := leaving(root, f)
			if err != nil {
				return nil, nil, err
			}
			changes = append(changes, c)
		}
	}
	return changes, dirs, nil
}

// laying is what to do for one file of the package; nothing when it is there already and recorded.
func laying(root *host.Root, copied *host.Dir, name, at string, st fs.FileInfo, was record.Overlay) (Change, error) {
	c := Change{Path: at, from: name, old: find(was, at)}
	var err error
	if c.want, err = content(copied, name, st); err != nil {
		return c, err
	}
	c.want.UID, c.want.GID = 0, 0
	if c.now, err = observe(root, at); err != nil {
		return c, err
	}
	switch {
	case c.now == nil:
		c.Verb = "create"
	case !alike(c.now, c.want):
		c.Verb = "replace"
		if c.old != nil && !alike(c.now, &c.old.Wrote) && !alike(c.now, c.old.Before) && !alike(c.now, c.old.Origin) {
			c.Why = "somebody else changed it since; what is there is kept in the backup"
		}
	case c.old == nil || !alike(&c.old.Wrote, c.want):
		c.Verb, c.Why = "replace", "it is there already, and is recorded now"
	}
	return c, nil
}

// leaving is what to do for a file that the package has no more.
func leaving(root *host.Root, f record.File) (Change, error) {
	c := Change{Path: f.Path, old: &f, want: f.Origin}
	var err error
	if c.now, err = observe(root, f.Path); err != nil {
		return c, err
	}
	switch {
	case alike(c.now, f.Origin):
		c.Verb, c.Why = "leave", "it is as it was before"
	case c.now == nil:
		c.Verb, c.Why = "leave", "somebody else removed it"
	case !alike(c.now, &f.Wrote) && !alike(c.now, f.Before):
		c.Verb, c.Why = "leave", "somebody else changed it since"
	case f.Origin == nil:
		c.Verb = "remove"
	default:
		c.Verb = "restore"
	}
	return c, nil
}

func find(was record.Overlay, at string) *record.File {
	for _, f := range was.Files {
		if f.Path == at {
			return &f
		}
	}
	return nil
}

// alike tells whether two paths hold the same. Owners do not count: who changes only those changes no content.
func alike(a, b *record.Content) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Digest == b.Digest && a.Link == b.Link && a.Mode == b.Mode
}

// observe tells what a path of the host holds; nil is nothing.
func observe(root *host.Root, at string) (*record.Content, error) {
	dir, leaf, err := root.Parent(at)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
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
	return content(dir, leaf, st)
}

func content(dir *host.Dir, name string, st fs.FileInfo) (*record.Content, error) {
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
	return nil, fault(pack.HostProblem, "%s is neither a file nor a link, so the overlay cannot replace it", path.Join(dir.Path, name))
}

// layOver makes the host hold what root_dir holds. Before the first file is touched, what it replaces is kept and the
// record says so; a run that is killed leaves every file either as it was or as it shall be, and the next goes on.
func (t *turn) layOver() error { return t.converge(t.copied) }

// takeAway restores what the overlay replaced and removes what it made, where nobody else has changed it since.
func (t *turn) takeAway() error { return t.converge(nil) }

func (t *turn) converge(copied *host.Dir) error {
	changes, dirs, err := overlayPlan(t.Host, copied, t.rec.Overlay)
	if err != nil {
		return err
	}
	fresh := t.missing(dirs)
	stale := slices.ContainsFunc(t.rec.Overlay.Dirs, func(dir string) bool { _, wanted := dirs[dir]; return !wanted })
	if len(changes) == 0 && len(fresh) == 0 && !stale {
		return nil
	}
	backup, err := t.held.Backup(t.Host)
	if err != nil {
		return err
	}
	defer backup.Close()
	if err := t.intend(backup, changes, fresh); err != nil {
		return err
	}
	for _, dir := range fresh {
		made, err := t.Host.MakeDir(dir, dirs[dir])
		if err != nil {
			return err
		}
		_ = made.Close()
	}
	for _, c := range changes {
		if err := t.change(backup, copied, c); err != nil {
			return err
		}
	}
	return t.settle(backup, changes, dirs)
}

// missing lists the directories of the overlay that the host lacks, outermost first.
func (t *turn) missing(dirs map[string]fs.FileMode) []string {
	var fresh []string
	for dir := range dirs {
		if _, err := t.Host.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			fresh = append(fresh, dir)
		}
	}
	slices.Sort(fresh)
	return fresh
}

// intend keeps what is about to be replaced and records what is about to be written.
func (t *turn) intend(backup *host.Dir, changes []Change, fresh []string) error {
	for _, c := range changes {
		if c.from == "" {
			continue
		}
		f := record.File{Path: c.Path}
		if c.old != nil {
			f = *c.old
		}
		foreign := c.now != nil && (c.old == nil || !alike(c.now, &f.Wrote) && !alike(c.now, f.Before) && !alike(c.now, c.want))
		if foreign && !alike(c.now, f.Origin) {
			if err := t.keep(backup, c); err != nil {
				return err
			}
			f.Origin = c.now
		}
		if c.old != nil && !alike(&f.Wrote, c.want) {
			before := f.Wrote
			f.Before = &before
		}
		f.Wrote = *c.want
		t.rec.Overlay.Put(f)
	}
	for _, dir := range fresh {
		if !slices.Contains(t.rec.Overlay.Dirs, dir) {
			t.rec.Overlay.Dirs = append(t.rec.Overlay.Dirs, dir)
		}
	}
	slices.Sort(t.rec.Overlay.Dirs)
	return t.save()
}

// keep copies a file of the host to the backup, named by its content.
func (t *turn) keep(backup *host.Dir, c Change) error {
	if c.now.Link != "" || backup.Exists(c.now.Digest) {
		return nil
	}
	dir, leaf, err := t.Host.Parent(c.Path)
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
	if err := backup.Write(c.now.Digest, io.TeeReader(f, sum), 0o600); err != nil {
		return err
	}
	if hex.EncodeToString(sum.Sum(nil)) != c.now.Digest {
		return errors.Join(fault(pack.HostProblem, "%s on the host changed while it was being kept; nothing was replaced", c.Path), backup.Delete(c.now.Digest))
	}
	return nil
}

// change does one change.
func (t *turn) change(backup, copied *host.Dir, c Change) error {
	if c.Verb == "leave" {
		t.warnLeft(c)
		return nil
	}
	dir, leaf, err := t.Host.Parent(c.Path)
	if err != nil {
		return err
	}
	defer dir.Close()
	t.Log.Info("overlay", "verb", c.Verb, "path", c.Path, "why", c.Why)
	switch {
	case c.Verb == "remove":
		return errors.Join(dir.Delete(leaf), dir.Settle())
	case alike(c.now, c.want):
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
	return dir.Put(leaf, f, c.want.Mode, c.want.UID, c.want.GID)
}

func (t *turn) warnLeft(c Change) {
	if alike(c.now, c.old.Origin) {
		return
	}
	t.Log.Warn("a file the overlay put on the host is left as it is", "path", c.Path, "why", c.Why)
}

// settle forgets what is gone: files, the directories made for them, and backups that nothing needs.
func (t *turn) settle(backup *host.Dir, changes []Change, dirs map[string]fs.FileMode) error {
	for _, c := range changes {
		if c.from == "" {
			t.rec.Overlay.Drop(c.Path)
		}
	}
	var kept []string
	for _, dir := range slices.Backward(t.rec.Overlay.Dirs) {
		if _, wanted := dirs[dir]; wanted {
			kept = append(kept, dir)
			continue
		}
		if parent, leaf, err := t.Host.Parent(dir); err == nil {
			err := parent.Delete(leaf) // stays when somebody else keeps something there
			if err != nil && !errors.Is(err, syscall.ENOTEMPTY) {
				t.note(err)
			}
			_ = parent.Close()
		}
	}
	slices.Sort(kept)
	t.rec.Overlay.Dirs = kept
	if err := t.save(); err != nil {
		return err
	}
	return t.pruneBackup(backup)
}

func (t *turn) pruneBackup(backup *host.Dir) error {
	list, err := backup.Names(".")
	if err != nil {
		return err
	}
	for _, e := range list {
		used := slices.ContainsFunc(t.rec.Overlay.Files, func(f record.File) bool { return f.Origin != nil && f.Origin.Digest == e.Name() })
		if !used {
			if err := backup.Delete(e.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}
