// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package packages tests the packages of this folder: they are valid, and every stage has the documented effect on a
// host.
package packages

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	format "github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/packagecli/lint"
)

// listPackages returns the folders of the packages.
func listPackages(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob("*/config.json")
	if err != nil || len(found) < 3 {
		t.Fatalf("packages: %v, %v", found, err)
	}
	var names []string
	for _, f := range found {
		names = append(names, filepath.Dir(f))
	}
	return names
}

// listScripts returns all shell scripts below a folder.
func listScripts(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(dir, func(at string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content, err := os.ReadFile(at)
		if bytes.HasPrefix(content, []byte("#!")) || strings.HasSuffix(at, ".sh") {
			found = append(found, at)
		}
		return err
	})
	if err != nil || len(found) == 0 {
		t.Fatalf("scripts of %s: %v, %v", dir, found, err)
	}
	return found
}

func TestValid(t *testing.T) {
	for _, name := range listPackages(t) {
		config, problems := format.Validate(os.DirFS(name), format.Want{Name: name})
		problems = append(problems, lint.Scripts(os.DirFS(name), config)...)
		if len(problems) > 0 {
			t.Errorf("%s:\n%s", name, problems.Text())
		}
		// Every installed package can be uninstalled, and every action is checked.
		for _, mode := range []format.Mode{format.ModeConfig, format.ModeUninstall} {
			if len(config.Steps(mode)) == 0 || len(config.Steps(mode.Check())) == 0 {
				t.Errorf("%s has no steps for %s or its check", name, mode)
			}
		}
	}
}

// newerBashWords are features that bash 4.4 does not have.
var newerBashWords = regexp.MustCompile(`EPOCHSECONDS|EPOCHREALTIME|BASH_ARGV0|SRANDOM|\$\{[^}]*@[UuLKk]\}|\bwait -p\b|\blocalvar_inherit\b|\bassoc_expand_once\b|\bpatsub_replacement\b|\$\{ |\$\{\|`)

func TestScripts(t *testing.T) {
	for _, name := range listPackages(t) {
		for _, script := range listScripts(t, name) {
			content, err := os.ReadFile(script)
			if err != nil {
				t.Fatal(err)
			}
			text := string(content)
			if want := "#!/bin/bash\n# SPDX-FileCopyrightText: The Skyhook authors\n# SPDX-License-Identifier: Apache-2.0\n#\n# "; !strings.HasPrefix(text, want) {
				t.Errorf("%s does not begin with its interpreter, its license and its purpose", script)
			}
			if !strings.Contains(text, "\nset -euo pipefail\n") {
				t.Errorf("%s does not end at the first error", script)
			}
			if m := newerBashWords.FindString(text); m != "" {
				t.Errorf("%s uses %q, which bash 4.4 does not have", script, m)
			}
			if st, err := os.Stat(script); err != nil || st.Mode().Perm()&0o111 != 0o111 {
				t.Errorf("%s cannot be executed: %v", script, err)
			}
			if lines := strings.Count(text, "\n"); lines > 400 {
				t.Errorf("%s has %d lines; the limit is 400", script, lines)
			}
		}
	}
}

