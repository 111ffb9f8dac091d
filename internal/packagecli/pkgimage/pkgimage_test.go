// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package pkgimage

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"

	"github.com/skyhook-k8s/skyhook/internal/image"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// layers builds an index of images made of one tree each, the lowest first.
func layers(t *testing.T, files ...map[string]string) v1.ImageIndex {
	t.Helper()
	var idx v1.ImageIndex
	for _, f := range files {
		tree := &image.Tree{}
		for name, content := range f {
			if target, ok := strings.CutPrefix(content, "-> "); ok {
				tree.Symlink(name, target)
			} else {
				tree.Bytes(name, 0o755, []byte(content))
			}
		}
		var err error
		idx, err = image.Build(image.Recipe{From: idx, Trees: func(v1.Platform) ([]*image.Tree, error) { return []*image.Tree{tree}, nil }}, image.DefaultPlatforms())
		if err != nil {
			t.Fatal(err)
		}
	}
	return idx
}

var tools = map[string]string{"/bin/sh": "x", "/bin/cp": "-> sh", "/bin/mkdir": "-> /bin/sh"}

// built is a package as package build makes it.
func built(t *testing.T) v1.ImageIndex {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"config.json": `{"package_name":"demo","package_version":"1.2.3"}`, "skyhook_dir/apply.sh": "#!/bin/sh\n", "skyhook_dir/same.sh": "#!/bin/sh\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	recipe, err := image.Package(dir, image.Named{Name: "example.org/shell:1", Index: layers(t, tools)})
	if err != nil {
		t.Fatal(err)
	}
	idx, err := image.Build(recipe, image.DefaultPlatforms())
	if err != nil {
		t.Fatal(err)
	}
	return idx
}

func around(t *testing.T, idx v1.ImageIndex) string {
	t.Helper()
	found, err := CheckSurroundings(idx)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, p := range found {
		out = append(out, p.Rule+" "+p.String())
	}
	return strings.Join(out, "\n")
}

func TestAround(t *testing.T) {
	if got := around(t, built(t)); got != "" {
		t.Errorf("what we build has problems: %s", got)
	}
	got := around(t, layers(t, map[string]string{"/bin/sh": "x", "/bin/cp": "-> nosuch", "/usr/bin/mkdir": "-> mkdir"}))
	for _, want := range []string{
		"image-package error: image for linux/amd64: it has no /skyhook-package/config.json",
		"image-tools error: image for linux/amd64: it has no cp, which", "it has no mkdir, which", "image for linux/arm64",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not among\n%s", want, got)
		}
	}
	if strings.Contains(got, "no sh,") {
		t.Errorf("sh is there: %s", got)
	}
	merged := map[string]string{"/skyhook-package/config.json": "{}", "/bin": "-> usr/bin", "/usr/bin/sh": "x", "/usr/bin/cp": "x", "/usr/bin/mkdir": "x"}
	if got := around(t, layers(t, merged)); got != "" {
		t.Errorf("a merged /usr has problems: %s", got)
	}
}

// A file that was changed, added or removed after the build is found.
func TestAroundSeesOtherFiles(t *testing.T) {
	recipe := image.Recipe{From: built(t), Trees: func(v1.Platform) ([]*image.Tree, error) {
		tree := &image.Tree{}
		tree.Bytes("/skyhook-package/skyhook_dir/apply.sh", 0o755, []byte("#!/bin/sh\nreboot\n"))
		tree.Bytes("/skyhook-package/new", 0o644, nil)
		tree.Bytes("/skyhook-package/skyhook_dir/.wh.same.sh", 0o644, nil)
		return []*image.Tree{tree}, nil
	}}
	idx, err := image.Build(recipe, image.DefaultPlatforms()[:1])
	if err != nil {
		t.Fatal(err)
	}
	got := around(t, idx)
	for _, want := range []string{"new is not the file that", "skyhook_dir/apply.sh is not the file that", "skyhook_dir/same.sh is listed in /skyhook-package.sha256 and not there"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not among\n%s", want, got)
		}
	}
}

func TestSBOM(t *testing.T) {
	idx := built(t)
	one, err := SBOM(idx)
	if err != nil {
		t.Fatal(err)
	}
	two, err := SBOM(built(t))
	if err != nil || !bytes.Equal(one, two) {
		t.Errorf("the same package gives two SBOMs, %v", err)
	}
	var d spdx.Document
	if err := json.Unmarshal(one, &d); err != nil {
		t.Fatal(err)
	}
	if d.SPDXVersion != "SPDX-2.3" || d.DocumentName != "demo-1.2.3" || d.CreationInfo.Created != "1970-01-01T00:00:00Z" || len(d.Packages) != 4 {
		t.Errorf("the document begins with %+v and has %d packages", d, len(d.Packages))
	}
	var files []string
	ids := []common.ElementID{d.SPDXIdentifier}
	for _, f := range d.Files {
		files, ids = append(files, f.FileName), append(ids, f.FileSPDXIdentifier)
		if len(f.Checksums) != 2 || f.Checksums[0].Algorithm != "SHA1" || len(f.Checksums[1].Value) != 64 {
			t.Errorf("%s has checksums %v", f.FileName, f.Checksums)
		}
	}
	if want := []string{"./skyhook-package/config.json", "./skyhook-package/skyhook_dir/apply.sh", "./skyhook-package/skyhook_dir/same.sh"}; !slices.Equal(files, want) {
		t.Errorf("files %v, want %v", files, want)
	}
	for _, p := range d.Packages {
		ids = append(ids, p.PackageSPDXIdentifier)
	}
	base := common.ElementID("")
	for _, r := range d.Relationships {
		if !slices.Contains(ids, r.RefA.ElementRefID) || !slices.Contains(ids, r.RefB.ElementRefID) {
			t.Errorf("%v names what is not there", r)
		}
		if r.Relationship == "DESCENDANT_OF" {
			base = r.RefB.ElementRefID
		}
	}
	if base != baseID || len(slices.Compact(slices.Sorted(slices.Values(ids)))) != len(ids) {
		t.Errorf("base %q, ids %v", base, ids)
	}
}

