// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	fenced  = regexp.MustCompile("(?ms)^ *(```|~~~).*?^ *(```|~~~) *$")
	inline  = regexp.MustCompile("`[^`\n]*`")
	unsaid  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// TestLinks: every link to a file of the repository leads there, and to the heading it names.
func TestLinks(t *testing.T) {
	dir, err := root()
	if err != nil {
		t.Fatal(err)
	}
	names, err := pages(dir)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, name := range names {
		text := prose(t, filepath.Join(dir, name))
		for _, m := range link.FindAllStringSubmatch(inline.ReplaceAllString(text, ""), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			found++
			file, anchor, _ := strings.Cut(m[1], "#")
			target := filepath.Join(dir, name)
			if file != "" {
				target = filepath.Join(filepath.Dir(target), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, which is not there", name, m[1])
				continue
			}
			if anchor != "" && strings.HasSuffix(target, ".md") && !slices.Contains(anchors(prose(t, target)), anchor) {
				t.Errorf("%s links to %s, and that page has no such heading", name, m[1])
			}
		}
	}
	if found < 50 {
		t.Errorf("only %d links were found", found)
	}
}

// kept are the files that documents of the predecessors link to.
var kept = []string{
	"docs/runtime_required.md", "docs/resource_management.md", "docs/versioning.md", "docs/release-process.md", "docs/kyverno/README.md",
	"docs/uninstall.md", "docs/operator_resources_at_scale.md", "agent/README.md", "operator/README.md", "examples", "packages/PACKAGE_LIFECYCLE.md",
	"packages/CONTRIBUTING.md", "packages/shellscript/README.md", "packages/tuning/README.md", "packages/tuned/README.md", "config/samples", "LICENSE",
}

// TestKept: old links still lead somewhere.
func TestKept(t *testing.T) {
	dir, err := root()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range kept {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}

// TestIndex: docs/README.md leads to every page below docs.
func TestIndex(t *testing.T) {
	dir, err := root()
	if err != nil {
		t.Fatal(err)
	}
	names, err := pages(dir)
	if err != nil {
		t.Fatal(err)
	}
	index := prose(t, filepath.Join(dir, "docs", "README.md"))
	for _, name := range names {
		below, in := strings.CutPrefix(name, "docs/")
		if in && below != "README.md" && !strings.Contains(index, "]("+below+")") {
			t.Errorf("docs/README.md does not lead to %s", name)
		}
	}
}

// prose is a page without its blocks.
func prose(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return fenced.ReplaceAllString(string(text), "")
}

// anchors are the names that headings get.
func anchors(text string) []string {
	var all []string
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		plain := unsaid.ReplaceAllString(strings.ToLower(m[1]), "")
		all = append(all, strings.ReplaceAll(plain, " ", "-"))
	}
	return all
}
