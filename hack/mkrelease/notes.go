// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const repository = "https://github.com/skyhook-k8s/skyhook"

// writeNotes writes release-notes.md: the version's section of the changelog, the digests of the images, and how to verify them.
func (r *release) writeNotes() error {
	changes, err := r.readChanges()
	if err != nil {
		return err
	}
	images, err := r.listDigests()
	if err != nil {
		return err
	}
	notes := changes + images + "\nHow to verify: [release-process.md](" + repository + "/blob/" + r.version + "/docs/release-process.md#verify-a-release)\n"
	return r.writeFile("release-notes.md", []byte(notes))
}

// readChanges returns what CHANGELOG.md says of the version.
func (r *release) readChanges() (string, error) {
	changelog, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		return "", fmt.Errorf("reading the changelog: %w", err)
	}
	return findChanges(string(changelog), r.version)
}

// findChanges returns the text below a version's heading, "## v1.2.3 (2026-01-31)". A pre-release without a section gets that of its
// release, or what is not released yet, which may be nothing.
func findChanges(changelog, version string) (string, error) {
	release, _, isPreRelease := strings.Cut(version, "-")
	candidates := []string{version}
	if isPreRelease {
		candidates = append(candidates, release, "Unreleased")
	}
	for _, candidate := range candidates {
		if text := findSection(changelog, candidate); text != "" {
			return text, nil
		}
	}
	if isPreRelease {
		return "Nothing that users can notice has changed since the version before.\n", nil
	}
	return "", fmt.Errorf("CHANGELOG.md has no text below a heading \"## %s (DATE)\": move the text of \"## Unreleased\" there", version)
}

// findSection returns the lines between the heading of a version and the next one, without empty lines around them.
func findSection(changelog, version string) string {
	var lines []string
	within := false
	for line := range strings.Lines(changelog) {
		if heading, isHeading := strings.CutPrefix(line, "## "); isHeading {
			name, _, _ := strings.Cut(strings.TrimSpace(heading), " ")
			within = name == version
			continue
		}
		if within {
			lines = append(lines, line)
		}
	}
	text := strings.TrimSpace(strings.Join(lines, ""))
	if text == "" {
		return ""
	}
	return text + "\n"
}

// listDigests is a list of the images by digest, or nothing for a release without images.
func (r *release) listDigests() (string, error) {
	text, err := os.ReadFile(filepath.Join(r.out, "images", "digests.txt"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading the digests of the images: %w", err)
	}
	var list strings.Builder
	list.WriteString("\n### Images\n\n")
	for line := range strings.Lines(string(text)) {
		// Each line has a digest, "index" or a platform, and a name.
		if f := strings.Fields(line); len(f) == 3 && f[1] == "index" {
			fmt.Fprintf(&list, "* `%s@%s`\n", f[2], f[0])
		}
	}
	return list.String(), nil
}
