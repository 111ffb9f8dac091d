// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"bufio"
	"debug/elf"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// libraries finds the shared libraries of programs as the dynamic loader does.
type libraries struct {
	dirs   []string
	wanted map[string]string // path on this machine, by the path that programs use
	copied map[string]string // copies, by the real path of the program
}

func newLibraries() *libraries {
	l := &libraries{wanted: map[string]string{}, copied: map[string]string{}}
	l.readLoaderConfig("/etc/ld.so.conf", 0)
	found, _ := filepath.Glob("/usr/lib/*-linux-*") // multiarch directories
	l.dirs = append(append(l.dirs, found...), "/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib")
	return l
}

// readLoaderConfig reads the loader's configuration and ignores missing files and unknown lines.
func (l *libraries) readLoaderConfig(file string, depth int) {
	f, err := os.Open(file)
	if err != nil || depth > 4 {
		return
	}
	defer f.Close()
	in := bufio.NewScanner(f)
	for in.Scan() {
		line := strings.TrimSpace(in.Text())
		if pattern, ok := strings.CutPrefix(line, "include "); ok {
			if !filepath.IsAbs(pattern) {
				pattern = filepath.Join(filepath.Dir(file), pattern)
			}
			more, _ := filepath.Glob(strings.TrimSpace(pattern))
			for _, m := range more {
				l.readLoaderConfig(m, depth+1)
			}
		} else if filepath.IsAbs(line) {
			l.dirs = append(l.dirs, line)
		}
	}
}

// copyProgram copies a program. A program with several names is copied once and hard-linked.
func (l *libraries) copyProgram(at, to string) error {
	target, err := filepath.EvalSymlinks(at)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil { //nolint:gosec // G301: as on every host
		return err
	}
	if first := l.copied[target]; first != "" {
		return os.Link(first, to)
	}
	if err := copyFile(target, to); err != nil {
		return err
	}
	l.copied[target] = to
	if err := l.addDependencies(target); err != nil {
		return err
	}
	return os.Chmod(to, 0o755) //nolint:gosec // G302: a program is for everybody to run
}

// addDependencies adds the libraries that a file needs, transitively.
func (l *libraries) addDependencies(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	e, err := elf.NewFile(f)
	var format *elf.FormatError
	if errors.As(err, &format) || errors.Is(err, io.EOF) {
		return nil // a script
	}
	if err != nil {
		return err
	}
	for _, p := range e.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		raw, err := io.ReadAll(p.Open())
		if err != nil {
			return err
		}
		loader := strings.TrimRight(string(raw), "\x00")
		l.wanted[loader] = loader
	}
	names, err := e.ImportedLibraries()
	if err != nil {
		return err
	}
	for _, name := range names {
		at := l.findLibrary(name, e.Machine)
		if at == "" || l.wanted[at] != "" {
			continue
		}
		l.wanted[at] = at
		if err := l.addDependencies(at); err != nil {
			return err
		}
	}
	return nil
}

// findLibrary returns the path of a library, or "" when there is none.
func (l *libraries) findLibrary(name string, machine elf.Machine) string {
	for _, dir := range l.dirs {
		at := filepath.Join(dir, name)
		f, err := elf.Open(at)
		if err != nil {
			continue
		}
		fits := f.Machine == machine
		_ = f.Close()
		if fits {
			return at
		}
	}
	return ""
}

// copyAll copies the libraries to the paths where programs look for them.
func (l *libraries) copyAll(dir string) error {
	for _, at := range slices.Sorted(maps.Keys(l.wanted)) {
		to := filepath.Join(dir, mergedPath(at))
		if _, err := os.Stat(to); err == nil {
			continue
		}
		file, err := filepath.EvalSymlinks(l.wanted[at])
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil { //nolint:gosec // G301: as on every host
			return err
		}
		if err := copyFile(file, to); err != nil {
			return err
		}
		if err := os.Chmod(to, 0o755); err != nil { //nolint:gosec // G302: the loader is a program
			return err
		}
	}
	return nil
}
