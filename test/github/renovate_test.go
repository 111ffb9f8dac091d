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

// renovateConfig is what the tests need of .github/renovate.json.
type renovateConfig struct {
	Extends, Labels []string
	GoMod           struct{ ManagerFilePatterns []string }
	CustomManagers  []struct {
		ManagerFilePatterns, MatchStrings                            []string
		CustomType, DepNameTemplate, DatasourceTemplate, Description string
	}
}

func readRenovateConfig(t *testing.T) (config renovateConfig) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, ".github", "renovate.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(content, &config); err != nil {
		t.Fatal(err)
	}
	return config
}

// TestRenovate checks that each pattern of Renovate's configuration finds what it is for, and that its labels exist.
func TestRenovate(t *testing.T) {
	config := readRenovateConfig(t)
	for _, label := range config.Labels {
		if !slices.Contains(labelNames(t), label) {
			t.Errorf("the label %q is not in labels.txt", label)
		}
	}

	files := listTracked(t)
	if mods := selectFiles(t, files, config.GoMod.ManagerFilePatterns); len(mods) < 2 {
		t.Errorf("the module files of tools are only %v", mods)
	}
	if !slices.Contains(config.Extends, "helpers:pinGitHubActionDigests") {
		t.Error("helpers:pinGitHubActionDigests is missing: actions without a digest say that Renovate pins them")
	}
	if len(config.CustomManagers) == 0 {
		t.Error("there are no custom managers")
	}
	for _, m := range config.CustomManagers {
		if m.CustomType != "regex" || m.DatasourceTemplate == "" || m.Description == "" {
			t.Errorf("a custom manager of %v has no regex, datasource or description", m.ManagerFilePatterns)
		}
		for _, pattern := range m.MatchStrings {
			if !strings.Contains(pattern, "(?<currentValue>") || strings.Contains(pattern, "(?<depName>") == (m.DepNameTemplate != "") {
				t.Errorf("%s needs a currentValue, and a depName or a template of it", pattern)
			}
			if !isFound(t, selectFiles(t, files, m.ManagerFilePatterns), pattern) {
				t.Errorf("%s finds nothing in %v", pattern, m.ManagerFilePatterns)
			}
		}
	}
}

var (
	// pinnedModule is a Go module with its version; pinnedValue a constant or variable with one.
	pinnedModule = regexp.MustCompile(`[a-z0-9.-]+\.[a-z]+/[A-Za-z0-9_./-]+@(v[0-9]+\.[0-9]+\.[0-9]+)`)
	pinnedValue  = regexp.MustCompile(`(?m)^[ \t]*(?:const )?([A-Za-z]*[vV]ersion[A-Za-z]*|[A-Z_]+)[ \t]*[:?]?=[ \t]*"?(v?[0-9]+\.[0-9]+\.[0-9]+)`)

	// withTools are the files that name tools: what runs, and what CI runs. Module files have a manager of Renovate's own.
	withTools = regexp.MustCompile(`^(Makefile|\.ci/|\.github/workflows/|\.devcontainer/|hack/|test/)`)
	withData  = regexp.MustCompile(`(^|/)(testdata/|go\.(mod|sum)$)|\.md$`)

	// keptVersions are versions that no update changes, and why.
	keptVersions = map[string]string{
		"Makefile OLDEST":                        "the oldest Kubernetes that is supported, in docs/versioning.md too",
		"test/e2e/suite/images.go KairosVersion": "what a simulated host says, equal to the image in the manifests that the tests apply",
	}
)

// TestRenovateKnowsTools checks that the version of each tool that is named outside of module files is found by a custom manager.
func TestRenovateKnowsTools(t *testing.T) {
	config, files, pins := readRenovateConfig(t), listTracked(t), 0
	for _, file := range files {
		if !withTools.MatchString(file) || withData.MatchString(file) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		known := config.findVersions(t, file, content)
		require := func(what, name string, at int) {
			if _, isKept := keptVersions[file+" "+name]; isKept {
				return
			}
			pins++
			if !known[at] {
				t.Errorf("%s: %s is found by no custom manager of renovate.json: add one", file, what)
			}
		}
		for _, m := range pinnedModule.FindAllSubmatchIndex(content, -1) {
			require(string(content[m[0]:m[1]]), "", m[2])
		}
		for _, m := range pinnedValue.FindAllSubmatchIndex(content, -1) {
			require(string(content[m[2]:m[5]]), string(content[m[2]:m[3]]), m[4])
		}
	}
	if pins < 8 {
		t.Errorf("only %d versions of tools were found", pins)
	}
}

// findVersions returns where in a file the custom managers find versions.
func (c renovateConfig) findVersions(t *testing.T, file string, content []byte) map[int]bool {
	t.Helper()
	found := map[int]bool{}
	for _, m := range c.CustomManagers {
		if len(selectFiles(t, []string{file}, m.ManagerFilePatterns)) == 0 {
			continue
		}
		for _, pattern := range m.MatchStrings {
			expr := compile(t, pattern)
			for _, at := range expr.FindAllSubmatchIndex(content, -1) {
				found[at[2*expr.SubexpIndex("currentValue")]] = true
			}
		}
	}
	return found
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
