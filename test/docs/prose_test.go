// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	widest      = 120 // columns of a line, but for rows of tables and what one cannot break
	widestCell  = 200 // characters of a cell, without the targets of its links
	wordsOfTask = 400 // words of a page below docs/tasks, without its manifests and commands
	wordsOfNews = 600 // words of a version in CHANGELOG.md
	wordsOfUser = 45_000
)

var (
	cellBorder = regexp.MustCompile(`[^\\]\|`)
	linkTarget = regexp.MustCompile(`\]\([^)]*\)`)
)

// isGenerated tells pages that are written from code, whose words are those of fields and values.
func isGenerated(page string) bool {
	return strings.HasPrefix(page, "docs/api") || page == "chart/README.md" || page == "THIRD_PARTY.md"
}

// isForUsers tells pages that somebody reads who runs a cluster or writes a package.
func isForUsers(page string) bool {
	return strings.HasPrefix(page, "docs/") && !strings.HasPrefix(page, "docs/internals/") || page == "README.md" || page == "examples/README.md"
}

// TestNews checks that what changed in a version can be read before an upgrade.
func TestNews(t *testing.T) {
	dir, err := repositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	versions := strings.Split(readProse(t, filepath.Join(dir, "CHANGELOG.md")), "\n## ")[1:]
	if len(versions) == 0 {
		t.Error("CHANGELOG.md has no version")
	}
	for _, text := range versions {
		name, text, _ := strings.Cut(text, "\n")
		if words := len(strings.Fields(text)); words > wordsOfNews {
			t.Errorf("%q in CHANGELOG.md has %d words, and at most %d: say what readers have to do, and leave the rest to docs", name, words, wordsOfNews)
		}
	}
}

// TestProse checks that pages can be read: lines and cells end, tasks are short, and so is all of it together.
func TestProse(t *testing.T) {
	dir, err := repositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	pages, err := listPages(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := 0
	for _, page := range pages {
		if isGenerated(page) {
			continue
		}
		text := readProse(t, filepath.Join(dir, page))
		words := len(strings.Fields(text))
		if isForUsers(page) {
			all += words
		}
		if strings.HasPrefix(page, "docs/tasks/") && words > wordsOfTask {
			t.Errorf("%s has %d words, and a task has at most %d", page, words, wordsOfTask)
		}
		for _, line := range strings.Split(text, "\n") {
			if !strings.HasPrefix(line, "|") {
				if utf8.RuneCountInString(line) > widest && strings.Contains(strings.TrimSpace(line), " ") && !strings.HasPrefix(line, "![") {
					t.Errorf("%s has a line of more than %d columns: %.60s…", page, widest, line)
				}
				continue
			}
			for _, cell := range cellBorder.Split(linkTarget.ReplaceAllString(line, "]"), -1) {
				if utf8.RuneCountInString(strings.TrimSpace(cell)) > widestCell {
					t.Errorf("%s has a cell of more than %d characters: %.60s…", page, widestCell, strings.TrimSpace(cell))
				}
			}
		}
	}
	t.Logf("%d words for users", all)
	if all > wordsOfUser {
		t.Errorf("the pages for users have %d words, and at most %d: shorten a page before another one grows", all, wordsOfUser)
	}
}
