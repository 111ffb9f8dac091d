// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package docs holds the pages to what they say: every example is given to an API server, every command is parsed by the
// program it calls, every link leads somewhere. What can be none of that is marked in the page and listed here.
package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// A block is a fenced part of a page. Its kind is the first word behind the fence; the rest says more for these tests.
type block struct {
	page string
	line int
	kind string
	more string
	text string
}

func (b block) String() string { return fmt.Sprintf("%s:%d", b.page, b.line) }

// root is the repository.
func root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the repository: %w", err)
	}
	return filepath.Join(dir, "..", ".."), nil
}

// pages are all that Git knows or would know, without those that explain the programs below test/ to who works on them.
func pages(root string) ([]string, error) {
	cmd := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("listing pages: %w", err)
	}
	var found []string
	for _, name := range strings.Fields(string(out)) {
		if _, err := os.Stat(filepath.Join(root, name)); err == nil && !strings.Contains(name, "/testdata/") && !strings.Contains(name, "/scaffold/") {
			found = append(found, name)
		}
	}
	return found, nil
}

var fence = regexp.MustCompile("^ *(```+|~~~+) *([^ `]*) *([^`]*)$")

// blocks reads the fenced parts of a page.
func blocks(root, page string) ([]block, error) {
	content, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		return nil, fmt.Errorf("reading a page: %w", err)
	}
	var all []block
	var open *block
	mark := ""
	for i, line := range strings.Split(string(content), "\n") {
		m := fence.FindStringSubmatch(line)
		switch {
		case open == nil && m != nil:
			open, mark = &block{page: page, line: i + 1, kind: m[2], more: strings.TrimSpace(m[3])}, m[1]
		case open != nil && m != nil && m[1] == mark && m[2] == "":
			all, open = append(all, *open), nil
		case open != nil:
			open.text += line + "\n"
		}
	}
	if open != nil {
		return nil, fmt.Errorf("%s: the block does not end", open)
	}
	return all, nil
}
