// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package pkgimage opens packages in every form: a folder, an OCI layout or archive, or an image in a registry.
// Open provides a folder, and for an image also its index.
package pkgimage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/skyhook-k8s/skyhook/internal/image"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// Package is an opened package. It must be closed.
type Package struct {
	Dir      string         // the root of the package, on this machine
	From     string         // what was opened, as it was named
	Index    v1.ImageIndex  // nil for a folder
	Platform string         // of the image whose package is in Dir
	Ref      name.Reference // nil unless it came from a registry
	temp     string
}

// Open opens a package. A path that exists is a folder with a config.json, an OCI layout or an OCI archive; anything else
// is the reference of an image. With an image, platform chooses which one; empty takes this machine's, else the first.
func Open(ctx context.Context, registry image.Registry, what, platform string) (*Package, error) {
	p := &Package{From: what}
	st, err := os.Stat(what)
	switch {
	case err == nil && st.IsDir() && !isLayout(what):
		p.Dir = filepath.Clean(what)
		return p, nil
	case err == nil && filepath.Base(what) == pack.ConfigFile:
		p.Dir = filepath.Dir(what)
		return p, nil
	case err == nil:
		var read image.Named
		read, err = ReadSingle(what)
		p.Index = read.Index
	case strings.HasPrefix(what, ".") || filepath.IsAbs(what) || !errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("opening package %s: %w", what, err)
	default:
		if p.Ref, err = registry.Reference(what); err == nil {
			p.Index, err = registry.Pull(ctx, what)
		}
	}
	if err != nil {
		return nil, err
	}
	return p, p.unpack(platform)
}

func isLayout(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "oci-layout"))
	return err == nil
}

// ReadSingle returns the only image of a layout or archive.
func ReadSingle(file string) (image.Named, error) {
	images, err := image.ReadFile(file)
	if err == nil && len(images) != 1 {
		err = fmt.Errorf("%s holds %d images, and one is needed", file, len(images))
	}
	if err != nil {
		return image.Named{}, err
	}
	return images[0], nil
}

// Close removes the unpacked files.
func (p *Package) Close() error {
	if p.temp == "" {
		return nil
	}
	if err := os.RemoveAll(p.temp); err != nil {
		return fmt.Errorf("removing what was unpacked of %s: %w", p.From, err)
	}
	return nil
}

// unpack writes the package of one of the images to a folder.
func (p *Package) unpack(platform string) error {
	img, chosen, err := choose(p.Index, platform)
	if err != nil {
		return fmt.Errorf("opening %s: %w", p.From, err)
	}
	p.Platform = chosen
	if p.temp, err = os.MkdirTemp("", "skyhook-package-"); err != nil {
		return fmt.Errorf("opening %s: %w", p.From, err)
	}
	p.Dir = filepath.Join(p.temp, "package")
	if err = os.Mkdir(p.Dir, 0o755); err == nil { //nolint:gosec // G301: as folders of a package are, for who looks at it
		err = extract(img, p.Dir)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("opening %s: %w", p.From, err), p.Close())
	}
	return nil
}

func choose(idx v1.ImageIndex, platform string) (v1.Image, string, error) {
	if platform != "" {
		want, err := v1.ParsePlatform(platform)
		if err != nil {
			return nil, "", fmt.Errorf("platform %q: %w", platform, err)
		}
		img, err := image.ForPlatform(idx, *want)
		return img, platform, err
	}
	if img, err := image.ForPlatform(idx, v1.Platform{OS: "linux", Architecture: runtime.GOARCH}); err == nil {
		return img, "linux/" + runtime.GOARCH, nil
	}
	all, err := images(idx)
	if err == nil && len(all) == 0 {
		err = errors.New("there is no image in it")
	}
	if err != nil {
		return nil, "", err
	}
	return all[0].Image, all[0].platform, nil
}

// onPlatform is one image of an index with its platform.
type onPlatform struct {
	v1.Image
	platform string
}

func images(idx v1.ImageIndex) ([]onPlatform, error) {
	manifest, err := idx.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("reading the index: %w", err)
	}
	var out []onPlatform
	for _, d := range manifest.Manifests {
		if !d.MediaType.IsImage() || d.Platform == nil || d.Platform.OS == "unknown" {
			continue
		}
		img, err := idx.Image(d.Digest)
		if err != nil {
			return nil, fmt.Errorf("reading image %s: %w", d.Digest, err)
		}
		out = append(out, onPlatform{img, d.Platform.String()})
	}
	return out, nil
}

// Want returns the name and version that the image's reference implies. A tag cannot have the plus sign that a
// version may have.
func (p *Package) Want() pack.Want {
	tag, ok := p.Ref.(name.Tag)
	if !ok {
		return pack.Want{}
	}
	return WantOf(tag)
}

// WantOf returns the name and version that a tag implies.
func WantOf(tag name.Tag) pack.Want {
	return pack.Want{Name: path.Base(tag.RepositoryStr()), Version: strings.ReplaceAll(tag.TagStr(), "_", "+")}
}

// Tag returns the tag for a version of a package.
func Tag(version string) string { return strings.ReplaceAll(version, "+", "_") }
