// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// startRegistry starts a registry and returns the addresses of its push and pull handlers.
func startRegistry(t *testing.T) (*Server, string, string) {
	t.Helper()
	s := New(t.TempDir(), io.Discard)
	owner, nodes := httptest.NewServer(s.PushHandler()), httptest.NewServer(s.PullHandler())
	t.Cleanup(owner.Close)
	t.Cleanup(nodes.Close)
	return s, strings.TrimPrefix(owner.URL, "http://"), nodes.URL
}

func newImage(t *testing.T, content string) v1.Image {
	t.Helper()
	made, err := Image(map[string]File{"etc/content": {Content: []byte(content), Mode: 0o644}, "bin/link": {Link: "../etc/content"}}, "/bin/link")
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func pushImage(t *testing.T, owner, ref string, content v1.Image) v1.Hash {
	t.Helper()
	digest, err := Push(context.Background(), owner, ref, content)
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

// pullManifest requests a manifest as containerd does, with the registry host as a parameter.
func pullManifest(t *testing.T, nodes, host, path string, credentials ...string) (int, string) {
	t.Helper()
	request, err := http.NewRequest(http.MethodGet, nodes+"/v2/"+path+"?ns="+host, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "*/*")
	if len(credentials) == 2 {
		request.SetBasicAuth(credentials[0], credentials[1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if challenge := response.Header.Get("WWW-Authenticate"); (challenge != "") != (response.StatusCode == http.StatusUnauthorized) {
		t.Errorf("status %d came with the challenge %q", response.StatusCode, challenge)
	}
	return response.StatusCode, response.Header.Get("Docker-Content-Digest")
}

// The same repository and tag of two registry hosts are two images, and neither is found under a third.
func TestStandsForAllRegistries(t *testing.T) {
	_, owner, nodes := startRegistry(t)
	one := pushImage(t, owner, "ghcr.io/acme/tuning:1.2", newImage(t, "one"))
	two := pushImage(t, owner, "quay.io/acme/tuning:1.2", newImage(t, "two"))
	hub := pushImage(t, owner, "busybox", newImage(t, "hub"))
	port := pushImage(t, owner, "registry:5000/acme/tuning:1.2", newImage(t, "port"))
	own := newImage(t, "own")
	ref, err := name.ParseReference(owner + "/acme/own:1.2")
	if err == nil {
		err = remote.Write(ref, own)
	}
	if err != nil {
		t.Fatal(err)
	}
	digest, err := own.Digest()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		host, path string
		want       v1.Hash
	}{
		{"ghcr.io", "acme/tuning/manifests/1.2", one},
		{"quay.io", "acme/tuning/manifests/1.2", two},
		{"ghcr.io", "acme/tuning/manifests/" + one.String(), one},
		{"docker.io", "library/busybox/manifests/latest", hub},
		{"registry:5000", "acme/tuning/manifests/1.2", port},
		{"localhost:5001", "acme/own/manifests/1.2", digest}, // pushed by a program that knows nothing of the other names
	} {
		if status, digest := pullManifest(t, nodes, c.host, c.path); status != http.StatusOK || digest != c.want.String() {
			t.Errorf("%s of %s: %d %s, want %s", c.path, c.host, status, digest, c.want)
		}
	}
	for _, c := range [][2]string{
		{"nvcr.io", "acme/tuning/manifests/1.2"}, {"ghcr.io", "acme/tuning/manifests/1.3"}, {"ghcr.io", "acme/tuning/manifests/" + two.String()}, {"", "acme/tuning/manifests/1.2"},
	} {
		if status, _ := pullManifest(t, nodes, c[0], c[1]); status != http.StatusNotFound {
			t.Errorf("%s of %q: status %d, want not found", c[1], c[0], status)
		}
	}
}

func TestPrivateRepository(t *testing.T) {
	s, owner, nodes := startRegistry(t)
	digest := pushImage(t, owner, "ghcr.io/acme/private:1", newImage(t, "secret"))
	pushImage(t, owner, "ghcr.io/acme/private2:1", newImage(t, "open"))
	s.Protect(Credentials{Repository: "ghcr.io/acme/private", User: "joe", Password: "pass"})
	const path = "acme/private/manifests/1"
	for _, c := range []struct {
		path        string
		credentials []string
		want        int
	}{
		{path, nil, http.StatusUnauthorized},
		{path, []string{"joe", "wrong"}, http.StatusUnauthorized},
		{path, []string{"jo", "epass"}, http.StatusUnauthorized},
		{path, []string{"joe", "pass"}, http.StatusOK},
		{"acme/private/blobs/" + digest.String(), nil, http.StatusUnauthorized},
		{"acme/private2/manifests/1", nil, http.StatusOK},
	} {
		if status, _ := pullManifest(t, nodes, "ghcr.io", c.path, c.credentials...); status != c.want {
			t.Errorf("%s with %v: status %d, want %d", c.path, c.credentials, status, c.want)
		}
	}
	pushImage(t, owner, "ghcr.io/acme/private:2", newImage(t, "the owner needs no credentials"))
}

func TestNames(t *testing.T) {
	for ref, want := range map[string]string{
		"busybox":                    "docker.io/library/busybox",
		"acme/tool:1":                "docker.io/acme/tool",
		"ghcr.io/acme/tool:1":        "ghcr.io/acme/tool",
		"registry:5000/acme/tool":    "registry:5000/acme/tool",
		"nvcr.io/a/b/c/tool:2024.05": "nvcr.io/a/b/c/tool",
	} {
		if got, err := Repository(ref); err != nil || got != want {
			t.Errorf("%s is in %s, %v; want %s", ref, got, err, want)
		}
	}
	digest := "sha256:" + strings.Repeat("a", 64)
	located, err := Locate("127.0.0.1:5000", "ghcr.io/acme/tool@"+digest)
	if _, is := located.(name.Digest); err != nil || !is || located.Identifier() != digest {
		t.Errorf("by digest it is %v, %v", located, err)
	}
	if _, err := Repository("ghcr.io/Acme/Tool"); err == nil || !strings.Contains(err.Error(), "write it as HOST/REPOSITORY:TAG") {
		t.Errorf("the error about an illegal name is %v", err)
	}
}

// Archives of docker save and of tools that write OCI layouts give the same image; an index keeps all its images.
func TestArchives(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	one, dir := newImage(t, "one"), t.TempDir()
	saved := filepath.Join(dir, "saved.tar")
	tag, err := name.NewTag("ghcr.io/acme/tool:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := tarball.WriteToFile(saved, tag, one); err != nil {
		t.Fatal(err)
	}
	index := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: one}, mutate.IndexAddendum{Add: newImage(t, "two")})
	want, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	_, owner, nodes := startRegistry(t)
	for i, archive := range []string{ociArchive(t, one), ociArchive(t, index), saved} {
		content, remove, err := Open(archive)
		if err != nil {
			t.Fatal(err)
		}
		ref := fmt.Sprintf("ghcr.io/acme/tool:%d", i)
		digest, err := Push(context.Background(), owner, ref, content)
		remove()
		if err != nil {
			t.Fatal(err)
		}
		if i == 1 && digest != want {
			t.Errorf("the pushed index has the digest %s, want %s", digest, want)
		}
		if status, got := pullManifest(t, nodes, "ghcr.io", fmt.Sprintf("acme/tool/manifests/%d", i)); status != http.StatusOK || got != digest.String() {
			t.Errorf("archive %d: pulled %d %s, pushed %s", i, status, got, digest)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "image-*", "oci-layout")); len(left) > 0 {
		t.Errorf("unpacked archives are left: %v", left)
	}
}

func TestBadArchives(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text.tar")
	if err := os.WriteFile(text, []byte("this is no archive, whatever its name says, and it is longer than a header\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		filepath.Join(dir, "missing.tar"): "no such file or directory",
		text:                              "reading the image archive " + text,
	} {
		if _, _, err := Open(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("opening %s: the error is %v, want %q", file, err, want)
		}
	}
}

// ociArchive writes an OCI archive.
func ociArchive(t *testing.T, content any) string {
	t.Helper()
	dir := t.TempDir()
	path, err := layout.Write(filepath.Join(dir, "layout"), empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	switch content := content.(type) {
	case v1.Image:
		err = path.AppendImage(content)
	case v1.ImageIndex:
		err = path.AppendIndex(content)
	}
	if err != nil {
		t.Fatal(err)
	}
	return packTar(t, string(path), filepath.Join(dir, "oci.tar"))
}

// TestHide: nodes do not find hidden repositories, neither by tag nor by digest, until they are shown again.
func TestHide(t *testing.T) {
	s, owner, nodes := startRegistry(t)
	digest := pushImage(t, owner, "ghcr.io/acme/agent:1", newImage(t, "agent"))
	pushImage(t, owner, "ghcr.io/acme/agent2:1", newImage(t, "other"))
	requireStatus := func(path string, want int) {
		t.Helper()
		if status, _ := pullManifest(t, nodes, "ghcr.io", path); status != want {
			t.Errorf("%s: status %d, want %d", path, status, want)
		}
	}
	s.Hide([]string{"ghcr.io/acme/agent"})
	requireStatus("acme/agent/manifests/1", http.StatusNotFound)
	requireStatus("acme/agent/manifests/"+digest.String(), http.StatusNotFound)
	requireStatus("acme/agent2/manifests/1", http.StatusOK)
	s.Hide(nil)
	requireStatus("acme/agent/manifests/1", http.StatusOK)
}
