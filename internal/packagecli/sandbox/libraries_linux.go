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

// libraries are what programs need to run, found as the loader finds them.
type libraries struct {
	dirs   []string
	wanted map[string]string // where it is on this machine, by the path the programs use
	copied map[string]string // programs under their real path
}

func newLibraries() *libraries {
	l := &libraries{wanted: map[string]string{}, copied: map[string]string{}}
	l.configured("/etc/ld.so.conf", 0)
	found, _ := filepath.Glob("/usr/lib/*-linux-*") // of distributions that keep libraries by architecture
	l.dirs = append(append(l.dirs, found...), "/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib")
	return l
}

// configured reads the loader's configuration. What is missing or strange there is passed over.
func (l *libraries) configured(file string, depth int) {
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
				l.configured(m, depth+1)
			}
		} else if filepath.IsAbs(line) {
			l.dirs = append(l.dirs, line)
		}
	}
}

// copyProgram copies a program; one that has several names is copied once and linked.
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
	if err := l.need(target); err != nil {
		return err
	}
	return os.Chmod(to, 0o755) //nolint:gosec // G302: a program is for everybody to run
}

// need notes which libraries a file needs, and those they need.
func (l *libraries) need(file string) error {
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
		at := l.locate(name, e.Machine)
		if at == "" || l.wanted[at] != "" {
			continue
		}
		l.wanted[at] = at
		if err := l.need(at); err != nil {
			return err
		}
	}
	return nil
}

// locate is where a library is; empty when it is not there.
func (l *libraries) locate(name string, machine elf.Machine) string {
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

// copyTo copies the libraries to where programs look for them.
func (l *libraries) copyTo(dir string) error {
	for _, at := range slices.Sorted(maps.Keys(l.wanted)) {
		to := filepath.Join(dir, merged(at))
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
