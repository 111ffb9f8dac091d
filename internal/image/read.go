// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// blobs are the files of an archive or a layout, by digest. The digest of each is checked.
type blobs map[v1.Hash][]byte

// The most that is read of one archive, layout or image. What is small in an archive could fill the memory or a disk.
const (
	MaxBytes = 1 << 30
	MaxFiles = 100_000
)

// Budget counts what was read of an archive, layout or image.
type Budget struct{ files, bytes int64 }

// Add counts files and bytes. It returns an error when they are too many.
func (b *Budget) Add(files, bytes int64) error {
	if b.files, b.bytes = b.files+files, b.bytes+bytes; b.files > MaxFiles || b.bytes > MaxBytes {
		return fmt.Errorf("it has more than %d GiB or more than %d files, the most that is read", MaxBytes>>30, MaxFiles)
	}
	return nil
}

// Write counts bytes that were read.
func (b *Budget) Write(p []byte) (int, error) { return len(p), b.Add(0, int64(len(p))) }

// ReadFile reads the images of an OCI archive, or of an OCI layout when the path is a folder.
func ReadFile(file string) ([]Named, error) {
	st, err := os.Stat(file)
	if err != nil {
		return nil, fmt.Errorf("reading images: %w", err)
	}
	if st.IsDir() {
		images, err := readLayout(file)
		if err != nil {
			return nil, fmt.Errorf("reading OCI layout %s: %w", file, err)
		}
		return images, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("reading images: %w", err)
	}
	images, err := ReadArchive(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("reading OCI archive %s: %w", file, err)
	}
	return images, nil
}

// ReadArchive reads the images of an OCI archive into memory.
func ReadArchive(r io.Reader) ([]Named, error) {
	in := tar.NewReader(r)
	files := map[string][]byte{}
	var budget Budget
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("it is not a tar: %w", err)
		}
		if err := budget.Add(1, h.Size); err != nil {
			return nil, err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		for key := range h.PAXRecords {
			if strings.HasPrefix(key, "GNU.sparse.") { // of a few bytes it would become what its header says
				return nil, fmt.Errorf("%s is a sparse file, which no image has", h.Name)
			}
		}
		content, err := io.ReadAll(in)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", h.Name, err)
		}
		files[path.Clean(h.Name)] = content
	}
	return readNamedImages(files)
}

func readLayout(dir string) ([]Named, error) {
	files := map[string][]byte{}
	var budget Budget
	for _, pattern := range []string{"index.json", "blobs/*/*"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return nil, err
		}
		for _, file := range found {
			st, err := os.Stat(file)
			if err == nil {
				err = budget.Add(1, st.Size())
			}
			if err != nil {
				return nil, err
			}
			content, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			rel, err := filepath.Rel(dir, file)
			if err != nil {
				return nil, err
			}
			files[filepath.ToSlash(rel)] = content
		}
	}
	return readNamedImages(files)
}

func readNamedImages(files map[string][]byte) ([]Named, error) {
	raw, there := files["index.json"]
	if !there {
		return nil, errors.New("there is no index.json in it; only OCI archives and layouts can be read")
	}
	all := blobs{}
	for name, content := range files {
		hex, isBlob := strings.CutPrefix(name, "blobs/sha256/")
		if !isBlob {
			continue
		}
		is := sha256.Sum256(content)
		if sha256Hash(is[:]).Hex != hex {
			return nil, fmt.Errorf("blob %s is damaged: its content has digest %s", hex, sha256Hash(is[:]).Hex)
		}
		all[sha256Hash(is[:])] = content
	}
	var top v1.IndexManifest
	if err := json.Unmarshal(raw, &top); err != nil {
		return nil, fmt.Errorf("index.json: %w", err)
	}
	var images []Named
	for _, d := range top.Manifests {
		if d.ArtifactType != "" && !types.MediaType(d.ArtifactType).IsConfig() {
			continue // a document about one of the images
		}
		idx, err := all.readNamedIndex(d)
		if err != nil {
			return nil, err
		}
		name := d.Annotations[nameAnnotation]
		if name == "" {
			name = d.Annotations["org.opencontainers.image.ref.name"]
		}
		images = append(images, Named{Name: name, Index: idx})
	}
	return images, nil
}

