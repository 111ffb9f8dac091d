// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package pkgimage

import (
	"archive/tar"
	"cmp"
	"crypto/sha1" //nolint:gosec // G505: SPDX asks for SHA-1 of every file
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/skyhook-k8s/skyhook/internal/image"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// packagePrefix is the path of the package in the archive of a layer.
var packagePrefix = strings.TrimPrefix(image.PackageDir, "/") + "/"

// limitedImage is an image of which no more is unpacked than its budget allows, also of files that upper layers hide.
type limitedImage struct {
	v1.Image
	unpacked *image.Budget
}

// Layers returns the layers of the image, limited together.
func (i limitedImage) Layers() ([]v1.Layer, error) {
	all, err := i.Image.Layers()
	out := make([]v1.Layer, len(all))
	for n, l := range all {
		out[n] = limitedLayer{l, i.unpacked}
	}
	return out, err
}

type limitedLayer struct {
	v1.Layer
	unpacked *image.Budget
}

// Uncompressed returns the archive of the layer.
func (l limitedLayer) Uncompressed() (io.ReadCloser, error) {
	r, err := l.Layer.Uncompressed()
	return struct {
		io.Reader
		io.Closer
	}{io.TeeReader(r, l.unpacked), r}, err
}

// walkFiles calls a function for every entry of the flattened image.
func walkFiles(img v1.Image, see func(name string, h *tar.Header, content io.Reader) error) error {
	flat := mutate.Extract(limitedImage{img, &image.Budget{}})
	in := tar.NewReader(flat)
	var seen image.Budget
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) { // errors of layers are reported after the last entry
			_, err = io.Copy(io.Discard, flat)
			return errors.Join(err, flat.Close())
		}
		if err = cmp.Or(err, seen.Add(1, 0)); err == nil {
			err = see(strings.TrimPrefix(path.Clean("/"+h.Name), "/"), h, in)
		}
		if err != nil {
			return errors.Join(err, flat.Close())
		}
	}
}

// extract writes the package of an image to a folder and nothing outside of it.
func extract(img v1.Image, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	seen := false
	err = walkFiles(img, func(name string, h *tar.Header, content io.Reader) error {
		file, ours := strings.CutPrefix(name, packagePrefix)
		if !ours {
			return nil
		}
		seen = true
		if err := writeEntry(root, file, h, content); err != nil {
			return fmt.Errorf("unpacking %s: %w", name, err)
		}
		return nil
	})
	if err == nil && !seen {
		err = fmt.Errorf("it is not a package: it has no %s", image.PackageDir)
	}
	return err
}

func writeEntry(root *os.Root, file string, h *tar.Header, content io.Reader) error {
	if h.Typeflag == tar.TypeDir {
		return root.MkdirAll(file, 0o755)
	}
	if err := root.MkdirAll(path.Dir(file), 0o755); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeReg:
		mode := h.FileInfo().Mode().Perm()
		out, err := root.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
		if err != nil {
			return err
		}
		_, err = io.CopyN(out, content, h.Size)
		return errors.Join(err, out.Chmod(mode), out.Close()) // regardless of the umask
	case tar.TypeSymlink:
		return root.Symlink(h.Linkname, file)
	case tar.TypeLink:
		target, ours := strings.CutPrefix(strings.TrimPrefix(path.Clean("/"+h.Linkname), "/"), packagePrefix)
		if !ours {
			return fmt.Errorf("it is a link to %s, which is not in the package", h.Linkname)
		}
		return root.Link(target, file)
	}
	return fmt.Errorf("it is a %s; a package has files, folders and links", h.FileInfo().Mode().Type())
}

// imageContent is the content of an image as far as it matters for a package.
type imageContent struct {
	files map[string]file   // of the package, by path below it
	other map[string]string // everything else: the target of a link, or nothing
	sums  string
}

type file struct {
	size         int64
	sha1, sha256 string
}

