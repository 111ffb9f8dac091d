// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package packages

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

func chrootAttributes(root string) *syscall.SysProcAttr { return &syscall.SysProcAttr{Chroot: root} }

// hostTree is the visible state of a host, by path.
type hostTree map[string]string

// ignoredPaths are volatile files and the agent's own.
var ignoredPaths = regexp.MustCompile(`^/(dev|proc/[0-9]+|proc/stat|stub|run/units/last|run/units/[^/]+/(pid|text)|var/lib/skyhook|var/log/skyhook)(/|$)`)

func (h host) readTree() (hostTree, error) {
	t := hostTree{}
	return t, filepath.WalkDir(h.root, func(at string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := "/" + strings.TrimPrefix(strings.TrimPrefix(at, h.root), "/")
		if ignoredPaths.MatchString(name) {
			if e.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		st, err := e.Info()
		if err != nil {
			return err
		}
		t[name], err = describeFile(at, name, st)
		return err
	})
}

func describeFile(at, name string, st fs.FileInfo) (string, error) {
	owner := st.Sys().(*syscall.Stat_t)
	text := fmt.Sprintf("%v %d:%d", st.Mode(), owner.Uid, owner.Gid)
	switch {
	case st.Mode()&fs.ModeSymlink != 0:
		to, err := os.Readlink(at)
		return text + " -> " + to, err
	case st.Mode().IsRegular() && strings.HasPrefix(name, "/proc/sys/"):
		content, err := os.ReadFile(at)
		return strings.Join(strings.Fields(string(content)), " "), err
	case st.Mode().IsRegular() && strings.HasPrefix(name, "/var/log/"):
		return text, nil // the content of programs does not matter
	case st.Mode().IsRegular() && st.Size() > 64<<10:
		return fmt.Sprintf("%s %d bytes", text, st.Size()), nil
	case st.Mode().IsRegular():
		content, err := os.ReadFile(at)
		return fmt.Sprintf("%s %x", text, sha256.Sum256(content)), err
	}
	return text, nil
}

// diff lists the differences to an earlier state: + added, - removed, ~ changed.
func (t hostTree) diff(was hostTree) []string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(t)) {
		switch before, there := was[name]; {
		case !there:
			lines = append(lines, "+ "+name)
		case before != t[name] && strings.HasPrefix(name, "/proc/sys/"):
			lines = append(lines, fmt.Sprintf("~ %s: %s -> %s", name, before, t[name]))
		case before != t[name]:
			lines = append(lines, "~ "+name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(was)) {
		if _, there := t[name]; !there {
			lines = append(lines, "- "+name)
		}
	}
	return lines
}
