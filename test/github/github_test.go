// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package github tests the workflows, and the script that checks whether commits are signed off.
package github

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rhysd/actionlint"
)

const root = "../.."

var workflowDir = filepath.Join(root, ".github", "workflows")

// listWorkflows returns the files of all workflows.
func listWorkflows(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(workflowDir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 8 {
		t.Fatalf("there are only %d workflows", len(files))
	}
	return files
}

func readWorkflow(t *testing.T, file string) *actionlint.Workflow {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	w, errs := actionlint.Parse(content)
	for _, err := range errs {
		t.Errorf("%s: %v", file, err)
	}
	if w == nil {
		t.Fatalf("%s is no workflow", file)
	}
	return w
}

// TestLint checks all workflows with actionlint: keys, expressions, contexts, and inputs of the actions that it knows.
func TestLint(t *testing.T) {
	var found bytes.Buffer
	options := &actionlint.LinterOptions{Color: actionlint.ColorOptionKindNever}
	if path, err := exec.LookPath("shellcheck"); err == nil {
		options.Shellcheck = path
	}
	linter, err := actionlint.NewLinter(&found, options)
	if err != nil {
		t.Fatal(err)
	}
	errs, err := linter.LintFiles(listWorkflows(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(errs) > 0 {
		t.Error(found.String())
	}
}

var (
	pinned    = regexp.MustCompile(`uses: [\w.-]+(?:/[\w.-]+)+@[0-9a-f]{40} # v[0-9]+(?:\.[0-9]+)*$`)
	versioned = regexp.MustCompile(`uses: [\w.-]+(?:/[\w.-]+)+@v[0-9]+(?:\.[0-9]+)* # version, not digest: Renovate pins it$`)
)

// TestPins checks that each action is pinned by digest, or by version with a comment that says so.
func TestPins(t *testing.T) {
	for _, file := range listWorkflows(t) {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(content), "\n") {
			isUse := strings.Contains(line, "uses:")
			if isUse && !pinned.MatchString(line) && !versioned.MatchString(line) {
				t.Errorf("%s:%d: %s", file, i+1, line)
			}
		}
	}
}

// TestCI checks that ci.yaml runs every target that .ci/run runs: both say what a change must pass.
func TestCI(t *testing.T) {
	script, err := os.ReadFile(filepath.Join(root, ".ci", "run"))
	if err != nil {
		t.Fatal(err)
	}
	workflow, err := os.ReadFile(filepath.Join(workflowDir, "ci.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	target := regexp.MustCompile(`\bmake ([a-z0-9-]+)`)
	found := target.FindAllStringSubmatch(string(script), -1)
	if len(found) < 10 {
		t.Fatalf(".ci/run has the targets %v", found)
	}
	for _, m := range found {
		isBuilt := m[1] == "image" // which make e2e needs
		if !isBuilt && !regexp.MustCompile(`run: .*\bmake `+m[1]+`\b`).Match(workflow) {
			t.Errorf("ci.yaml does not run make %s", m[1])
		}
	}
}

// TestRights checks that a workflow reads the repository and nothing else unless a job asks for more, that no job runs for ever, and
// that no checkout leaves its token behind.
func TestRights(t *testing.T) {
	for _, file := range listWorkflows(t) {
		w := readWorkflow(t, file)
		isReadOnly := w.Permissions != nil && w.Permissions.All == nil && len(w.Permissions.Scopes) == 1 &&
			w.Permissions.Scopes["contents"] != nil && w.Permissions.Scopes["contents"].Value.Value == "read"
		if !isReadOnly {
			t.Errorf("%s: the workflow's permissions are not contents: read", file)
		}
		for name, job := range w.Jobs {
			if job.TimeoutMinutes == nil {
				t.Errorf("%s: job %s has no timeout-minutes", file, name)
			}
			for _, step := range job.Steps {
				use, isUse := step.Exec.(*actionlint.ExecAction)
				if !isUse || !strings.HasPrefix(use.Uses.Value, "actions/checkout@") {
					continue
				}
				if input := use.Inputs["persist-credentials"]; input == nil || input.Value.Value != "false" {
					t.Errorf("%s: job %s: the checkout has no persist-credentials: false", file, name)
				}
			}
		}
	}
}
