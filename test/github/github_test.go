// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package github tests what only GitHub and Renovate run: workflows, labels, forms and updates.
package github

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
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

// startsNodes are targets that need packages which the machines of GitHub do not have. make ci installs them itself.
var startsNodes = []string{"e2e", "oldest", "skew", "chaos", "test-cluster", "demo"}

// makeLine is all that a step may run: a target with variables. An expression is passed in env, where no shell can take it for code.
var makeLine = regexp.MustCompile(`^(?:sudo --preserve-env env "PATH=\$PATH" )?make ([a-z0-9-]+)(?: [A-Z]+=(?:"\$[A-Z]+"|"\$\{[A-Z]+\}[0-9]+"|[\w./:-]+))*$`)

var documented = regexp.MustCompile(`(?m)^([a-z0-9-]+):.*## `)

// TestSteps checks that each step runs a documented target of the Makefile and nothing else, with `make -n`.
func TestSteps(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	var targets []string
	for _, m := range documented.FindAllStringSubmatch(string(makefile), -1) {
		targets = append(targets, m[1])
	}
	path := dryRunPath(t)
	ran, withPackages := 0, 0
	for _, file := range listWorkflows(t) {
		for name, job := range readWorkflow(t, file).Jobs {
			hasPackages := false
			for _, step := range job.Steps {
				run, isRun := step.Exec.(*actionlint.ExecRun)
				if !isRun {
					continue
				}
				ran++
				line := strings.TrimSpace(run.Run.Value)
				m := makeLine.FindStringSubmatch(line)
				if m == nil || !slices.Contains(targets, m[1]) {
					t.Errorf("%s, job %s runs %q; a step runs a documented target of the Makefile", file, name, line)
					continue
				}
				if m[1] == "packages" {
					hasPackages = true
					withPackages++
				}
				if slices.Contains(startsNodes, m[1]) && !hasPackages {
					t.Errorf("%s, job %s: %q starts nodes, which needs the step make packages before", file, name, line)
				}
				cmd := exec.Command("bash", "-euo", "pipefail", "-c", line)
				cmd.Dir = root
				cmd.Env = append(os.Environ(), append(sampleEnvironment(step), "PATH="+path)...)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%s, job %s: %q: %v\n%s", file, name, line, err, out)
				}
			}
		}
	}
	if withPackages < 2 {
		t.Errorf("%d jobs start nodes", withPackages)
	}
	if ran < 12 {
		t.Errorf("only %d steps were checked", ran)
	}
}

// sampleEnvironment sets the variables of a step to values that GitHub could give them.
func sampleEnvironment(step *actionlint.Step) []string {
	samples := map[string]string{
		"VERSION": "v1.2.3", "TAG": "tuning/1.2.0", "BASE": "HEAD", "RUN": "7", "PART": "0/4", "GH_TOKEN": "none",
	}
	if step.Env == nil {
		return nil
	}
	var all []string
	for _, v := range step.Env.Vars {
		all = append(all, v.Name.Value+"="+samples[v.Name.Value])
	}
	return all
}

// dryRunPath returns a PATH whose make only prints what it would run, and whose sudo changes no user.
func dryRunPath(t *testing.T) string {
	t.Helper()
	program, err := exec.LookPath("make")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, script := range map[string]string{
		"make": "exec " + program + ` -n "$@"`,
		"sudo": `[ "$1" = --preserve-env ] && shift && exec "$@"`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir + string(os.PathListSeparator) + os.Getenv("PATH")
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
