// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestArchives checks the archives of the release in SKYHOOK_RELEASE, which make release-test makes: each platform has the plugin, Linux the
// agent beside it, all have the licences, and the manifest for krew has every platform with the archive, its checksum and its program.
func TestArchives(t *testing.T) {
	dir := os.Getenv("SKYHOOK_RELEASE")
	if dir == "" {
		t.Skip("make release-test makes a release and sets SKYHOOK_RELEASE")
	}
	var plugin struct {
		APIVersion, Kind string
		Metadata         struct{ Name string }
		Spec             struct {
			Version, Homepage, ShortDescription, Description string
			Platforms                                        []struct {
				Selector         struct{ MatchLabels struct{ OS, Arch string } }
				URI, Sha256, Bin string
			}
		}
	}
	if err := yaml.UnmarshalStrict([]byte(text(t, dir, "skyhook.yaml")), &plugin); err != nil {
		t.Fatal(err)
	}
	if plugin.Kind != "Plugin" || plugin.Metadata.Name != "skyhook" || plugin.Spec.Version != released || len(plugin.Spec.ShortDescription) > 50 {
		t.Errorf("the index of krew gets %+v", plugin)
	}
	var platforms []string
	for _, p := range plugin.Spec.Platforms {
		platform := p.Selector.MatchLabels.OS + "_" + p.Selector.MatchLabels.Arch
		platforms = append(platforms, platform)
		want, extension := []string{"LICENSE", "NOTICE", "THIRD_PARTY_LICENSES", "kubectl-skyhook", "kubectl_complete-skyhook"}, ".tar.gz"
		switch p.Selector.MatchLabels.OS {
		case "linux":
			want = append(want, "skyhook-agent")
		case "windows":
			want[3], extension = "kubectl-skyhook.exe", ".zip"
		}
		archive := "kubectl-skyhook_" + released + "_" + platform
		content := text(t, dir, archive+extension)
		if uri := "https://github.com/skyhook-k8s/skyhook/releases/download/" + released + "/" + archive + extension; p.URI != uri || p.Bin != want[3] {
			t.Errorf("krew gets %s from %s, want %s from %s", p.Bin, p.URI, want[3], uri)
		}
		if sum := fmt.Sprintf("%x", sha256.Sum256([]byte(content))); p.Sha256 != sum {
			t.Errorf("krew gets %s with the checksum %s, want %s", p.URI, p.Sha256, sum)
		}
		files := unpack(t, archive+extension, content)
		var names []string
		for name := range files {
			names = append(names, name)
		}
		if slices.Sort(names); !slices.Equal(names, want) {
			t.Errorf("%s has %v, want %v", archive, names, want)
		}
		if texts := files["THIRD_PARTY_LICENSES"]; !strings.Contains(texts, "\nk8s.io/cli-runtime v0.") || !strings.Contains(texts, "\ngithub.com/coreos/go-systemd/v22 v22.") {
			t.Errorf("the licences in %s are not those of the plugin and the agent", archive)
		}
		if list := text(t, dir, archive+".spdx.json"); !strings.Contains(list, `"pkg:golang/k8s.io/cli-runtime@v0.`) {
			t.Errorf("the SBOM of %s does not list what the plugin consists of", archive)
		}
		if platform == runtime.GOOS+"_"+runtime.GOARCH {
			runProgram(t, files["kubectl-skyhook"])
			runProgram(t, files["skyhook-agent"])
		}
	}
	slices.Sort(platforms)
	if want := []string{"darwin_amd64", "darwin_arm64", "linux_amd64", "linux_arm64", "windows_amd64"}; !slices.Equal(platforms, want) {
		t.Errorf("released are %v, want %v", platforms, want)
	}
}

func unpack(t *testing.T, name, packed string) map[string]string {
	t.Helper()
	found := map[string]string{}
	if strings.HasSuffix(name, ".zip") {
		z, err := zip.NewReader(strings.NewReader(packed), int64(len(packed)))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range z.File {
			r, err := f.Open()
			if err != nil {
				t.Fatal(err)
			}
			content, err := io.ReadAll(r)
			if err = errors.Join(err, r.Close()); err != nil {
				t.Fatal(err)
			}
			found[f.Name] = string(content)
		}
		return found
	}
	z, err := gzip.NewReader(strings.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
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
		if isProgram := !strings.HasPrefix(string(content), "\x7fELF") || h.Mode == 0o755; !isProgram || h.ModTime.Year() != 1980 || h.Uid != 0 || h.Uname != "root" {
			t.Errorf("%s in %s has mode %o, is of %s and belongs to %d %s", h.Name, name, h.Mode, h.ModTime, h.Uid, h.Uname)
		}
		found[h.Name] = string(content)
	}
}

// runProgram asks a program for its version.
func runProgram(t *testing.T, content string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(file, []byte(content), 0o700); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(file, "--version").CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte(released)) {
		t.Errorf("--version says %s, %v", out, err)
	}
}
