// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"helm.sh/helm/v4/pkg/chart/loader"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
)

// TestPacked: Helm reads the chart of a release, and finds in it what is in the folder, and its licence.
func TestPacked(t *testing.T) {
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	cmd := exec.Command("go", "run", "./hack/mkrelease", "--version", "v7.8.9-rc.1", "--platform", "", "--out", out)
	cmd.Dir = root
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	packed, folder := read(t, filepath.Join(out, "skyhook-operator-7.8.9-rc.1.tgz")), read(t, filepath.Join(root, "chart"))
	if m := packed.Metadata; m.Version != "7.8.9-rc.1" || m.AppVersion != "v7.8.9-rc.1" || m.Name != folder.Metadata.Name {
		t.Errorf("the packed chart is %s %s of %s", m.Name, m.Version, m.AppVersion)
	}
	want := append(files(folder), "LICENSE", "NOTICE")
	slices.Sort(want)
	if got := files(packed); !slices.Equal(got, want) {
		t.Errorf("packed are %v, want %v", got, want)
	}
}

func read(t *testing.T, path string) *chartv2.Chart {
	t.Helper()
	loaded, err := loader.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	chart, ok := loaded.(*chartv2.Chart)
	if !ok {
		t.Fatalf("%s is a %T", path, loaded)
	}
	return chart
}

func files(c *chartv2.Chart) []string {
	var names []string
	for _, f := range slices.Concat(c.Templates, c.Files) {
		names = append(names, f.Name)
	}
	slices.Sort(names)
	return names
}
