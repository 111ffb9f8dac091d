// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// two images that share their lowest layer.
func two(t *testing.T) []Named {
	low := simple(t, Recipe{}, amd64, arm64)
	high := &Tree{}
	high.Bytes("/more", 0o644, []byte("more"))
	return []Named{
		{Name: "registry.example.org:5000/a/low:1.0", Index: low},
		{Name: "registry.example.org:5000/a/high:2.0", Index: simple(t, Recipe{From: low, Trees: sharedTree(high)}, amd64, arm64)},
	}
}

// TestArchive: what is written is read back whole, with names; written twice it is the same file.
func TestArchive(t *testing.T) {
	images := two(t)
	var first, second bytes.Buffer
	if err := WriteArchive(&first, images...); err != nil {
		t.Fatal(err)
	}
	if err := WriteArchive(&second, two(t)...); err != nil || !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Errorf("the second archive differs from the first (%d and %d bytes), %v", first.Len(), second.Len(), err)
	}
	dir := t.TempDir()
	if err := WriteArchiveFile(filepath.Join(dir, "new/images.tar"), images...); err != nil {
		t.Fatal(err)
	}
	if err := WriteLayout(filepath.Join(dir, "layout"), images[0]); err != nil {
		t.Fatal(err)
	}
	if err := WriteLayout(filepath.Join(dir, "layout"), images...); err != nil { // over an older one
		t.Fatal(err)
	}
	for _, from := range []string{"new/images.tar", "layout"} {
		back, err := ReadFile(filepath.Join(dir, from))
		if err != nil || len(back) != 2 {
			t.Fatalf("%s: %d images, %v", from, len(back), err)
		}
		for i, n := range back {
			if n.Name != images[i].Name || digest(t, n.Index) != digest(t, images[i].Index) {
				t.Errorf("%s: image %d comes back as %s %s", from, i, n.Name, digest(t, n.Index))
			}
			if err := validate.Index(n.Index); err != nil {
				t.Errorf("%s: %v", from, err)
			}
			if entries(t, n.Index, arm64) != entries(t, images[i].Index, arm64) {
				t.Errorf("%s: image %d has other content", from, i)
			}
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, "new/.*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestArchiveRefuses(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mine"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := WriteLayout(dir, two(t)...); err == nil || !strings.Contains(err.Error(), "the folder holds other things; name a new or empty one") {
		t.Errorf("a folder of someone else: %v", err)
	}
	if _, err := ReadFile(filepath.Join(dir, "mine")); err == nil || !strings.Contains(err.Error(), "there is no index.json in it") {
		t.Errorf("an empty file: %v", err)
	}
	if _, err := ReadFile(filepath.Join(dir, "nothing")); err == nil {
		t.Error("no file is read")
	}
	var whole bytes.Buffer
	if err := WriteArchive(&whole, two(t)...); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		edit func(h *tar.Header, content []byte) []byte
		want string
	}{
		"damaged": {func(h *tar.Header, content []byte) []byte {
			if strings.HasPrefix(h.Name, "blobs/") {
				content[0] ^= 1
			}
			return content
		}, "is damaged: its content has digest"},
		"incomplete": {func(h *tar.Header, content []byte) []byte {
			if strings.HasPrefix(h.Name, "blobs/") {
				return nil
			}
			return content
		}, "is missing"},
	} {
		if _, err := ReadArchive(edited(t, whole.Bytes(), tc.edit)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
	if _, err := ReadArchive(bytes.NewReader(whole.Bytes()[:whole.Len()/2])); err == nil {
		t.Error("half an archive is read")
	}
}

// edited is an archive with other content; files whose content becomes nil are left out.
func edited(t *testing.T, archive []byte, edit func(*tar.Header, []byte) []byte) io.Reader {
	var buf bytes.Buffer
	out := tar.NewWriter(&buf)
	for in := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := in.Next()
		if err != nil {
			break
		}
		content, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		if content = edit(h, content); content == nil {
			continue
		}
		h.Size = int64(len(content))
		if err := out.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	return &buf
}

// TestPush pushes to a registry that asks for a password and pulls back by digest.
func TestPush(t *testing.T) {
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "me" || password != "secret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	ctx, known := context.Background(), Registry{PlainHTTP: true, Keychain: keys{host: {Username: "me", Password: "secret"}}}
	images := two(t)
	ref, err := known.Push(ctx, host+"/team/high:2.0", images[1].Index)
	if err != nil {
		t.Fatal(err)
	}
	if want := host + "/team/high@" + digest(t, images[1].Index); ref != want {
		t.Errorf("pushed as %s, want %s", ref, want)
	}
	if _, err := known.Push(ctx, host+"/team/high:2.0", images[0].Index); err == nil || !strings.Contains(err.Error(), "it is published as "+digest(t, images[1].Index)) {
		t.Errorf("another image under the same tag: %v", err)
	}
	if again, err := known.Push(ctx, host+"/team/high:2.0", images[1].Index); err != nil || again != ref {
		t.Errorf("the same image again: %s, %v", again, err)
	}
	for _, name := range []string{ref, host + "/team/high:2.0"} {
		back, err := known.Pull(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate.Index(back); err != nil || entries(t, back, arm64) != entries(t, images[1].Index, arm64) {
			t.Errorf("%s comes back with other content, %v", name, err)
		}
	}
	lines, err := List(images[1].Index)
	if err != nil {
		t.Fatal(err)
	}
	single, err := known.Pull(ctx, host+"/team/high@"+lines[2].Digest.String())
	if err != nil {
		t.Fatal(err)
	}
	if img, err := ForPlatform(single, arm64); err != nil {
		t.Error(err)
	} else if h, err := img.Digest(); err != nil || h != lines[2].Digest {
		t.Errorf("one image comes back as %s, %v", h, err)
	}
	if _, err := known.Pull(ctx, host+"/team/high:3.0"); err == nil || !strings.Contains(err.Error(), "pulling "+host+"/team/high:3.0") {
		t.Errorf("a tag that is not there: %v", err)
	}
	known.Overwrite = true
	if moved, err := known.Push(ctx, host+"/team/high:2.0", images[0].Index); err != nil || !strings.HasSuffix(moved, digest(t, images[0].Index)) {
		t.Errorf("a tag that is moved: %s, %v", moved, err)
	}
	if _, err := (Registry{PlainHTTP: true, Keychain: keys{}}).Push(ctx, host+"/team/high:2.0", images[1].Index); err == nil {
		t.Error("pushed without a password")
	}
	if _, err := known.Push(ctx, "Not A Reference", images[1].Index); err == nil || !strings.Contains(err.Error(), "write registry/repository:tag") {
		t.Errorf("a bad reference: %v", err)
	}
}

// keys are credentials by host.
type keys map[string]authn.AuthConfig

func (k keys) Resolve(r authn.Resource) (authn.Authenticator, error) {
	if found, there := k[r.RegistryStr()]; there {
		return authn.FromConfig(found), nil
	}
	return authn.Anonymous, nil
}

// A file of an archive is read into memory only if there is room for it, and so are those of a layout.
func TestArchivesAreBounded(t *testing.T) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := w.WriteHeader(&tar.Header{Name: "blobs/sha256/0", Size: MaxBytes + 1}); err != nil {
		t.Fatal(err)
	}
	const want = "it has more than 1 GiB or"
	if _, err := ReadArchive(&archive); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a large archive gives %v", err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "index.json"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, "index.json"), MaxBytes+1); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFile(dir); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a large layout gives %v", err)
	}
	var budget Budget
	if err := budget.Add(MaxFiles, MaxBytes); err != nil {
		t.Error(err)
	}
	if err := budget.Add(1, 0); err == nil || !strings.Contains(err.Error(), "100000 files") {
		t.Errorf("one file more gives %v", err)
	}
}

// A largeIndex has one image with a layer of more than is read.
type largeIndex struct{ index }

type index = v1.ImageIndex // which has a method of that name

type largeImage struct{ v1.Image }

func (largeIndex) IndexManifest() (*v1.IndexManifest, error) {
	return &v1.IndexManifest{Manifests: []v1.Descriptor{{MediaType: types.OCIManifestSchema1}}}, nil
}
func (largeIndex) Image(v1.Hash) (v1.Image, error) { return largeImage{}, nil }
func (largeImage) Manifest() (*v1.Manifest, error) {
	return &v1.Manifest{Layers: []v1.Descriptor{{Size: MaxBytes + 1}}}, nil
}

func TestPullIsBounded(t *testing.T) {
	if _, err := List(largeIndex{empty.Index}); err == nil || !strings.Contains(err.Error(), "more than 1 GiB") {
		t.Errorf("a large image is pulled: %v", err)
	}
	if _, err := List(empty.Index); err != nil {
		t.Error(err)
	}
}
