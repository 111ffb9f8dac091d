// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/diff"
	"golang.org/x/sys/unix"
)

// agentDirs hold the agent's records, package copies and logs.
var agentDirs = []string{"/var/lib/skyhook", "/var/log/skyhook"}

// unseen are paths that do not count as leftovers of a package.
var unseen = append([]string{"/dev", "/run", "/proc/sys/kernel/random"}, agentDirs...)

// snapshot is the state of a host, by path.
type snapshot map[string]entry

// entry is the state of one path.
type entry struct {
	kind     uint32 // file type, as in st_mode
	mode     uint32
	uid, gid uint32
	link     string
	sum      string // of the content
	size     int64
	text     string // the content, if it is text to show in a diff
	// a file with the same inode and time of change has the same content
	inode   uint64
	touched time.Time
	seen    time.Time
}

// maxText is the maximum size of a file whose content is kept for diffs.
const maxText = 64 << 10

// takeSnapshot takes a snapshot. Files that did not change since the last one are not read again.
func (h *host) takeSnapshot(last snapshot) (snapshot, error) {
	out := snapshot{}
	now := time.Now()
	err := filepath.WalkDir(h.dir, func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it disappeared meanwhile
		}
		if err != nil {
			return err
		}
		at := "/" + strings.TrimPrefix(strings.TrimPrefix(name, h.dir), "/")
		if h.skips(at) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		e, err := examine(name, at, last[at], now)
		if err != nil {
			return err
		}
		out[at] = e
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("looking at the host: %w", err)
	}
	return out, h.addRunningServices(out)
}

func (h *host) skips(at string) bool {
	if strings.HasPrefix(at, "/proc/") && at != "/proc/sys" && !strings.HasPrefix(at, "/proc/sys/") {
		return true
	}
	return slices.Contains(unseen, at) || h.spec.isIgnored(at)
}

// addServices adds the running services as entries: an uninstall must stop what the package started.
func (h *host) addRunningServices(out snapshot) error {
	units, err := os.ReadDir(filepath.Join(h.dir, stateDir, "units"))
	if err != nil {
		return fmt.Errorf("looking at the host's services: %w", err)
	}
	for _, u := range units {
		at := "service " + u.Name()
		if !h.spec.isIgnored("/" + at) {
			out[at] = entry{kind: unix.S_IFREG, sum: "active"}
		}
	}
	return nil
}

func examine(name, at string, last entry, now time.Time) (entry, error) {
	var st unix.Stat_t
	if err := unix.Lstat(name, &st); err != nil {
		return entry{}, err
	}
	e := entry{
		kind: st.Mode & unix.S_IFMT, mode: st.Mode & 0o7777, uid: st.Uid, gid: st.Gid, inode: st.Ino,
		touched: time.Unix(st.Ctim.Unix()), seen: now,
	}
	switch e.kind {
	case unix.S_IFLNK:
		target, err := os.Readlink(name)
		e.link, e.mode = target, 0
		return e, err
	case unix.S_IFREG:
	default:
		return e, nil
	}
	e.size = st.Size
	// A file changed twice within one clock tick keeps its time, so a recent time proves nothing.
	if last.inode == e.inode && last.touched.Equal(e.touched) && last.sum != "" && last.seen.Sub(last.touched) > time.Second {
		e.sum, e.text, e.seen = last.sum, last.text, last.seen
		return e, nil
	}
	return e, e.read(name, at)
}

// read hashes a file and keeps its text.
func (e *entry) read(name, at string) error {
	f, err := os.Open(name)
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		e.sum = "unreadable"
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	var text strings.Builder
	w := io.Writer(sum)
	shown := !strings.HasPrefix(at, "/usr/") || strings.HasPrefix(at, "/usr/local/")
	if shown && e.size <= maxText {
		w = io.MultiWriter(sum, &text)
	}
	if e.size, err = io.Copy(w, f); err != nil {
		return err
	}
	e.sum = hex.EncodeToString(sum.Sum(nil))
	if t := text.String(); utf8.ValidString(t) && !strings.ContainsRune(t, 0) {
		e.text = t
	}
	return nil
}

// diffFrom returns the differences to an earlier snapshot.
func (s snapshot) diffFrom(before snapshot) []Change {
	out := []Change{}
	all := maps.Clone(before)
	maps.Copy(all, s)
	for _, at := range slices.Sorted(maps.Keys(all)) {
		was, there := before[at]
		is, here := s[at]
		switch {
		case !there:
			out = append(out, Change{Path: at, Kind: added, What: is.describe(at), Diff: diffText(at, "", is.text)})
		case !here:
			out = append(out, Change{Path: at, Kind: removed, What: was.describe(at), Diff: diffText(at, was.text, "")})
		default:
			if what := was.describeDifferences(is); len(what) > 0 {
				c := Change{Path: at, Kind: changed, What: strings.Join(what, ", ")}
				if was.sum != is.sum {
					c.Diff = diffText(at, was.text, is.text)
				}
				out = append(out, c)
			}
		}
	}
	return out
}

var kinds = map[uint32]string{unix.S_IFDIR: "folder", unix.S_IFREG: "file", unix.S_IFLNK: "link", unix.S_IFIFO: "pipe", unix.S_IFSOCK: "socket",
	unix.S_IFCHR: "device", unix.S_IFBLK: "device"}

func (e entry) describe(at string) string {
	switch {
	case !path.IsAbs(at):
		return e.sum
	case e.kind == unix.S_IFLNK:
		return "link to " + e.link
	}
	text := fmt.Sprintf("%s %04o", kinds[e.kind], e.mode)
	if e.uid != 0 || e.gid != 0 {
		text += fmt.Sprintf(" %d:%d", e.uid, e.gid)
	}
	if e.kind == unix.S_IFREG {
		text += fmt.Sprintf(" %d bytes", e.size)
	}
	return text
}

// describeDifferences describes what differs between two states of a path.
func (e entry) describeDifferences(is entry) []string {
	var out []string
	if e.kind != is.kind {
		return []string{kinds[e.kind] + " is now " + is.describe("/")}
	}
	if e.link != is.link {
		out = append(out, fmt.Sprintf("link to %s leads to %s now", e.link, is.link))
	}
	if e.sum != is.sum {
		out = append(out, "content")
	}
	if e.mode != is.mode {
		out = append(out, fmt.Sprintf("mode %04o is now %04o", e.mode, is.mode))
	}
	if e.uid != is.uid || e.gid != is.gid {
		out = append(out, fmt.Sprintf("owner %d:%d is now %d:%d", e.uid, e.gid, is.uid, is.gid))
	}
	return out
}

// diffText returns a unified diff without its file header.
func diffText(at, was, is string) string {
	if was == is {
		return ""
	}
	lines := strings.SplitAfter(string(diff.Diff(at, []byte(was), at, []byte(is))), "\n")
	return strings.Join(lines[min(len(lines), 3):], "")
}
