// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/skyhook-k8s/skyhook/internal/image"
)

const sbom = `{"spdxVersion":"SPDX-2.3"}`

// What hack/publish.sh writes: the repository of built images, and the media types of SBOMs, charts and of what Artifact Hub reads.
const (
	builtPrefix     = "ghcr.io/skyhook-k8s/skyhook/"
	sbomType        = "application/spdx+json"
	chartConfigType = "application/vnd.cncf.helm.config.v1+json"
	chartType       = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
	hubConfigType   = "application/vnd.cncf.artifacthub.config.v1+yaml"
	hubType         = "application/vnd.cncf.artifacthub.repository-metadata.layer.v1.yaml"
)

func publish(t *testing.T, args ...string) (string, error) {
	t.Helper()
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("hack/publish.sh", args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "GOCACHE="+goEnv(t, "GOCACHE"), "GOPATH="+goEnv(t, "GOPATH"))
	said, err := cmd.CombinedOutput()
	return string(said), err
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("go", "env", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// TestPublish pushes a small release: the registry has the image that was built, its list of contents as a referrer, and a chart
// with the metadata that Helm reads.
func TestPublish(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	at := strings.TrimPrefix(server.URL, "http://")
	from := filepath.Join(t.TempDir(), "release")
	built := writeImage(t, from, builtPrefix+"pause:v1.2.3")
	packed := writeChart(t, from, "")
	if said, err := publish(t, from, at+"/copy/", at+"/charts", "--plain-http"); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}

	g := image.Registry{PlainHTTP: true}
	idx, err := g.Pull(t.Context(), at+"/copy/pause:v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := idx.Digest(); err != nil || got != built {
		t.Errorf("the registry has %s, %v; built was %s", got, err, built)
	}
	attached, err := g.Attached(t.Context(), at+"/copy/pause:v1.2.3", built, sbomType)
	if err != nil || len(attached) != 1 {
		t.Fatalf("attached are %v, %v", attached, err)
	}
	if a, err := g.Artifact(t.Context(), attached[0]); err != nil || string(a.Content) != sbom {
		t.Errorf("the list of contents is %q, %v", a.Content, err)
	}
	chart := checkChart(t, at+"/charts/skyhook-operator:1.2.3", packed)

	hub, err := name.ParseReference(at+"/charts/skyhook-operator:artifacthub.io", name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	if img, err := remote.Image(hub); err != nil {
		t.Error(err)
	} else if m, err := img.Manifest(); err != nil || string(m.Config.MediaType) != hubConfigType || string(m.Layers[0].MediaType) != hubType {
		t.Errorf("Artifact Hub finds %+v, %v", m, err)
	}

	lists := filepath.Dir(from)
	want := at + "/copy/pause@" + built.String() + "\n" + at + "/charts/skyhook-operator@" + chart + "\n"
	if published := text(t, lists, "published.txt"); published != want {
		t.Errorf("published is listed as\n%s\nwant\n%s", published, want)
	}
	want = built.Hex + "  " + at + "/copy/pause\n" + strings.TrimPrefix(chart, "sha256:") + "  " + at + "/charts/skyhook-operator\n"
	if attested := text(t, lists, "published.sha256"); attested != want {
		t.Errorf("the checksums are\n%s\nwant\n%s", attested, want)
	}
}

// checkChart checks what `helm pull` relies on, and returns the digest.
func checkChart(t *testing.T, ref string, packed []byte) string {
	t.Helper()
	r, err := name.ParseReference(ref, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	img, err := remote.Image(r)
	if err != nil {
		t.Fatal(err)
	}
	m, err := img.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := img.RawConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	var about struct{ Name, Version, AppVersion string }
	if err := json.Unmarshal(raw, &about); err != nil || about.Name != "skyhook-operator" || about.Version != "1.2.3" || about.AppVersion != "v1.2.3" {
		t.Errorf("the configuration is %s, %v", raw, err)
	}
	if len(m.Layers) != 1 || string(m.Config.MediaType) != chartConfigType || string(m.Layers[0].MediaType) != chartType || m.Layers[0].Size != int64(len(packed)) {
		t.Errorf("the manifest is %+v", m)
	}
	digest, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return digest.String()
}

// TestPublishedOnce: a release that was pushed in part is pushed again, and a tag that names something else stays, be it of an image, a
// package or the chart: then nothing is pushed.
func TestPublishedOnce(t *testing.T) {
	for _, c := range []struct{ what, image, other, want string }{
		{"image", "pause:v1.2.3", "", "pause:v1.2.3 is published as sha256:"},
		{"package", "packages/pause:1.2.3", "", "raise package_version in packages/pause/config.json"},
		{"chart", "pause:v1.2.3", "# another chart\n", "skyhook-operator:1.2.3 is published with another content"},
	} {
		t.Run(c.what, func(t *testing.T) {
			pushes := 0
			store := registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0)))
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodGet && r.Method != http.MethodHead {
					pushes++
				}
				store.ServeHTTP(w, r)
			}))
			defer server.Close()
			at := strings.TrimPrefix(server.URL, "http://")
			from := filepath.Join(t.TempDir(), "release")
			writeImage(t, from, builtPrefix+c.image)
			writeChart(t, from, "")
			for range 2 {
				if said, err := publish(t, from, at+"/copy", at+"/charts", "--plain-http"); err != nil {
					t.Fatalf("%v\n%s", err, said)
				}
			}
			lists := filepath.Dir(from)
			first := text(t, lists, "published.txt")

			if c.other != "" {
				writeChart(t, from, c.other)
			} else {
				idx, err := random.Index(10, 1, 1)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := (image.Registry{PlainHTTP: true, Overwrite: true}).Push(t.Context(), at+"/copy/"+c.image, idx); err != nil {
					t.Fatal(err)
				}
			}
			pushes = 0
			if said, err := publish(t, from, at+"/copy", at+"/charts", "--plain-http"); err == nil || !strings.Contains(said, c.want) || pushes > 0 {
				t.Errorf("%d pushes, %v\n%s", pushes, err, said)
			}
			if text(t, lists, "published.txt") != first {
				t.Error("what is published is listed in another way")
			}
		})
	}
}

