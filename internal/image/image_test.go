// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

var (
	amd64 = v1.Platform{OS: "linux", Architecture: "amd64"}
	arm64 = v1.Platform{OS: "linux", Architecture: "arm64"}
)

// simple builds a recipe; one without trees gets a layer that differs per platform.
func simple(t *testing.T, r Recipe, platforms ...v1.Platform) v1.ImageIndex {
	t.Helper()
	if r.Trees == nil {
		r.Trees = func(p v1.Platform) ([]*Tree, error) {
			tree := &Tree{}
			tree.Bytes("/bin/program", 0o755, []byte("for "+p.String()))
			return []*Tree{tree}, nil
		}
	}
	idx, err := Build(r, platforms)
	if err != nil {
		t.Fatal(err)
	}
	return idx
}

func digest(t *testing.T, idx v1.ImageIndex) string {
	t.Helper()
	h, err := idx.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return h.String()
}

// entries is what the layers of an image hold, lowest first, one line each.
func entries(t *testing.T, idx v1.ImageIndex, p v1.Platform) string {
	t.Helper()
	img, err := ForPlatform(idx, p)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for i, l := range layers {
		r, err := l.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		for in := tar.NewReader(r); ; {
			h, err := in.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			content, _ := io.ReadAll(in)
			fmt.Fprintf(&all, "%d %c %04o %d:%d %d %s%s %s\n", i, h.Typeflag, h.Mode, h.Uid, h.Gid, h.ModTime.Unix(), h.Name, h.Linkname, content)
			if h.Uname+h.Gname != "" || !h.AccessTime.IsZero() || !h.ChangeTime.IsZero() || h.PAXRecords != nil {
				t.Errorf("%s carries more than it should: %+v", h.Name, h)
			}
		}
	}
	return all.String()
}

func TestBuild(t *testing.T) {
	about := About{Title: "demo", Version: "1.0.0", Licenses: "Apache-2.0"}
	idx := simple(t, Recipe{Entrypoint: []string{"/bin/program"}, User: "10001:10001", Env: []string{"A=b"}, Labels: about.Labels(),
		Created: time.Unix(1000, 5)}, amd64, arm64)
	if err := validate.Index(idx); err != nil {
		t.Error(err)
	}
	m, err := idx.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if m.MediaType != types.OCIImageIndex || len(m.Manifests) != 2 || m.Annotations["org.opencontainers.image.title"] != "demo" {
		t.Errorf("the index is %+v", m)
	}
	for _, p := range []v1.Platform{amd64, arm64} {
		img, err := ForPlatform(idx, p)
		if err != nil {
			t.Fatal(err)
		}
		cf, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if cf.OS+"/"+cf.Architecture != p.String() || cf.Config.User != "10001:10001" || cf.Config.Entrypoint[0] != "/bin/program" ||
			cf.Config.Env[0] != SearchPath || cf.Config.Env[1] != "A=b" || !cf.Created.Equal(time.Unix(1000, 0)) ||
			cf.Config.Labels["org.opencontainers.image.version"] != "1.0.0" {
			t.Errorf("%s has the configuration %+v", p, cf)
		}
		if _, there := cf.Config.Labels["org.opencontainers.image.revision"]; there {
			t.Error("a revision that nobody gave has a label")
		}
		want := "0 5 0755 0:0 1000 bin/ \n0 0 0755 0:0 1000 bin/program for " + p.String() + "\n"
		if got := entries(t, idx, p); got != want {
			t.Errorf("%s holds\n%swant\n%s", p, got, want)
		}
	}
	lines, err := List(idx)
	if err != nil || len(lines) != 3 || lines[0].Platform != "" || lines[1].Platform != "linux/amd64" || lines[2].Size < 500 {
		t.Errorf("listed as %+v, %v", lines, err)
	}
}

func TestBuildRefuses(t *testing.T) {
	tree := func(fill func(*Tree)) Recipe {
		return Recipe{Trees: func(v1.Platform) ([]*Tree, error) {
			tr := &Tree{}
			fill(tr)
			return []*Tree{tr}, nil
		}}
	}
	for _, tc := range []struct {
		recipe    Recipe
		platforms []v1.Platform
		want      string
	}{
		{Recipe{}, nil, "no platform is named"},
		{Recipe{}, []v1.Platform{amd64, amd64}, "platform linux/amd64 is named twice"},
		{tree(func(t *Tree) { t.Bytes("/a", 0o644, nil); t.Bytes("/a/b", 0o644, nil) }), []v1.Platform{amd64}, "/a/b cannot be below /a, which is not a folder"},
		{tree(func(t *Tree) { t.Bytes("/a\xff", 0o644, nil) }), []v1.Platform{amd64}, "is not valid UTF-8"},
		{tree(func(t *Tree) { t.Bytes("/", 0o644, nil) }), []v1.Platform{amd64}, "the root of an image is a folder"},
		{tree(func(t *Tree) { t.HostFile("/a", 0o644, "/no/such/file") }), []v1.Platform{amd64}, "packing /a: open /no/such/file"},
		{Recipe{From: simple(t, Recipe{}, amd64)}, []v1.Platform{arm64}, "the image below: there is no image for linux/arm64, only for linux/amd64"},
	} {
		if _, err := Build(tc.recipe, tc.platforms); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("got %v, want %q", err, tc.want)
		}
	}
}

