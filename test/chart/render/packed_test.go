// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/loader"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"sigs.k8s.io/yaml"
)

const released = "v7.8.9-rc.1"

// release makes a release without archives of programs into a folder that may have images in it.
func release(t *testing.T, version, changelog, out string) (string, error) {
	t.Helper()
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("hack/release.sh", version, out)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "WITHOUT_ARCHIVES=true", "CHANGELOG="+changelog)
	said, err := cmd.CombinedOutput()
	return string(said), err
}

// TestPacked: Helm reads the chart of a release, and finds in it what is in the folder, and its licence. A release that is made twice is
// the same, its checksums hold with the names that the release page has, and its manifests and notes are of its version.
func TestPacked(t *testing.T) {
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	var out [2]string
	for i := range out {
		out[i] = t.TempDir()
		write(t, filepath.Join(out[i], "images/digests.txt"), "# built\nsha256:ab  index  ghcr.io/x/operator:v1\nsha256:cd  linux/amd64  ghcr.io/x/operator:v1\n")
		write(t, filepath.Join(out[i], "images/operator.spdx.json"), sbom)
		write(t, filepath.Join(out[i], "images/operator.tar"), "which the digest stands for")
		if said, err := release(t, released, "CHANGELOG.md", out[i]); err != nil {
			t.Fatalf("%v\n%s", err, said)
		}
		check := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
		check.Dir = out[i]
		if said, err := check.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, said)
		}
	}
	sums := text(t, out[0], "SHA256SUMS")
	if sums != text(t, out[1], "SHA256SUMS") {
		t.Error("the second release is another one")
	}
	var names []string
	for line := range strings.Lines(sums) {
		names = append(names, strings.Fields(line)[1])
	}
	if want := []string{"digests.txt", "install.yaml", "operator.spdx.json", "release-notes.md", "simple.yaml", "skyhook-operator-7.8.9-rc.1.tgz"}; !slices.Equal(names, want) {
		t.Errorf("made %v, want %v", names, want)
	}
	manifests := text(t, out[0], "install.yaml")
	if strings.Count(manifests, "ghcr.io/skyhook-k8s/skyhook/") != strings.Count(manifests, ":"+released) || strings.Contains(manifests, "version: "+ownTag) {
		t.Error("install.yaml has images or labels of another version")
	}
	notes := text(t, out[0], "release-notes.md")
	if !strings.Contains(notes, "\n### Images\n\n* `ghcr.io/x/operator:v1@sha256:ab`\n\nHow to verify: ") || !strings.Contains(notes, "/blob/"+released+"/docs/release-process.md") {
		t.Errorf("the notes are\n%s", notes)
	}

	packed, folder := load(t, filepath.Join(out[0], "skyhook-operator-7.8.9-rc.1.tgz")), load(t, filepath.Join(root, "chart"))
	m := packed.Metadata
	if m.Version != "7.8.9-rc.1" || m.AppVersion != released || m.Name != folder.Metadata.Name {
		t.Errorf("the packed chart is %s %s of %s", m.Name, m.Version, m.AppVersion)
	}
	if images := m.Annotations["artifacthub.io/images"]; strings.Count(images, "ghcr.io/skyhook-k8s/skyhook/") != 2 || strings.Count(images, ":"+released) != 2 {
		t.Errorf("Artifact Hub shows the images\n%s", images)
	}
	want := append(files(folder), "LICENSE", "NOTICE")
	slices.Sort(want)
	if got := files(packed); !slices.Equal(got, want) {
		t.Errorf("packed are %v, want %v", got, want)
	}
}

const changelog = `# Changelog

## Unreleased

- next

## v1.1.0 (2026-02-01)

Something before.

### Nodes

- A node: is "ready" ([docs/a.md](docs/a.md)). It was
  not.
- A long
  line.

  More of it.
- ` + "`x`" + `

## v1.0.0 (2026-01-01)

- first
`

// TestChanges: the notes of a release are its section of the changelog, and Artifact Hub gets the first sentence of each change without
// links, and not too many of them.
func TestChanges(t *testing.T) {
	file := filepath.Join(t.TempDir(), "CHANGELOG.md")
	write(t, file, changelog)
	for version, want := range map[string]struct{ begins, hub string }{
		"v1.1.0":      {"Something before.\n\n### Nodes\n\n- A node", `A node: is "ready" (docs/a.md)|A long line|` + "`x`"},
		"v1.1.0-rc.1": {"Something before.\n", `A node: is "ready" (docs/a.md)|A long line|` + "`x`"},
		"v1.2.0-rc.1": {"- next\n", "next"},
	} {
		out := t.TempDir()
		if said, err := release(t, version, file, out); err != nil {
			t.Fatalf("%v\n%s", err, said)
		}
		if notes := text(t, out, "release-notes.md"); !strings.HasPrefix(notes, want.begins) || strings.Contains(notes, "- first") {
			t.Errorf("the notes of %s are\n%s", version, notes)
		}
		if got := strings.Join(hubChanges(t, out, version), "|"); got != want.hub {
			t.Errorf("Artifact Hub shows of %s\n%s\nwant\n%s", version, got, want.hub)
		}
	}
	write(t, file, "## v1.0.0\n\n"+strings.Repeat("- Another change.\n", 100))
	out := t.TempDir()
	if said, err := release(t, "v1.0.0", file, out); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	if many := hubChanges(t, out, "v1.0.0"); len(many) != 21 || !strings.Contains(many[20], "CHANGELOG.md") {
		t.Errorf("of 100 changes there are %d", len(many))
	}
	for _, version := range []string{"v1.2.0", "v1.0.01"} { // no section, no version
		if said, err := release(t, version, file, t.TempDir()); err == nil || !strings.Contains(said, version) {
			t.Errorf("%s: %v\n%s", version, err, said)
		}
	}
	for _, version := range []string{"", "1.2.3", "v1.2", "2bb4e56-dirty", "v1.2.3+build", "v01.2.3"} {
		if said, err := release(t, version, file, t.TempDir()); err == nil || !strings.Contains(said, "make release VERSION=") {
			t.Errorf("version %q gives %v\n%s", version, err, said)
		}
	}
}

func hubChanges(t *testing.T, out, version string) (changes []string) {
	t.Helper()
	packed := load(t, filepath.Join(out, "skyhook-operator-"+strings.TrimPrefix(version, "v")+".tgz"))
	if err := yaml.Unmarshal([]byte(packed.Metadata.Annotations["artifacthub.io/changes"]), &changes); err != nil {
		t.Fatal(err)
	}
	return changes
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func text(t *testing.T, dir, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func load(t *testing.T, path string) *chartv2.Chart {
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