// TestNotPublished: nothing is pushed of a release without the list of what an image consists of.
func TestNotPublished(t *testing.T) {
	from := filepath.Join(t.TempDir(), "release")
	writeImage(t, from, builtPrefix+"pause:v1.2.3")
	if err := os.Remove(filepath.Join(from, "pause.spdx.json")); err != nil {
		t.Fatal(err)
	}
	if said, err := publish(t, from, "localhost/a", "localhost/b"); err == nil || !strings.Contains(said, "run make release") {
		t.Errorf("%v\n%s", err, said)
	}
}

// writeImage writes an image with its list of contents into a release, and returns its digest.
func writeImage(t *testing.T, from, ref string) v1.Hash {
	t.Helper()
	idx, err := image.Build(image.Recipe{User: "1:1", Trees: func(v1.Platform) ([]*image.Tree, error) {
		tree := &image.Tree{}
		tree.Bytes("/hello", 0o644, []byte("hello"))
		return []*image.Tree{tree}, nil
	}}, image.DefaultPlatforms())
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(from, "images")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	short := strings.TrimPrefix(ref, builtPrefix)
	file := strings.ReplaceAll(short[:strings.LastIndex(short, ":")], "/", "-")
	if err := image.WriteArchiveFile(filepath.Join(dir, file+".tar"), image.Named{Name: ref, Index: idx}); err != nil {
		t.Fatal(err)
	}
	digest, err := idx.Digest()
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(from, file+".spdx.json"), sbom)
	write(t, filepath.Join(from, "digests.txt"), "# built\n"+digest.String()+"  index  "+ref+"\n"+digest.String()+"  linux/amd64  "+ref+"\n")
	return digest
}

func writeChart(t *testing.T, from, more string) []byte {
	t.Helper()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	w := tar.NewWriter(z)
	text := "apiVersion: v2\nname: skyhook-operator\nversion: 1.2.3\nappVersion: v1.2.3\n" + more
	if err := w.WriteHeader(&tar.Header{Name: "skyhook-operator/Chart.yaml", Mode: 0o644, Size: int64(len(text))}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(from, "skyhook-operator-1.2.3.tgz"), packed.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return packed.Bytes()
}