func TestShellcheck(t *testing.T) {
	shellcheck, err := exec.LookPath("shellcheck")
	if err != nil {
		t.Skip("shellcheck is not installed: apt-get install shellcheck")
	}
	var all []string
	for _, dir := range append(listPackages(t), "testdata/host", "testdata/apt") {
		all = append(all, listScripts(t, dir)...)
	}
	if out, err := exec.Command(shellcheck, all...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// publishedSteps are the step files and modes that other packages and users rely on.
var publishedSteps = map[string][]string{
	"shellscript": {"shellscript_run.sh"},
	"tuning": {"update_settings.sh", "update_settings_check.sh", "update_settings_post_check.sh", "update_settings_uninstall.sh",
		"update_settings_uninstall_check.sh", "preflight.sh"},
	"tuned": {"install_tuned.sh", "install_tuned_check.sh", "apply_tuned_profile.sh", "apply_tuned_profile_check.sh",
		"post_interrupt_tuned_check.sh", "uninstall_tuned.sh", "uninstall_tuned_check.sh", "preflight.sh"},
	"os-update": {"preflight.sh", "update.sh", "update_check.sh", "effect_check.sh", "undo.sh", "undo_check.sh"},
}

func TestPublishedSteps(t *testing.T) {
	for name, want := range publishedSteps {
		config, _ := format.Validate(os.DirFS(name), format.Want{})
		files := map[string]bool{}
		for _, mode := range format.Modes() {
			for _, step := range config.Steps(mode) {
				files[step.File()] = true
			}
		}
		if got := slices.Sorted(maps.Keys(files)); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
			t.Errorf("%s has the steps %v, published were %v", name, got, want)
		}
	}
}

// TestDockerfile checks that each Dockerfile builds the same image as hack/mkimage: the same files, with the
// same modes, at /skyhook-package, on a base with a shell.
func TestDockerfile(t *testing.T) {
	for _, name := range listPackages(t) {
		text, err := os.ReadFile(filepath.Join(name, "Dockerfile"))
		if err != nil {
			t.Error(err)
			continue
		}
		got := map[string]bool{}
		for line := range strings.Lines(string(text)) {
			words := strings.Fields(line)
			switch {
			case len(words) == 0 || strings.HasPrefix(words[0], "#"):
			case words[0] == "FROM" && len(words) == 2:
				if !regexp.MustCompile(`^[a-z0-9./-]+:[0-9][a-z0-9.-]*$`).MatchString(words[1]) {
					t.Errorf("%s/Dockerfile: %s is not pinned to a version", name, words[1])
				}
			case words[0] == "COPY" && len(words) > 2:
				target := words[len(words)-1]
				for _, from := range words[1 : len(words)-1] {
					if err := dockerCopy(name, from, target, got); err != nil {
						t.Errorf("%s/Dockerfile: %v", name, err)
					}
				}
			default:
				t.Errorf("%s/Dockerfile: %q is more than a package needs", name, strings.TrimSpace(line))
			}
		}
		want := map[string]bool{}
		err = filepath.WalkDir(name, func(at string, e fs.DirEntry, err error) error {
			if rel, _ := filepath.Rel(name, at); err == nil && !e.IsDir() && rel != "Dockerfile" {
				want["/skyhook-package/"+rel] = true
			}
			return err
		})
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("%s/Dockerfile copies\n%v, the package is\n%v (%v)", name, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)), err)
		}
	}
}

// dockerCopy lists the files that COPY creates from one source: a file is put into the target folder, a folder's content becomes the target's.
func dockerCopy(name, from, target string, got map[string]bool) error {
	if !strings.HasSuffix(target, "/") {
		return fmt.Errorf("%s is not written as a folder", target)
	}
	return filepath.WalkDir(filepath.Join(name, from), func(at string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rel, err := filepath.Rel(filepath.Join(name, from), at)
		if rel == "." {
			rel = filepath.Base(at)
		}
		got[target+rel] = true
		return err
	})
}

// TestVersions checks that the pages have an example with the current version. A README may be the only page.
func TestVersions(t *testing.T) {
	for _, name := range listPackages(t) {
		var config struct {
			Version string `json:"package_version"`
		}
		raw, err := os.ReadFile(filepath.Join(name, "config.json"))
		if err == nil {
			err = json.Unmarshal(raw, &config)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, page := range []string{filepath.Join(name, "README.md"), filepath.Join("../docs/packages", name+".md")} {
			text, err := os.ReadFile(page)
			if err != nil {
				if filepath.Base(page) == "README.md" || !errors.Is(err, fs.ErrNotExist) {
					t.Error(err)
				}
			} else if !strings.Contains(string(text), "version: "+config.Version+"\n") {
				t.Errorf("%s has no example with the current version, %s", page, config.Version)
			}
		}
	}
}