// checkout writes the same package as two people with other habits would have it.
func checkout(t *testing.T, mask int, when time.Time) string {
	t.Helper()
	defer syscall.Umask(syscall.Umask(mask))
	dir := filepath.Join(t.TempDir(), fmt.Sprint("checkout", mask))
	for name, content := range map[string]string{
		"config.json":              `{"package_name":"demo","package_version":"1.2.3"}`,
		"skyhook_dir/apply.sh":     "#!/bin/sh\n",
		"skyhook_dir/lib/words":    "words\n",
		"root_dir/etc/demo.conf":   "x\n",
		"Dockerfile":               "FROM scratch\n",
		".git/HEAD":                "ref\n",
		"demo_test.go":             "package demo\n",
		"skyhook_dir/testdata/one": "one\n",
	} {
		file := filepath.Join(dir, name)
		mode := os.FileMode(0o666)
		if strings.HasSuffix(name, ".sh") {
			mode = 0o777
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o777), os.WriteFile(file, []byte(content), mode), os.Chtimes(file, when, when)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("lib/words", filepath.Join(dir, "skyhook_dir/link")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestPackageReproducible: neither place, umask nor time of a checkout shows in the digest; content does.
func TestPackageReproducible(t *testing.T) {
	shell := Named{Name: "example.org/shell:1", Index: simple(t, Recipe{Labels: map[string]string{"of": "shell"}}, amd64, arm64)}
	var all []string
	for _, dir := range []string{checkout(t, 0o022, time.Unix(1e9, 0)), checkout(t, 0o077, time.Now()), checkout(t, 0o002, time.Unix(0, 0))} {
		r, err := Package(dir, shell)
		if err != nil {
			t.Fatal(err)
		}
		idx := simple(t, r, amd64, arm64)
		all = append(all, digest(t, idx))
		if len(all) > 1 {
			continue
		}
		want := `0 5 0755 0:0 0 bin/ 
0 0 0755 0:0 0 bin/program for linux/arm64
1 5 0755 0:0 0 skyhook-package/ 
1 0 0644 0:0 0 skyhook-package.sha256 f2afda1f1115926718c7ac5381e6dc4aa0ba53c993654eac65981fe7280b0941  skyhook-package/config.json
73cb3858a687a8494ca3323053016282f3dad39d42cf62ca4e79dda2aac7d9ac  skyhook-package/root_dir/etc/demo.conf
a8076d3d28d21e02012b20eaf7dbf75409a6277134439025f282e368e3305abf  skyhook-package/skyhook_dir/apply.sh
ff646650bc064e5981d37e75caf62e8551f146dff3b8967dd9cf36d263480e3a  skyhook-package/skyhook_dir/lib/words

1 0 0644 0:0 0 skyhook-package/config.json {"package_name":"demo","package_version":"1.2.3"}
1 5 0755 0:0 0 skyhook-package/root_dir/ 
1 5 0755 0:0 0 skyhook-package/root_dir/etc/ 
1 0 0644 0:0 0 skyhook-package/root_dir/etc/demo.conf x

1 5 0755 0:0 0 skyhook-package/skyhook_dir/ 
1 0 0755 0:0 0 skyhook-package/skyhook_dir/apply.sh #!/bin/sh

1 5 0755 0:0 0 skyhook-package/skyhook_dir/lib/ 
1 0 0644 0:0 0 skyhook-package/skyhook_dir/lib/words words

1 2 0777 0:0 0 skyhook-package/skyhook_dir/linklib/words 
`
		if got := entries(t, idx, arm64); got != want {
			t.Errorf("the package holds\n%swant\n%s", got, want)
		}
		m, err := idx.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		a := m.Annotations
		if a["org.opencontainers.image.base.digest"] != digest(t, shell.Index) || a["org.opencontainers.image.base.name"] != shell.Name ||
			a["org.opencontainers.image.title"] != "demo" || a["org.opencontainers.image.version"] != "1.2.3" || a["of"] != "" {
			t.Errorf("annotations %v", a)
		}
	}
	if all[0] != all[1] || all[0] != all[2] {
		t.Errorf("three checkouts give three digests: %v", all)
	}
	dir := checkout(t, 0o022, time.Unix(1e9, 0))
	if err := os.Chmod(filepath.Join(dir, "skyhook_dir/apply.sh"), 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := Package(dir, shell)
	if err != nil {
		t.Fatal(err)
	}
	if digest(t, simple(t, r, amd64, arm64)) == all[0] {
		t.Error("a script that may no longer be run gives the same digest")
	}
}

func TestPackageRefuses(t *testing.T) {
	for config, want := range map[string]string{
		"":                            "is not a package: it has no config.json",
		"{":                           "config.json: unexpected end",
		`{"package_version":"1.0.0"}`: "package_name is missing",
		`{"package_name":"a"}`:        "package_version is missing; write the version, e.g. 1.0.0",
		`{"package_name":1,"package_version":"1"}`: "package_name",
	} {
		dir := t.TempDir()
		if config != "" {
			if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := Package(dir, Named{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", config, err, want)
		}
	}
	dir := checkout(t, 0o022, time.Unix(0, 0))
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Package(dir, Named{}); err == nil || !strings.Contains(err.Error(), "it is a named pipe; an image takes files") {
		t.Errorf("a named pipe: %v", err)
	}
	if _, err := Package(filepath.Join(dir, "config.json"), Named{}); err == nil {
		t.Error("a file is taken for a package")
	}
}
