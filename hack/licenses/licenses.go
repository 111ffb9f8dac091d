// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package licenses finds the licences of the Go modules that programs are compiled from. Images and archives contain the texts, and the
// page THIRD_PARTY.md lists the licences.
package licenses

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// Module is a Go module that programs contain, or Go's standard library.
type Module struct {
	Path, Version string
	Licenses      []string // SPDX identifiers
	Programs      []string // programs that contain it
	Files         []File
}

// File is a licence or a notice.
type File struct {
	Name string // path in the module
	Text string
}

// StandardLibrary is the path of Go's standard library in lists.
const StandardLibrary = "std"

// allowed are licences under which everybody may distribute programs. MPL-2.0 asks that recipients learn where the source is, which
// Texts tells with the path and version of the module.
var allowed = []string{"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0"}

// A choice is a licence that we take of those that a file offers.
type choice struct {
	offered []string
	taken   string
}

// choices are those of files by module and name. Another offer is refused until somebody has read it.
var choices = map[string]choice{
	"github.com/spdx/tools-golang/LICENSE.code": {[]string{"Apache-2.0", "GPL-2.0"}, "Apache-2.0"},
}

// minCoverage is how much of the text of a licence must be known, in percent. The rest are names and headings.
const minCoverage = 75

var (
	licenseName = regexp.MustCompile(`(?i)^(un)?licen[cs]e|^copying|^copyright`)
	noticeName  = regexp.MustCompile(`(?i)^notice`)
)

// listedPackage is a package as go list knows it.
type listedPackage struct {
	ImportPath, Dir string
	Standard        bool
	Module          *struct {
		Path, Version, Dir string
		Main               bool
	}
}

// Build is a program below cmd on a platform, such as linux/amd64.
type Build struct{ Program, Platform string }

// Collect returns the modules that programs contain, sorted by path. It fails on a module without a licence, with an unknown one, or with
// one that is not allowed.
func Collect(ctx context.Context, root string, builds ...Build) ([]Module, error) {
	found := map[string]*Module{}
	for _, b := range builds {
		packages, err := listPackages(ctx, root, b)
		if err != nil {
			return nil, err
		}
		for _, p := range packages {
			if err := addPackage(found, p, b.Program); err != nil {
				return nil, err
			}
		}
	}
	if err := addStandardLibrary(ctx, found, builds); err != nil {
		return nil, err
	}

	var all []Module
	var errs []error
	for _, m := range found {
		errs = append(errs, m.identify())
		all = append(all, *m)
	}
	slices.SortFunc(all, func(a, b Module) int { return strings.Compare(a.Path, b.Path) })
	return all, errors.Join(errs...)
}

// listPackages lists what a program is compiled from.
func listPackages(ctx context.Context, root string, b Build) ([]listedPackage, error) {
	system, arch, _ := strings.Cut(b.Platform, "/")
	out, err := runGo(ctx, root, []string{"GOOS=" + system, "GOARCH=" + arch, "CGO_ENABLED=0"},
		"list", "-deps", "-json=ImportPath,Dir,Standard,Module", "./cmd/"+b.Program)
	if err != nil {
		return nil, fmt.Errorf("listing the packages of %s for %s: %w", b.Program, b.Platform, err)
	}
	var all []listedPackage
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listedPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("reading the packages of %s: %w", b.Program, err)
		}
		all = append(all, p)
	}
}

func runGo(ctx context.Context, dir string, env []string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "GOFLAGS=-mod=readonly", "GOWORK=off"), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, stderr.String())
	}
	return out, nil
}

// addPackage adds the module of a package, with the licences of all folders between its root and the package.
func addPackage(found map[string]*Module, p listedPackage, program string) error {
	if p.Standard || p.Module == nil || p.Module.Main {
		return nil
	}
	m := found[p.Module.Path]
	if m == nil {
		m = &Module{Path: p.Module.Path, Version: p.Module.Version}
		found[m.Path] = m
	}
	m.addProgram(program)
	inside, err := filepath.Rel(p.Module.Dir, p.Dir)
	if err != nil {
		return fmt.Errorf("finding package %s in its module: %w", p.ImportPath, err)
	}
	for folder := filepath.ToSlash(inside); ; folder = path.Dir(folder) {
		if err := m.addFiles(p.Module.Dir, folder); err != nil {
			return err
		}
		if folder == "." {
			return nil
		}
	}
}

// addStandardLibrary adds Go itself, which is part of every program.
func addStandardLibrary(ctx context.Context, found map[string]*Module, builds []Build) error {
	out, err := runGo(ctx, ".", nil, "env", "GOROOT", "GOVERSION")
	if err != nil {
		return fmt.Errorf("finding Go: %w", err)
	}
	root, version, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	m := &Module{Path: StandardLibrary, Version: version}
	for _, b := range builds {
		m.addProgram(b.Program)
	}
	found[m.Path] = m
	return m.addFiles(root, ".")
}

func (m *Module) addProgram(name string) {
	if !slices.Contains(m.Programs, name) {
		m.Programs = append(m.Programs, name)
		slices.Sort(m.Programs)
	}
}

// addFiles adds the licences and notices in a folder of a module.
func (m *Module) addFiles(root, folder string) error {
	entries, err := os.ReadDir(filepath.Join(root, filepath.FromSlash(folder)))
	if err != nil {
		return fmt.Errorf("looking for the licence of %s: %w", m.Path, err)
	}
	for _, e := range entries {
		name := path.Join(folder, e.Name())
		isWanted := licenseName.MatchString(e.Name()) || noticeName.MatchString(e.Name())
		isKnown := slices.ContainsFunc(m.Files, func(f File) bool { return f.Name == name })
		// LICENSE.docs is the licence of a documentation, which programs do not contain.
		isOther := slices.Contains([]string{".go", ".docs"}, path.Ext(name))
		if !isWanted || isKnown || isOther || !e.Type().IsRegular() {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			return fmt.Errorf("reading the licence of %s: %w", m.Path, err)
		}
		m.Files = append(m.Files, File{name, string(text)})
	}
	slices.SortFunc(m.Files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// identify sets the licences of a module, and refuses those that are unknown or not allowed.
func (m *Module) identify() error {
	for _, f := range m.Files {
		if noticeName.MatchString(path.Base(f.Name)) {
			continue
		}
		ids, err := m.identifyFile(f)
		if err != nil {
			return err
		}
		m.Licenses = append(m.Licenses, ids...)
	}
	slices.Sort(m.Licenses)
	m.Licenses = slices.Compact(m.Licenses)
	if len(m.Licenses) == 0 {
		return fmt.Errorf("module %s has no licence: it cannot be distributed", m.Path)
	}
	return nil
}

// identifyFile returns the licences in a file.
func (m *Module) identifyFile(f File) ([]string, error) {
	coverage := licensecheck.Scan([]byte(f.Text))
	if coverage.Percent < minCoverage {
		return nil, fmt.Errorf("module %s: %s is no known licence (%.0f %% of it are known): read it, and teach hack/licenses or remove the module", m.Path, f.Name, coverage.Percent)
	}
	var ids []string
	for _, match := range coverage.Match {
		if !match.IsURL {
			ids = append(ids, match.ID)
		}
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	if c, isChoice := choices[m.Path+"/"+f.Name]; isChoice && slices.Equal(ids, c.offered) {
		return []string{c.taken}, nil
	}
	for _, id := range ids {
		if !slices.Contains(allowed, id) {
			return nil, fmt.Errorf("module %s: %s is %s, which is not among the allowed licences (%s)", m.Path, f.Name, id, strings.Join(allowed, ", "))
		}
	}
	return ids, nil
}