// readContent reads a whole image.
func readContent(img v1.Image) (imageContent, error) {
	c := imageContent{files: map[string]file{}, other: map[string]string{}}
	err := walkFiles(img, func(name string, h *tar.Header, in io.Reader) error {
		short, ours := strings.CutPrefix(name, packagePrefix)
		switch {
		case ours && h.Typeflag == tar.TypeReg:
			old, strong := sha1.New(), sha256.New() //nolint:gosec // G401: SPDX asks for SHA-1 of every file
			n, err := io.Copy(io.MultiWriter(old, strong), in)
			if err != nil {
				return fmt.Errorf("reading %s: %w", name, err)
			}
			c.files[short] = file{size: n, sha1: fmt.Sprintf("%x", old.Sum(nil)), sha256: fmt.Sprintf("%x", strong.Sum(nil))}
		case "/"+name == image.PackageSums:
			raw, err := io.ReadAll(in)
			if err != nil {
				return fmt.Errorf("reading %s: %w", name, err)
			}
			c.sums = string(raw)
		default:
			c.other[name] = h.Linkname
		}
		return nil
	})
	return c, err
}

// hasProgram reports whether a program is in the image, following links.
func (c imageContent) hasProgram(name string) bool {
	for range 40 {
		target, ok := c.other[name]
		if ok && target == "" {
			return true
		}
		if ok {
			name = resolveLink(path.Dir(name), target)
			continue
		}
		moved := false
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) { // a folder above may be a link: /bin → /usr/bin
			if target := c.other[dir]; target != "" {
				name, moved = resolveLink(path.Dir(dir), target)+strings.TrimPrefix(name, dir), true
				break
			}
		}
		if !moved {
			return false
		}
	}
	return false
}

func resolveLink(dir, target string) string {
	if !path.IsAbs(target) {
		target = path.Join("/", dir, target)
	}
	return strings.TrimPrefix(path.Clean(target), "/")
}

// CheckSurroundings returns problems of the images of an index outside of the package: programs needed to copy it to a
// host are missing, or files differ from the checksums of the build.
func CheckSurroundings(idx v1.ImageIndex) (pack.Problems, error) {
	all, err := images(idx)
	if err != nil {
		return nil, err
	}
	var found pack.Problems
	for _, img := range all {
		c, err := readContent(img)
		if err != nil {
			return nil, fmt.Errorf("reading the image for %s: %w", img.platform, err)
		}
		found = append(found, c.findProblems(img.platform)...)
	}
	return found, nil
}

func (c imageContent) findProblems(platform string) pack.Problems {
	var found pack.Problems
	fail := func(rule, message, fix string) {
		found = append(found, pack.Problem{Severity: pack.Error, Rule: rule, File: "image for " + platform, Message: message, Fix: fix})
	}
	if _, ok := c.files[pack.ConfigFile]; !ok {
		fail("image-package", "it has no "+image.PackageDir+"/"+pack.ConfigFile, "copy the package's folder to "+image.PackageDir)
	}
	for _, tool := range []string{"sh", "mkdir", "cp"} {
		if !c.hasProgram("bin/"+tool) && !c.hasProgram("usr/bin/"+tool) {
			fail("image-tools", "it has no "+tool+", which copies the package to a host", "build it on an image with sh, mkdir and cp")
		}
	}
	if c.sums == "" {
		return found
	}
	want := map[string]string{}
	for line := range strings.Lines(c.sums) {
		if sum, name, ok := strings.Cut(strings.TrimRight(line, "\n"), "  "); ok {
			want[strings.TrimPrefix(name, packagePrefix)] = sum
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.files)) {
		if want[name] != c.files[name].sha256 {
			fail("image-sums", name+" is not the file that "+image.PackageSums+" lists", "build the image again")
		}
		delete(want, name)
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		fail("image-sums", name+" is listed in "+image.PackageSums+" and not there", "build the image again")
	}
	return found
}
