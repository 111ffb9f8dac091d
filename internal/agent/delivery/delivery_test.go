// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/skyhook-k8s/skyhook/internal/agent/host"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// TestConfigIsAlwaysPrivate looks at the host before each change of a delivery: nobody but root can reach a file of the configMap.
func TestConfigIsAlwaysPrivate(t *testing.T) {
	for name, staged := range map[string]string{"copied by the agent": "", "staged with an earlier config": imageCopy + ".pod-1"} {
		t.Run(name, func(t *testing.T) {
			h := newImageHost(t)
			h.setConfig(map[string]string{"key": "secret"})
			if staged == "" {
				h.write(filepath.Join(h.mounts, pack.ConfigFile), "{}", 0o644)
			} else {
				h.write(filepath.Join(h.host, staged, pack.ConfigFile), "{}", 0o644)
				h.write(filepath.Join(h.host, staged, pack.ConfigMapDir, "key"), "earlier", 0o600)
			}
			root, err := host.Open(h.host)
			h.check(err)
			defer root.Close()
			root.OnChange = func(change, at string) {
				for _, file := range listReachable(t, h.host) {
					if filepath.Base(filepath.Dir(file)) == pack.ConfigMapDir {
						t.Errorf("before %s %s everybody can read %s", change, at, file)
					}
				}
			}
			d := &Delivery{Host: root, Log: slog.New(slog.DiscardHandler), CopyDir: imageCopy, SourceDir: h.mounts, PodUID: "pod-1", ConfigDigest: pack.ConfigDigest(h.config)}
			h.check(d.Bring())
			root.OnChange("end", "")
			if text, err := os.ReadFile(h.onHost("configmaps/key")); string(text) != "secret" || err != nil {
				t.Errorf("the config is %q, %v", text, err)
			}
			if found := listReachable(t, h.host); len(found) != 1 || filepath.Base(found[0]) != pack.ConfigFile {
				t.Errorf("steps that change their user reach %q", found)
			}
		})
	}
}

// listReachable lists the files that everybody can read.
func listReachable(t *testing.T, top string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(top, func(at string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := e.Info()
		switch {
		case err != nil:
			return err
		case e.IsDir() && st.Mode().Perm()&0o001 == 0:
			return fs.SkipDir
		case !e.IsDir() && st.Mode().Perm()&0o004 != 0:
			files = append(files, at)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
