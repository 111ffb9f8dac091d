// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package docs tests the documentation: examples are validated by an API server, commands are parsed by the
// programs they call, links have targets. Blocks that cannot be tested are marked in the page and listed by a test.
package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// A block is a fenced part of a page. Its kind is the first word after the fence; the rest of the line is in more.
type block struct {
	page string
	line int
	kind string
	more string
	text string
}

func (b block) String() string { return fmt.Sprintf("%s:%d", b.page, b.line) }

// repositoryRoot returns the folder of the repository.
func repositoryRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the repository: %w", err)
	}
	return filepath.Join(dir, "..", ".."), nil
}

// listPages returns the Markdown files that are or would be tracked by Git, except test data and templates.
func listPages(root string) ([]string, error) {
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

var fence = regexp.MustCompile("^( *)(```+|~~~+) *([^ `]*) *([^`]*)$")

// parseBlocks returns the fenced parts of a page.
func parseBlocks(root, page string) ([]block, error) {
	content, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		return nil, fmt.Errorf("reading a page: %w", err)
	}
	var all []block
	var open *block
	indent, mark := "", ""
	for i, line := range strings.Split(string(content), "\n") {
		m := fence.FindStringSubmatch(line)
		switch {
		case open == nil && m != nil:
			open, indent, mark = &block{page: page, line: i + 1, kind: m[3], more: strings.TrimSpace(m[4])}, m[1], m[2]
		case open != nil && m != nil && m[2] == mark && m[3] == "":
			all, open = append(all, *open), nil
		case open != nil:
			open.text += strings.TrimPrefix(line, indent) + "\n"
		}
	}
	if open != nil {
		return nil, fmt.Errorf("%s: the block is not closed", open)
	}
	return all, nil
}
