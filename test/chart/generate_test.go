// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skyhook-k8s/skyhook/test/chart/render"
)

// TestUpToDate compares config/ with what would be written now, files that do not belong there included.
func TestUpToDate(t *testing.T) {
	root, err := render.Root()
	if err != nil {
		t.Fatal(err)
	}
	want, err := config(root)
	if err != nil {
		t.Fatal(err)
	}
	values, err := defaults(root)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(root, defaultsFile)); err != nil || !bytes.Equal(text, values) {
		t.Errorf("%s is not what values.yaml has: run make generate (%v)", defaultsFile, err)
	}
	got := map[string][]byte{}
	dir := filepath.Join(root, "config")
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		got[filepath.ToSlash(name)], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(texts(want), texts(got)); diff != "" {
		t.Errorf("config/ is not what the chart makes of it: run make generate (-want +got)\n%s", diff)
	}
}

func texts(files map[string][]byte) map[string]string {
	out := map[string]string{}
	for name, text := range files {
		out[name] = string(text)
	}
	return out
}