func (b blobs) readNamedIndex(d v1.Descriptor) (v1.ImageIndex, error) {
	if d.MediaType.IsIndex() {
		return b.readIndex(d)
	}
	img, err := b.readImage(d)
	if err != nil {
		return nil, err
	}
	return singleImageIndex(img)
}

func (b blobs) readBlob(h v1.Hash) ([]byte, error) {
	if content, there := b[h]; there {
		return content, nil
	}
	return nil, fmt.Errorf("blob %s is missing", h)
}

func (b blobs) readIndex(d v1.Descriptor) (v1.ImageIndex, error) {
	raw, err := b.readBlob(d.Digest)
	if err != nil {
		return nil, err
	}
	var m v1.IndexManifest
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("index %s: %w", d.Digest, err)
	}
	return storedIndex{blobs: b, raw: raw, manifest: &m, digest: d.Digest, media: d.MediaType}, nil
}

func (b blobs) readImage(d v1.Descriptor) (v1.Image, error) {
	raw, err := b.readBlob(d.Digest)
	if err != nil {
		return nil, err
	}
	var m v1.Manifest
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("image %s: %w", d.Digest, err)
	}
	for _, part := range append([]v1.Descriptor{m.Config}, m.Layers...) {
		if _, err := b.readBlob(part.Digest); err != nil {
			return nil, fmt.Errorf("image %s: %w", d.Digest, err)
		}
	}
	return partial.CompressedToImage(storedImage{blobs: b, raw: raw, manifest: &m, media: d.MediaType})
}

// storedIndex is an index whose blobs are in memory.
type storedIndex struct {
	blobs    blobs
	raw      []byte
	manifest *v1.IndexManifest
	digest   v1.Hash
	media    types.MediaType
}

func (s storedIndex) MediaType() (types.MediaType, error)       { return s.media, nil }
func (s storedIndex) Digest() (v1.Hash, error)                  { return s.digest, nil }
func (s storedIndex) Size() (int64, error)                      { return int64(len(s.raw)), nil }
func (s storedIndex) IndexManifest() (*v1.IndexManifest, error) { return s.manifest.DeepCopy(), nil }
func (s storedIndex) RawManifest() ([]byte, error)              { return s.raw, nil }
func (s storedIndex) Image(h v1.Hash) (v1.Image, error)         { return s.blobs.readImage(s.findChild(h)) }
func (s storedIndex) ImageIndex(h v1.Hash) (v1.ImageIndex, error) {
	return s.blobs.readIndex(s.findChild(h))
}

func (s storedIndex) findChild(h v1.Hash) v1.Descriptor {
	for _, d := range s.manifest.Manifests {
		if d.Digest == h {
			return d
		}
	}
	return v1.Descriptor{Digest: h}
}

// storedImage is the input of partial.CompressedToImage.
type storedImage struct {
	blobs    blobs
	raw      []byte
	manifest *v1.Manifest
	media    types.MediaType
}

func (s storedImage) MediaType() (types.MediaType, error) { return s.media, nil }
func (s storedImage) RawManifest() ([]byte, error)        { return s.raw, nil }
func (s storedImage) RawConfigFile() ([]byte, error) {
	return s.blobs.readBlob(s.manifest.Config.Digest)
}

func (s storedImage) LayerByDigest(h v1.Hash) (partial.CompressedLayer, error) {
	raw, err := s.blobs.readBlob(h)
	if err != nil {
		return nil, err
	}
	for _, d := range s.manifest.Layers {
		if d.Digest == h {
			return storedLayer{raw: raw, digest: h, media: d.MediaType}, nil
		}
	}
	return nil, fmt.Errorf("layer %s is not part of the image", h)
}

type storedLayer struct {
	raw    []byte
	digest v1.Hash
	media  types.MediaType
}

func (s storedLayer) Digest() (v1.Hash, error)            { return s.digest, nil }
func (s storedLayer) Size() (int64, error)                { return int64(len(s.raw)), nil }
func (s storedLayer) MediaType() (types.MediaType, error) { return s.media, nil }
func (s storedLayer) Compressed() (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(s.raw)), nil
}
