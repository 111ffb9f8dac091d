// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package github

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// labelNames returns the names in .github/labels.txt.
func labelNames(t *testing.T) []string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, ".github", "labels.txt"))
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`^([a-z/ ]+)\|[0-9a-f]{6}\|[A-Z][^|]{1,99}$`)
	var names []string
	for _, text := range strings.Split(strings.TrimSpace(string(content)), "\n") {
		if strings.HasPrefix(text, "#") {
			continue
		}
		m := line.FindStringSubmatch(text)
		if m == nil {
			t.Errorf("labels.txt: %q is not NAME|COLOUR|DESCRIPTION", text)
			continue
		}
		if slices.Contains(names, m[1]) {
			t.Errorf("labels.txt has %q twice", m[1])
		}
		names = append(names, m[1])
	}
	return names
}

// TestRenovate checks that each pattern of Renovate's configuration finds what it is for, and that its labels exist.
func TestRenovate(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(root, ".github", "renovate.json"))
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Labels         []string
		GoMod          struct{ ManagerFilePatterns []string }
		CustomManagers []struct{ ManagerFilePatterns, MatchStrings []string }
	}
	if err := json.Unmarshal(content, &config); err != nil {
		t.Fatal(err)
	}
	for _, label := range config.Labels {
		if !slices.Contains(labelNames(t), label) {
			t.Errorf("the label %q is not in labels.txt", label)
		}
	}

	files := listTracked(t)
	if mods := selectFiles(t, files, config.GoMod.ManagerFilePatterns); len(mods) < 2 {
		t.Errorf("the module files of tools are only %v", mods)
	}
	if len(config.CustomManagers) == 0 {
		t.Error("there are no custom managers")
	}
	for _, m := range config.CustomManagers {
		for _, pattern := range m.MatchStrings {
			if !isFound(t, selectFiles(t, files, m.ManagerFilePatterns), pattern) {
				t.Errorf("%s finds nothing in %v", pattern, m.ManagerFilePatterns)
			}
		}
	}
}

// listTracked returns the files that are or would be tracked by Git.
func listTracked(t *testing.T) []string {
	t.Helper()
	cmd := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// selectFiles returns the files that match one of the patterns, which Renovate writes between slashes.
func selectFiles(t *testing.T, files, patterns []string) []string {
	t.Helper()
	var found []string
	for _, pattern := range patterns {
		expr := compile(t, strings.TrimSuffix(strings.TrimPrefix(pattern, "/"), "/"))
		for _, file := range files {
			if expr.MatchString(file) {
				found = append(found, file)
			}
		}
	}
	return found
}

func isFound(t *testing.T, files []string, pattern string) bool {
	t.Helper()
	expr := compile(t, pattern)
	for _, file := range files {
		content, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		if expr.Match(content) {
			return true
		}
	}
	return false
}

// compile reads a pattern of Renovate, whose named groups Go understands.
func compile(t *testing.T, pattern string) *regexp.Regexp {
	t.Helper()
	expr, err := regexp.Compile(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return expr
}
