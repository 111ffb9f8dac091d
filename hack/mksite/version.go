// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
)

// A version is the documentation of a release, or of the tree.
type version struct {
	Name     string            `json:"name"`
	Pages    []string          `json:"pages"` // paths in the site
	Sections []section         `json:"-"`
	Files    map[string]string `json:"-"` // paths in the site by file
	revision string            // what links to the repository name
	files    map[string][]byte
}

// A section is a table of docs/README.md, which becomes a part of the navigation.
type section struct {
	Title string `json:"title"`
	Pages []link `json:"pages"`
}

type link struct {
	Title string `json:"title"`
	Path  string `json:"path"`
}

var (
	release     = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+$`)
	heading     = regexp.MustCompile(`(?m)^# +(.+)$`)
	sectionLine = regexp.MustCompile(`^## +(.+)$`)
	pageLink    = regexp.MustCompile(`\]\(([^)#]+)\)`)
)

// isPage reports whether a file is a page of the site: Markdown that is no test data and no template.
func isPage(name string) bool {
	isHidden := strings.HasPrefix(name, ".") || strings.Contains(name, "/testdata/") || strings.Contains(name, "/scaffold/")
	return path.Ext(name) == ".md" && !isHidden
}

// isPicture reports whether pages may show a file.
func isPicture(name string) bool {
	return strings.HasPrefix(name, "docs/") && (path.Ext(name) == ".svg" || path.Ext(name) == ".png")
}

func newVersion(name, revision string, files map[string][]byte) *version {
	v := &version{Name: name, revision: revision, files: files, Files: map[string]string{}}
	for file := range files {
		if isPage(file) {
			v.Files[file] = sitePath(file)
			v.Pages = append(v.Pages, v.Files[file])
		}
	}
	v.Sections = v.readSections()
	return v
}

// sitePath is where a page is in the site. A README is the index of its folder.
func sitePath(file string) string {
	dir, base := path.Split(file)
	if base == "README.md" {
		return dir + "index.html"
	}
	return strings.TrimSuffix(file, ".md") + ".html"
}

// frontMatter is what Hugo has to know of a page.
func (v *version) frontMatter(file string) []byte {
	return fmt.Appendf(nil, "---\ntitle: %q\nurl: %q\npath: %q\nsource: %q\n---\n", v.title(file), "/"+v.Files[file], v.Files[file], file)
}

// title is the first heading of a page, without marks.
func (v *version) title(file string) string {
	found := heading.FindSubmatch(v.files[file])
	if found == nil {
		return file
	}
	return strings.NewReplacer("`", "", "*", "").Replace(string(found[1]))
}

// readSections reads the tables of docs/README.md. The navigation has the same order; nil when there are none.
func (v *version) readSections() []section {
	var all []section
	for line := range strings.Lines(string(v.files["docs/README.md"])) {
		if found := sectionLine.FindStringSubmatch(strings.TrimSpace(line)); found != nil {
			all = append(all, section{Title: found[1]})
			continue
		}
		cells := strings.Split(line, "|")
		if len(all) == 0 || len(cells) < 3 {
			continue
		}
		for _, found := range pageLink.FindAllStringSubmatch(cells[1], -1) {
			file := path.Join("docs", found[1])
			if _, isFolder := v.Files[path.Join(file, "README.md")]; isFolder {
				file = path.Join(file, "README.md")
			}
			if target := v.Files[file]; target != "" {
				last := &all[len(all)-1]
				last.Pages = append(last.Pages, link{Title: v.title(file), Path: target})
			}
		}
	}
	return all
}

// listReleases returns the tags of releases, newest first.
func listReleases(ctx context.Context) ([]string, error) {
	out, err := runGit(ctx, "tag", "--list", "v*")
	if err != nil {
		return nil, err
	}
	var tags []string
	for _, tag := range strings.Fields(string(out)) {
		if release.MatchString(tag) {
			tags = append(tags, tag)
		}
	}
	slices.SortFunc(tags, func(a, b string) int { return semver.MustParse(b).Compare(semver.MustParse(a)) })
	return tags, nil
}

// readTree reads the pages and pictures that are or would be tracked by Git.
func readTree(ctx context.Context) (map[string][]byte, error) {
	return readFiles(ctx, os.ReadFile, "ls-files", "--cached", "--others", "--exclude-standard")
}

// readTag reads the pages and pictures of a release.
func readTag(ctx context.Context, tag string) (map[string][]byte, error) {
	return readFiles(ctx, func(name string) ([]byte, error) { return runGit(ctx, "show", tag+":"+name) }, "ls-tree", "-r", "--name-only", tag)
}

// readFiles reads the pages and pictures among the files that a command of Git lists.
func readFiles(ctx context.Context, read func(name string) ([]byte, error), list ...string) (map[string][]byte, error) {
	out, err := runGit(ctx, list...)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for name := range strings.Lines(string(out)) {
		name = strings.TrimSpace(name)
		if !isPage(name) && !isPicture(name) {
			continue
		}
		content, err := read(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted, and not committed yet
		}
		if err != nil {
			return nil, fmt.Errorf("reading a page: %w", err)
		}
		files[name] = content
	}
	return files, nil
}

func runGit(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	var text bytes.Buffer
	cmd.Stderr = &text
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git %s: %w\n%s", args[0], err, text.String())
	}
	return out, nil
}
