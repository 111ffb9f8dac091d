// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package github

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestReleaseAllowed checks which tags become releases. The answers of GitHub are JSON in its form, which jq reads as gh does.
func TestReleaseAllowed(t *testing.T) {
	if _, err := exec.LookPath("jq"); err != nil {
		t.Skip("jq is not installed: make packages installs it")
	}
	script, err := filepath.Abs(filepath.Join(root, "hack", "release-allowed.sh"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	runIn(t, dir, "git", "init", "-q", "-b", "main")
	runIn(t, dir, "git", "-c", "user.name=Ada", "-c", "user.email=ada@example.com", "commit", "-q", "--allow-empty", "-m", "released")
	head, err := exec.Command("git", "-C", dir, "rev-parse", "HEAD").Output()
	if err != nil {
		t.Fatal(err)
	}
	commit := strings.TrimSpace(string(head))
	gh := `#!/bin/bash
[ "$1 $3" = "api --jq" ] && file=$GITHUB/$(tr '/?&' '___' <<<"$2") && [ -e "$file" ] || { echo "gh: Not Found (HTTP 404)" >&2; exit 1; }
jq --raw-output "$4" "$file"
`
	good := map[string]string{
		"git/ref/tags/v1.2.3":      `{"object": {"type": "tag", "sha": "abc"}}`,
		"git/tags/abc":             fmt.Sprintf(`{"object": {"type": "commit", "sha": %q}, "verification": {"verified": true, "reason": "valid"}}`, commit),
		"compare/main..." + commit: `{"status": "behind"}`,
		"actions/workflows/ci.yaml/runs?head_sha=" + commit + "&branch=main&event=push&status=success": `{"total_count": 1}`,
	}
	allowed := func(answers map[string]string) (string, error) {
		github := t.TempDir()
		for name, answer := range answers {
			file := strings.NewReplacer("/", "_", "?", "_", "&", "_").Replace("repos/skyhook-k8s/skyhook/" + name)
			if err := os.WriteFile(filepath.Join(github, file), []byte(answer), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(github, "gh"), []byte(gh), 0o700); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(script, "v1.2.3")
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+github+":"+os.Getenv("PATH"), "GITHUB="+github, "GITHUB_REPOSITORY=skyhook-k8s/skyhook")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if said, err := allowed(good); err != nil || !strings.Contains(said, "CI has passed for commit "+commit) {
		t.Errorf("a tag that may be released: %v\n%s", err, said)
	}
	runs := "actions/workflows/ci.yaml/runs?head_sha=" + commit + "&branch=main&event=push&status=success"
	for _, c := range []struct{ about, answer, want string }{
		{"git/ref/tags/v1.2.3", "", "GitHub does not have it"},
		{"git/ref/tags/v1.2.3", `{"object": {"type": "commit", "sha": "abc"}}`, "git tag --sign"},
		{"git/tags/abc", `{"object": {"sha": "` + commit + `"}, "verification": {"verified": false, "reason": "unknown_key"}}`, "(unknown_key)"},
		{"git/tags/abc", `{"object": {"sha": "def"}, "verification": {"verified": true, "reason": "valid"}}`, "names commit def"},
		{"compare/main..." + commit, `{"status": "diverged"}`, "not on main (diverged)"},
		{runs, `{"total_count": 0}`, "CI has not passed"},
		{runs, "", "Not Found"},
	} {
		answers := maps.Clone(good)
		if answers[c.about] = c.answer; c.answer == "" {
			delete(answers, c.about)
		}
		if said, err := allowed(answers); err == nil || !strings.Contains(said, c.want) {
			t.Errorf("%s is %q: %v\n%s\nwant %q", c.about, c.answer, err, said, c.want)
		}
	}
}
