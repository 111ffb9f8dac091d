// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/skyhook-k8s/skyhook/internal/image"
)

// TestRelease makes a release twice, for this platform: the same bytes, checksums that hold, and in each file what its
// name promises.
func TestRelease(t *testing.T) {
	platform := runtime.GOOS + "/" + runtime.GOARCH
	var made [2]map[string]string
	for i := range made {
		out := t.TempDir()
		pause(t, filepath.Join(out, "images"), platform)
		if err := run([]string{"--module", "../..", "--out", out, "--version", "v7.8.9-rc.1", "--platform", platform}); err != nil {
			t.Fatal(err)
		}
		check := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
		check.Dir = out
		if said, err := check.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, said)
		}
		made[i] = read(t, out)
	}
	for name, content := range made[0] {
		if made[1][name] != content {
			t.Errorf("%s is another one the second time", name)
		}
	}
	program := "kubectl-skyhook_v7.8.9-rc.1_" + runtime.GOOS + "_" + runtime.GOARCH
	agent := strings.Replace(program, "kubectl-skyhook", "skyhook-agent", 1)
	want := []string{
		"SHA256SUMS", "images/pause.spdx.json", "images/pause.tar", "install.yaml", program + ".spdx.json", program + ".tar.gz", "release-notes.md", agent + ".spdx.json", "skyhook-operator-7.8.9-rc.1.tgz",
	}
	var got []string
	for name := range made[0] {
		got = append(got, name)
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("made %v, want %v", got, want)
	}
	if lines := strings.Count(made[0]["SHA256SUMS"], "\n"); lines != len(want)-1 {
		t.Errorf("there are %d checksums for %d files", lines, len(want)-1)
	}
	manifests := made[0]["install.yaml"]
	if strings.Count(manifests, "ghcr.io/skyhook-k8s/skyhook/") != strings.Count(manifests, ":v7.8.9-rc.1") || strings.Contains(manifests, "version: v0.1.0") {
		t.Error("install.yaml has images or labels of another version")
	}
	chart := unpack(t, made[0]["skyhook-operator-7.8.9-rc.1.tgz"])
	if about := chart["skyhook-operator/Chart.yaml"]; !strings.Contains(about, "\nversion: 7.8.9-rc.1\n") || !strings.Contains(about, "\nappVersion: v7.8.9-rc.1\n") ||
		strings.Count(about, "ghcr.io/skyhook-k8s/skyhook/") != 2 || strings.Count(about, ":v7.8.9-rc.1\n") != 2 {
		t.Errorf("the chart says\n%s", about)
	}
	if chart["skyhook-operator/files/crds/skyhook.nvidia.com_skyhooks.yaml"] == "" || chart["skyhook-operator/values.schema.json"] == "" {
		t.Error("the chart is not whole")
	}
	if !strings.Contains(chart["skyhook-operator/LICENSE"], "Apache License") || chart["skyhook-operator/NOTICE"] == "" {
		t.Error("the chart has no LICENSE or NOTICE")
	}
	programs := unpack(t, made[0][program+".tar.gz"])
	for _, name := range []string{"LICENSE", "NOTICE", "THIRD_PARTY_LICENSES"} {
		if programs[name] == "" {
			t.Errorf("the archive has no %s", name)
		}
	}
	if texts := programs["THIRD_PARTY_LICENSES"]; !strings.Contains(texts, "\nk8s.io/cli-runtime v0.") || !strings.Contains(texts, "\ngithub.com/coreos/go-systemd/v22 v22.") {
		t.Error("the licences of the archive are not those of the plugin and the agent")
	}
	runs(t, programs["kubectl-skyhook"])
	runs(t, programs["skyhook-agent"])
	for _, name := range []string{program + ".spdx.json", agent + ".spdx.json", "images/pause.spdx.json"} {
		lists(t, name, made[0][name])
	}
	if list := made[0]["images/pause.spdx.json"]; !strings.Contains(list, `"pkg:golang/golang.org/x/crypto/x509roots/fallback@v0.`) {
		t.Error("the root certificates of the image are not listed")
	}
}

// pause makes a small image.
func pause(t *testing.T, dir, platform string) {
	t.Helper()
	p, err := v1.ParsePlatform("linux/" + filepath.Base(platform))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "pause")
	if err := (image.Program{Module: "../..", Package: "./cmd/pause"}).Compile(t.Context(), *p, file); err != nil {
		t.Fatal(err)
	}
	idx, err := image.Build(image.Recipe{User: "1:1", Entrypoint: []string{"/pause"}, Trees: func(v1.Platform) ([]*image.Tree, error) {
		tree := &image.Tree{}
		tree.HostFile("/pause", 0o755, file)
		tree.Bytes("/etc/ssl/certs/ca-certificates.crt", 0o644, []byte("roots"))
		return []*image.Tree{tree}, nil
	}}, []v1.Platform{*p})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := image.WriteArchiveFile(filepath.Join(dir, "pause.tar"), image.Named{Name: "registry.example/pause:1", Index: idx}); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, file)
		found[filepath.ToSlash(name)] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func unpack(t *testing.T, packed string) map[string]string {
	t.Helper()
	z, err := gzip.NewReader(strings.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		found[h.Name] = string(content)
	}
}

// runs asks the program for its version.
func runs(t *testing.T, content string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubectl-skyhook")
	if err := os.WriteFile(file, []byte(content), 0o700); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(file, "--version").CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("v7.8.9-rc.1")) {
		t.Errorf("--version says %s, %v", out, err)
	}
}

// lists proves that a list names the Go it was built with, and only what it has.
func lists(t *testing.T, name, content string) {
	t.Helper()
	var d struct {
		SpdxVersion   string
		Packages      []struct{ SPDXID, Name, VersionInfo string }
		Relationships []struct{ SpdxElementID, RelatedSpdxElement string }
	}
	if err := json.Unmarshal([]byte(content), &d); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	ids, std := []string{"SPDXRef-DOCUMENT"}, false
	for _, p := range d.Packages {
		ids = append(ids, p.SPDXID)
		std = std || p.Name == "std" && p.VersionInfo == strings.TrimPrefix(runtime.Version(), "go")
	}
	if d.SpdxVersion != "SPDX-2.3" || !std {
		t.Errorf("%s is %s and names Go %v", name, d.SpdxVersion, std)
	}
	for _, r := range d.Relationships {
		if !slices.Contains(ids, r.SpdxElementID) || !slices.Contains(ids, r.RelatedSpdxElement) {
			t.Errorf("%s: %v names what is not there", name, r)
		}
	}
	if len(slices.Compact(slices.Sorted(slices.Values(ids)))) != len(ids) {
		t.Errorf("%s names something twice", name)
	}
}

func TestRefused(t *testing.T) {
	for _, version := range []string{"", "1.2.3", "v1.2", "2bb4e56-dirty", "v1.2.3+build", "v01.2.3"} {
		if err := run([]string{"--module", "../..", "--out", t.TempDir(), "--version", version}); err == nil || !strings.Contains(err.Error(), "make release VERSION=") {
			t.Errorf("version %q gives %v", version, err)
		}
	}
}
