// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// TestCopyScript runs the script with a shell, in a directory instead of a container.
func TestCopyScript(t *testing.T) {
	run := func(t *testing.T, root string) {
		t.Helper()
		script := strings.NewReplacer(plan.RootMount+"$", root+"/host$", plan.PackageDir, root+"/image").Replace(copyScript)
		cmd := exec.Command("/bin/sh", "-c", script)
		cmd.Env = []string{"PATH=/usr/bin:/bin", "SKYHOOK_DIR=/lib/p-1", "SKYHOOK_POD_UID=u1"}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	lay := func(t *testing.T) string {
		root := t.TempDir()
		for _, dir := range []string{"image/configmaps/..2026", "image/skyhook_dir", "host/lib"} {
			if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for name, content := range map[string]string{"image/config.json": "{}", "image/.hidden": "h", "image/configmaps/..2026/a.conf": "1"} {
			if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for link, to := range map[string]string{"image/configmaps/..data": "..2026", "image/configmaps/a.conf": "..data/a.conf"} {
			if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
				t.Fatal(err)
			}
		}
		return root
	}
	has := func(t *testing.T, path string, want bool) {
		t.Helper()
		found, err := os.Lstat(path)
		if (err == nil) != want || err == nil && found.Mode()&os.ModeSymlink != 0 {
			t.Errorf("%s is there: %v, want %v as a plain file", filepath.Base(path), err == nil, want)
		}
	}
	t.Run("the first copy serves every agent", func(t *testing.T) {
		root := lay(t)
		run(t, root)
		run(t, root) // started again
		for _, dir := range []string{"p-1", "p-1.u1"} {
			has(t, filepath.Join(root, "host/lib", dir, "config.json"), true)
			has(t, filepath.Join(root, "host/lib", dir, ".hidden"), true)
			has(t, filepath.Join(root, "host/lib", dir, "configmaps/a.conf"), true)
			requireMode(t, filepath.Join(root, "host/lib", dir), 0o755) // steps may change their user
			requireMode(t, filepath.Join(root, "host/lib", dir, "configmaps"), 0o700)
		}
	})
	t.Run("an agent of ours gets the next one beside it", func(t *testing.T) {
		root := lay(t)
		there := filepath.Join(root, "host/lib/p-1")
		if err := os.MkdirAll(there, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(there, pack.DeliveryFile), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		run(t, root)
		has(t, filepath.Join(there, "config.json"), false)
		has(t, there+".u1/config.json", true)
	})
	t.Run("another agent gets it in its place", func(t *testing.T) {
		root := lay(t)
		there := filepath.Join(root, "host/lib/p-1")
		if err := os.MkdirAll(there, 0o755); err != nil {
			t.Fatal(err)
		}
		run(t, root)
		has(t, filepath.Join(there, "config.json"), true)
		has(t, there+".u1", false)
	})
}

func requireMode(t *testing.T, path string, want os.FileMode) {
	t.Helper()
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != want {
		t.Errorf("%s: %v %v, want %v", path, st.Mode(), err, want)
	}
}
