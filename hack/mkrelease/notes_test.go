// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const changelog = `# Changelog

## Unreleased

- next

## v1.1.0 (2026-02-01)

### Reboots

- second

## v1.0.0 (2026-01-01)

- first
`

func TestFindChanges(t *testing.T) {
	for version, want := range map[string]string{
		"v1.0.0":      "- first\n",
		"v1.1.0":      "### Reboots\n\n- second\n",
		"v1.1.0-rc.1": "### Reboots\n\n- second\n",
		"v1.2.0-rc.1": "- next\n",
	} {
		got, err := findChanges(changelog, version)
		if err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", version, got, err, want)
		}
	}
	for _, version := range []string{"v1.2.0", "v1.1", "v1.0.01"} {
		if got, err := findChanges(changelog, version); err == nil || !strings.Contains(err.Error(), `"## `+version+` (DATE)"`) {
			t.Errorf("%s: %q, %v; want an error that names the heading", version, got, err)
		}
	}
	if got, err := findChanges("## v1.0.0 (2026-01-01)\n\n## v0.9.0 (2025-01-01)\n\n- old\n", "v1.0.0"); err == nil {
		t.Errorf("an empty section gives %q", got)
	}
	if got, err := findChanges("## Unreleased\n\n## v1.0.0 (2026-01-01)\n\n- old\n", "v1.1.0-rc.1"); err != nil || !strings.HasPrefix(got, "Nothing") {
		t.Errorf("a pre-release without changes has %q, %v", got, err)
	}
}

func TestNotes(t *testing.T) {
	root, out := t.TempDir(), t.TempDir()
	digest := "sha256:" + strings.Repeat("ab", 32)
	write(t, filepath.Join(root, "CHANGELOG.md"), changelog)
	write(t, filepath.Join(out, "images", "digests.txt"),
		"# built with go1.26, SOURCE_DATE_EPOCH=0\n"+digest+"  index  ghcr.io/x/operator:v1.1.0\n"+digest+"  linux/amd64  ghcr.io/x/operator:v1.1.0\n")
	r := release{root: root, out: out, version: "v1.1.0"}
	if err := r.writeNotes(); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(out, "release-notes.md"))
	if err != nil {
		t.Fatal(err)
	}
	want := "### Reboots\n\n- second\n\n### Images\n\n* `ghcr.io/x/operator:v1.1.0@" + digest + "`\n\n" +
		"How to verify: [release-process.md](https://github.com/skyhook-k8s/skyhook/blob/v1.1.0/docs/release-process.md#verify-a-release)\n"
	if string(got) != want {
		t.Errorf("the notes are\n%s\nwant\n%s", got, want)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
