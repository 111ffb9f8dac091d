// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Mkrelease makes what a release consists of besides images: the chart as a package, install.yaml for those without Helm,
// kubectl-skyhook for every platform with a manifest for krew, lists of what programs and images consist of, release notes, and
// checksums of all of it. The same commit, version and Go give the same bytes.
//
//	go run ./hack/mkimage --version v1.2.3 --out dist/release/images
//	go run ./hack/mkrelease --version v1.2.3 --out dist/release
package main

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// version is v, three numbers, and perhaps a suffix: what Helm, Go and tags of images all take.
var version = regexp.MustCompile(`^v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z][0-9A-Za-z.-]*)?$`)

// platforms are those that kubectl-skyhook is made for.
var platforms = []string{"darwin/amd64", "darwin/arm64", "linux/amd64", "linux/arm64", "windows/amd64"}

type release struct {
	root, out, version string
	platforms          []string
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "mkrelease: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	var r release
	var only string
	f := flag.NewFlagSet("mkrelease", flag.ContinueOnError)
	f.StringVar(&r.root, "module", ".", "the root `folder` of this repository")
	f.StringVar(&r.out, "out", "dist/release", "the `folder` for everything; images are looked for in its folder images")
	f.StringVar(&r.version, "version", "", "the `version`, such as v1.2.3")
	f.StringVar(&only, "platform", strings.Join(platforms, ","), "make kubectl-skyhook for these `platforms`; none when empty")
	if err := f.Parse(args); err != nil {
		return err
	}
	if !version.MatchString(r.version) {
		return fmt.Errorf("%q is no version: write one such as v1.2.3 or v1.2.3-rc.1, with make release VERSION=v1.2.3", r.version)
	}
	if only != "" {
		r.platforms = strings.Split(only, ",")
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil { //nolint:gosec // G301: a release is for everybody to read
		return fmt.Errorf("making the folder of the release: %w", err)
	}
	return errors.Join(r.buildAll(), r.writeChecksums())
}

func (r *release) buildAll() error {
	if err := r.packChart(); err != nil {
		return err
	}
	if err := r.renderManifests(); err != nil {
		return err
	}
	for _, p := range r.platforms {
		if err := r.archivePrograms(p); err != nil {
			return err
		}
	}
	if err := r.listImageContents(); err != nil {
		return err
	}
	if err := r.writeKrewManifest(); err != nil {
		return err
	}
	return r.writeNotes()
}

// writeFile puts a file of the release where it belongs.
func (r *release) writeFile(name string, content []byte) error {
	file := filepath.Join(r.out, name)
	if err := os.WriteFile(file, content, 0o644); err != nil { //nolint:gosec // G306: a release is for everybody to read
		return fmt.Errorf("writing %s: %w", file, err)
	}
	return nil
}

// writeChecksums lists the SHA-256 of every file, for sha256sum -c.
func (r *release) writeChecksums() error {
	var lines []string
	err := filepath.WalkDir(r.out, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "SHA256SUMS" {
			return err
		}
		content, err := os.ReadFile(path) //nolint:gosec // G122: the folder of a release is its maker's
		if err != nil {
			return err
		}
		name, err := filepath.Rel(r.out, path)
		lines = append(lines, fmt.Sprintf("%x  %s", sha256.Sum256(content), filepath.ToSlash(name)))
		return err
	})
	if err != nil {
		return fmt.Errorf("taking checksums: %w", err)
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[66:], b[66:]) })
	return r.writeFile("SHA256SUMS", []byte(strings.Join(lines, "\n")+"\n"))
}
