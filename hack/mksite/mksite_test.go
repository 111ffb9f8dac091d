// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"reflect"
	"testing"
)

// TestNewVersion: READMEs become indexes, the navigation has the order of docs/README.md, and other files are no pages.
func TestNewVersion(t *testing.T) {
	v := newVersion("main", "main", map[string][]byte{
		"README.md":             []byte("# The `product`\n"),
		"docs/README.md":        []byte("# Documentation\n\n[a link](a.md) before any section\n\n## First\n\n| [b.md](b.md) · [../examples](../examples/README.md) | see [a.md](a.md) |\n\n## Second\n\n| [a.md](a.md) [gone.md](gone.md) | |\n| [../examples](../examples) | |\n"),
		"docs/a.md":             []byte("no title"),
		"docs/b.md":             []byte("text\n\n# Page B\n"),
		"examples/README.md":    []byte("# Examples\n"),
		"docs/images/x.svg":     nil,
		"x/testdata/a.md":       nil,
		".github/x.md":          nil,
		"a/scaffold/README.md":  nil,
		"examples/example.yaml": nil,
	})
	files := map[string]string{
		"README.md": "index.html", "docs/README.md": "docs/index.html", "docs/a.md": "docs/a.html", "docs/b.md": "docs/b.html", "examples/README.md": "examples/index.html",
	}
	if !reflect.DeepEqual(v.Files, files) {
		t.Errorf("the pages are %v", v.Files)
	}
	examples := link{"Examples", "examples/index.html"}
	sections := []section{{"First", []link{{"Page B", "docs/b.html"}, examples}}, {"Second", []link{{"docs/a.md", "docs/a.html"}, examples}}}
	if !reflect.DeepEqual(v.Sections, sections) {
		t.Errorf("the navigation is %v", v.Sections)
	}
	if got, want := string(v.frontMatter("README.md")), "---\ntitle: \"The product\"\nurl: \"/index.html\"\npath: \"index.html\"\nsource: \"README.md\"\n---\n"; got != want {
		t.Errorf("Hugo reads\n%s", got)
	}
	if !isPicture("docs/images/x.png") || !isPicture("docs/images/x.svg") || isPicture("internal/x.svg") {
		t.Error("pictures are SVGs and PNGs below docs/")
	}
}

// TestOutside: without docs/README.md there is no site, and the error says where to run.
func TestOutside(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := build(t.Context(), "site", "true", 1); err == nil {
		t.Error("a site was built outside a repository")
	}
}
