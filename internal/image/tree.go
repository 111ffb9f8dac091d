// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"crypto/sha256"
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
	"unicode/utf8"
)

// A Tree is the files of one layer. Paths are absolute in the image; folders above a file need no mention.
// Adding a path a second time replaces the first.
type Tree struct {
	entries map[string]entry
}

type entry struct {
	mode    fs.FileMode // type and permissions; the sticky bit is kept
	link    string
	content []byte
	host    string // a file to read when the layer is made, instead of content
}

func (t *Tree) addEntry(name string, e entry) {
	if t.entries == nil {
		t.entries = map[string]entry{}
	}
	t.entries[path.Clean("/" + name)[1:]] = e
}

// Dir adds a folder.
func (t *Tree) Dir(name string, mode fs.FileMode) {
	t.addEntry(name, entry{mode: fs.ModeDir | mode&(fs.ModePerm|fs.ModeSticky)})
}

// Bytes adds a file with this content.
func (t *Tree) Bytes(name string, mode fs.FileMode, content []byte) {
	t.addEntry(name, entry{mode: mode & fs.ModePerm, content: content})
}

// Symlink adds a symbolic link.
func (t *Tree) Symlink(name, target string) {
	t.addEntry(name, entry{mode: fs.ModeSymlink | fs.ModePerm, link: target})
}

// HostFile adds a file of this machine, read when the image is built.
func (t *Tree) HostFile(name string, mode fs.FileMode, file string) {
	t.addEntry(name, entry{mode: mode & fs.ModePerm, host: file})
}

// HostDir adds everything below a directory of this machine except what skip selects. skip gets the path below dir,
// with slashes, and may be nil. Modes become 0755 for directories and executable files, else 0644, so that
// the umask of a checkout does not change a digest. Symbolic links are kept.
func (t *Tree) HostDir(name, dir string, skip func(name string) bool) error {
	st, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("adding folder %s to an image: %w", dir, err)
	}
	if !st.IsDir() {
		return fmt.Errorf("adding folder %s to an image: it is not a folder", dir)
	}
	return filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("adding folder %s to an image: %w", dir, err)
		}
		rel, err := filepath.Rel(dir, file)
		if err != nil {
			return fmt.Errorf("adding folder %s to an image: %w", dir, err)
		}
		rel = filepath.ToSlash(rel)
		if rel != "." && skip != nil && skip(rel) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		return t.addHostEntry(path.Join(name, rel), file, d)
	})
}

func (t *Tree) addHostEntry(name, file string, d fs.DirEntry) error {
	switch d.Type() {
	case fs.ModeDir:
		t.Dir(name, 0o755)
	case fs.ModeSymlink:
		target, err := os.Readlink(file)
		if err != nil {
			return fmt.Errorf("adding link %s to an image: %w", file, err)
		}
		t.Symlink(name, target)
	case 0:
		st, err := d.Info()
		if err != nil {
			return fmt.Errorf("adding file %s to an image: %w", file, err)
		}
		mode := fs.FileMode(0o644)
		if st.Mode()&0o100 != 0 {
			mode = 0o755
		}
		t.HostFile(name, mode, file)
	default:
		return fmt.Errorf("adding %s to an image: it is a %s; an image takes files, folders and symbolic links", file, describeType(d.Type()))
	}
	return nil
}

func describeType(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeNamedPipe != 0:
		return "named pipe"
	case mode&fs.ModeSocket != 0:
		return "socket"
	case mode&fs.ModeDevice != 0:
		return "device"
	}
	return "special file"
}

// withFolders returns the entries of the tree with every parent directory, or an error when they are inconsistent.
func (t *Tree) withFolders() (map[string]entry, error) {
	all := make(map[string]entry, len(t.entries))
	for name, e := range t.entries {
		switch {
		case name == "": // the root folder is always there
			if !e.mode.IsDir() {
				return nil, fmt.Errorf("the root of an image is a folder")
			}
			continue
		case !utf8.ValidString(name) || !utf8.ValidString(e.link):
			return nil, fmt.Errorf("file name %q is not valid UTF-8; rename the file", name)
		case strings.ContainsRune(name, 0):
			return nil, fmt.Errorf("file name %q contains a zero byte", name)
		}
		all[name] = e
		for up := path.Dir(name); up != "."; up = path.Dir(up) {
			above, there := t.entries[up]
			if there && !above.mode.IsDir() {
				return nil, fmt.Errorf("/%s cannot be below /%s, which is not a folder", name, up)
			}
			if !there {
				all[up] = entry{mode: fs.ModeDir | 0o755}
			}
		}
	}
	return all, nil
}

// openContent returns the content of a file and its length.
func (e entry) openContent() (io.ReadCloser, int64, error) {
	if e.host == "" {
		return io.NopCloser(bytes.NewReader(e.content)), int64(len(e.content)), nil
	}
	f, err := os.Open(e.host)
	if err != nil {
		return nil, 0, err
	}
	st, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, st.Size(), nil
}

// checksumFile lists the SHA-256 of each file, as sha256sum does, with paths relative to the root of the image.
func (t *Tree) checksumFile() ([]byte, error) {
	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(t.entries)) {
		e := t.entries[name]
		if !e.mode.IsRegular() {
			continue
		}
		content, _, err := e.openContent()
		if err != nil {
			return nil, err
		}
		is := sha256.New()
		_, err = io.Copy(is, content)
		if err = errors.Join(err, content.Close()); err != nil {
			return nil, err
		}
		fmt.Fprintf(&out, "%x  %s\n", is.Sum(nil), name)
	}
	return out.Bytes(), nil
}