// hostile is an image from a tar of any content.
func hostile(t *testing.T, headers ...tar.Header) v1.Image {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		if h.Typeflag == tar.TypeReg {
			h.Size, h.Mode = 4, 0o755
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			_, _ = w.Write([]byte("evil"))
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	img, err := mutate.AppendLayers(empty.Image, l)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// Whatever an image says, nothing is written beside the folder.
func TestExtractStaysInside(t *testing.T) {
	above := t.TempDir()
	for name, headers := range map[string][]tar.Header{
		"through a link":        {{Name: "skyhook-package/out", Typeflag: tar.TypeSymlink, Linkname: above}, {Name: "skyhook-package/out/evil", Typeflag: tar.TypeReg}},
		"through a link upward": {{Name: "skyhook-package/out", Typeflag: tar.TypeSymlink, Linkname: ".."}, {Name: "skyhook-package/out/evil", Typeflag: tar.TypeReg}},
		"a link to a file":      {{Name: "skyhook-package/evil", Typeflag: tar.TypeLink, Linkname: "etc/passwd"}},
		"a device":              {{Name: "skyhook-package/evil", Typeflag: tar.TypeChar}},
		"not a package":         {{Name: "etc/evil", Typeflag: tar.TypeReg}},
	} {
		dir := filepath.Join(above, "dir")
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		err := extract(hostile(t, headers...), dir)
		if !strings.HasPrefix(name, "through") && err == nil { // what is below a file counts as not there
			t.Errorf("%s: no error", name)
		}
		if _, err := os.Lstat(filepath.Join(above, "evil")); err == nil {
			t.Errorf("%s: a file was written beside the folder", name)
		}
	}
	dir := t.TempDir()
	if err := extract(hostile(t, tar.Header{Name: "./skyhook-package/fine", Typeflag: tar.TypeReg}), dir); err != nil {
		t.Fatal(err)
	}
	if list, _ := os.ReadDir(dir); len(list) != 1 || list[0].Name() != "fine" {
		t.Errorf("unpacked %v", list)
	}
	dots := hostile(t, tar.Header{Name: "skyhook-package/fine", Typeflag: tar.TypeReg}, tar.Header{Name: "skyhook-package/../../evil", Typeflag: tar.TypeReg})
	if err := extract(dots, t.TempDir()); err == nil {
		t.Error("a path that leaves the image is no error")
	}
}

func TestOpen(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	archive := filepath.Join(dir, "demo.tar")
	if err := image.WriteArchiveFile(archive, image.Named{Name: "example.org/demo:1.2.3", Index: built(t)}); err != nil {
		t.Fatal(err)
	}
	p, err := Open(ctx, image.Registry{}, archive, "linux/arm64")
	if err != nil {
		t.Fatal(err)
	}
	if p.Platform != "linux/arm64" || p.Index == nil || p.Want() != (pack.Want{}) {
		t.Errorf("opened %+v", p)
	}
	if st, err := os.Stat(filepath.Join(p.Dir, "skyhook_dir/apply.sh")); err != nil || st.Mode().Perm() != 0o755 {
		t.Errorf("apply.sh: %v, %v", st, err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(p.Dir); err == nil {
		t.Error("what was unpacked is still there")
	}
	if err := image.WriteArchiveFile(archive, image.Named{Index: built(t)}, image.Named{Index: layers(t, tools)}); err != nil {
		t.Fatal(err)
	}
	for what, want := range map[string]string{
		archive: "holds 2 images, and one is needed", "./nosuch": "no such file", dir: "", "not a reference": "cannot be read",
	} {
		p, err := Open(ctx, image.Registry{}, what, "")
		if want == "" && (err != nil || p.Dir != dir) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// madeImage has one layer.
type madeImage struct {
	v1.Image
	archive func() io.Reader
}

type madeLayer struct {
	v1.Layer
	archive func() io.Reader
}

func (m madeImage) Layers() ([]v1.Layer, error) {
	return []v1.Layer{madeLayer{archive: m.archive}}, nil
}
func (m madeLayer) Uncompressed() (io.ReadCloser, error) { return io.NopCloser(m.archive()), nil }

// entries are the headers of files in an archive.
func entries(names iter.Seq[string], size int64) *bytes.Buffer {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for name := range names {
		_ = w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: size}) // the content comes afterwards
	}
	return &out
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// An archive may be small and unpack to more than a disk holds, in few files or in many. What upper layers hide counts too.
func TestUnpackingIsBounded(t *testing.T) {
	for want, archive := range map[string]func() io.Reader{
		"it has more than 1 GiB or": func() io.Reader {
			return io.MultiReader(entries(slices.Values([]string{"skyhook-package/.wh.x"}), 2*image.MaxBytes), io.LimitReader(zeros{}, 2*image.MaxBytes))
		},
		"more than 100000 files, the most that is read": func() io.Reader {
			return entries(func(yield func(string) bool) {
				for n := 0; n <= image.MaxFiles && yield(fmt.Sprintf("skyhook-package/%d", n)); n++ {
				}
			}, 0)
		},
	} {
		n := 0
		err := walkFiles(madeImage{archive: archive}, func(string, *tar.Header, io.Reader) error { n++; return nil })
		if err == nil || !strings.Contains(err.Error(), want) || n > image.MaxFiles {
			t.Errorf("%d files were read, and then %v; want %s", n, err, want)
		}
	}
}
