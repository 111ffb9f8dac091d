// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// serveConfig serves config/ of this tree as a Git repository by HTTP, and returns a function that names a directory of it for
// kubectl.
func serveConfig(t *testing.T) func(folder string) string {
	t.Helper()
	repository := filepath.Join(t.TempDir(), "skyhook.git")
	git := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"--git-dir", repository, "--work-tree", root, "-c", "user.name=n", "-c", "user.email=n@example.org"}, args...)...)
		cmd.Dir = root
		// What git keeps beside the repository is that of the tree this runs in.
		cmd.Env = append(os.Environ(), "GIT_INDEX_FILE="+filepath.Join(repository, "index"), "GIT_CONFIG_GLOBAL=/dev/null")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	git("init", "--quiet", "--initial-branch=main")
	git("add", "config")
	git("commit", "--quiet", "--message=config")
	program, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(&cgi.Handler{Path: program, Args: []string{"http-backend"}, Root: "/",
		Env: []string{"GIT_PROJECT_ROOT=" + filepath.Dir(repository), "GIT_HTTP_EXPORT_ALL=1"}})
	t.Cleanup(server.Close)
	return func(folder string) string { return server.URL + "/skyhook.git//" + folder + "?ref=main&timeout=120s" }
}
