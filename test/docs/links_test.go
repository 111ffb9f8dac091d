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
	linkPattern        = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	headingPattern     = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	fencedPattern      = regexp.MustCompile("(?ms)^ *(```|~~~).*?^ *(```|~~~) *$")
	inlinePattern      = regexp.MustCompile("`[^`\n]*`")
	punctuationPattern = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// TestLinks checks that every link to a file of the repository, and to a heading in it, has a target.
func TestLinks(t *testing.T) {
	dir, err := repositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	names, err := listPages(dir)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, name := range names {
		text := readProse(t, filepath.Join(dir, name))
		for _, m := range linkPattern.FindAllStringSubmatch(inlinePattern.ReplaceAllString(text, ""), -1) {
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
				t.Errorf("%s links to %s, which does not exist", name, m[1])
				continue
			}
			if anchor != "" && strings.HasSuffix(target, ".md") && !slices.Contains(headingAnchors(readProse(t, target)), anchor) {
				t.Errorf("%s links to %s, and that page has no such heading", name, m[1])
			}
		}
	}
	if found < 50 {
		t.Errorf("only %d links were found", found)
	}
}

// linkedByPredecessors are files to which documents of the predecessors link.
var linkedByPredecessors = []string{
	"docs/runtime_required.md", "docs/resource_management.md", "docs/versioning.md", "docs/release-process.md", "docs/kyverno/README.md",
	"docs/uninstall.md", "docs/operator_resources_at_scale.md", "agent/README.md", "operator/README.md", "examples", "packages/PACKAGE_LIFECYCLE.md",
	"packages/CONTRIBUTING.md", "packages/shellscript/README.md", "packages/tuning/README.md", "packages/tuned/README.md", "config/samples", "LICENSE",
}

// TestKept checks that these files exist.
func TestKept(t *testing.T) {
	dir, err := repositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range linkedByPredecessors {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}

// TestIndex checks that docs/README.md links to every page below docs.
func TestIndex(t *testing.T) {
	dir, err := repositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	names, err := listPages(dir)
	if err != nil {
		t.Fatal(err)
	}
	index := readProse(t, filepath.Join(dir, "docs", "README.md"))
	for _, name := range names {
		below, in := strings.CutPrefix(name, "docs/")
		if in && below != "README.md" && !strings.Contains(index, "]("+below+")") {
			t.Errorf("docs/README.md does not link to %s", name)
		}
	}
}

// readProse returns a page without its fenced blocks.
func readProse(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return fencedPattern.ReplaceAllString(string(text), "")
}

// headingAnchors returns the anchors of the headings, as GitHub derives them.
func headingAnchors(text string) []string {
	var all []string
	for _, m := range headingPattern.FindAllStringSubmatch(text, -1) {
		plain := punctuationPattern.ReplaceAllString(strings.ToLower(m[1]), "")
		all = append(all, strings.ReplaceAll(plain, " ", "-"))
	}
	return all
}
