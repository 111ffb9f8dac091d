// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Named is an index with its reference, e.g. ghcr.io/acme/tuning:1.2.0.
type Named struct {
	Name  string
	Index v1.ImageIndex
}

const layoutMark = `{"imageLayoutVersion":"1.0.0"}`

// store is an OCI image layout: the content of each path below it.
type store map[string]func() (io.ReadCloser, int64, error)

func (s store) addFile(name string, b []byte) {
	s[name] = func() (io.ReadCloser, int64, error) { return io.NopCloser(bytes.NewReader(b)), int64(len(b)), nil }
}

func (s store) addBlob(h v1.Hash, b []byte) { s.addFile("blobs/"+h.Algorithm+"/"+h.Hex, b) }

// newStore collects the blobs of the images; shared blobs are stored once.
func newStore(images []Named) (store, error) {
	s := store{}
	top := v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex}
	for _, n := range images {
		if err := s.addIndex(n.Index); err != nil {
			return nil, fmt.Errorf("storing image %s: %w", n.Name, err)
		}
		d, err := newDescriptor(n)
		if err != nil {
			return nil, fmt.Errorf("storing image %s: %w", n.Name, err)
		}
		top.Manifests = append(top.Manifests, d)
	}
	raw, err := json.Marshal(top)
	if err != nil {
		return nil, err
	}
	s.addFile("index.json", raw)
	s.addFile("oci-layout", []byte(layoutMark))
	return s, nil
}

// newDescriptor sets the name twice: containerd reads its own annotation, other tools the OCI one, which is the tag.
func newDescriptor(n Named) (v1.Descriptor, error) {
	digest, err := n.Index.Digest()
	if err != nil {
		return v1.Descriptor{}, err
	}
	size, err := n.Index.Size()
	if err != nil {
		return v1.Descriptor{}, err
	}
	media, err := n.Index.MediaType()
	if err != nil {
		return v1.Descriptor{}, err
	}
	d := v1.Descriptor{MediaType: media, Digest: digest, Size: size}
	if n.Name != "" {
		d.Annotations = map[string]string{nameAnnotation: n.Name}
		if i := strings.LastIndexByte(n.Name, ':'); i > strings.LastIndexByte(n.Name, '/') {
			d.Annotations["org.opencontainers.image.ref.name"] = n.Name[i+1:]
		}
	}
	return d, nil
}

const nameAnnotation = "io.containerd.image.name"

func (s store) addIndex(idx v1.ImageIndex) error {
	raw, err := idx.RawManifest()
	if err != nil {
		return err
	}
	digest, err := idx.Digest()
	if err != nil {
		return err
	}
	s.addBlob(digest, raw)
	manifest, err := idx.IndexManifest()
	if err != nil {
		return err
	}
	for _, d := range manifest.Manifests {
		switch {
		case d.MediaType.IsIndex():
			child, err := idx.ImageIndex(d.Digest)
			if err != nil {
				return err
			}
			if err := s.addIndex(child); err != nil {
				return err
			}
		case d.MediaType.IsImage():
			img, err := idx.Image(d.Digest)
			if err != nil {
				return err
			}
			if err := s.addImage(d.Digest, img); err != nil {
				return err
			}
		default:
			return fmt.Errorf("the index names %s, a %s, which is neither image nor index", d.Digest, d.MediaType)
		}
	}
	return nil
}

func (s store) addImage(digest v1.Hash, img v1.Image) error {
	raw, err := img.RawManifest()
	if err != nil {
		return err
	}
	s.addBlob(digest, raw)
	config, err := img.RawConfigFile()
	if err != nil {
		return err
	}
	name, err := img.ConfigName()
	if err != nil {
		return err
	}
	s.addBlob(name, config)
	layers, err := img.Layers()
	if err != nil {
		return err
	}
	for _, l := range layers {
		h, err := l.Digest()
		if err != nil {
			return err
		}
		s["blobs/"+h.Algorithm+"/"+h.Hex] = func() (io.ReadCloser, int64, error) {
			size, err := l.Size()
			if err != nil {
				return nil, 0, err
			}
			r, err := l.Compressed()
			return r, size, err
		}
	}
	return nil
}

// WriteArchive writes the images as an OCI archive: one tar, as `ctr images import` and containerd load it.
func WriteArchive(w io.Writer, images ...Named) error {
	s, err := newStore(images)
	if err != nil {
		return err
	}
	out := tar.NewWriter(w)
	for _, name := range slices.Sorted(maps.Keys(s)) {
		r, size, err := s[name]()
		if err != nil {
			return fmt.Errorf("writing an archive: %s: %w", name, err)
		}
		err = out.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: size, ModTime: time.Unix(0, 0), Typeflag: tar.TypeReg})
		if err == nil {
			_, err = io.Copy(out, r)
		}
		if err = errors.Join(err, r.Close()); err != nil {
			return fmt.Errorf("writing an archive: %s: %w", name, err)
		}
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("writing an archive: %w", err)
	}
	return nil
}

// WriteArchiveFile writes an OCI archive to a file atomically.
func WriteArchiveFile(file string, images ...Named) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return fmt.Errorf("writing archive %s: %w", file, err)
	}
	return replaceFile(file, func(w io.Writer) error { return WriteArchive(w, images...) })
}

// WriteLayout writes the images as an OCI layout folder. The folder is new, empty, or an older layout, whose content
// is replaced.
func WriteLayout(dir string, images ...Named) error {
	s, err := newStore(images)
	if err != nil {
		return err
	}
	if err := clearLayout(dir); err != nil {
		return fmt.Errorf("writing layout %s: %w", dir, err)
	}
	for _, name := range slices.Sorted(maps.Keys(s)) {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
			return fmt.Errorf("writing layout %s: %w", dir, err)
		}
		err := replaceFile(file, func(w io.Writer) error {
			r, _, err := s[name]()
			if err != nil {
				return err
			}
			_, err = io.Copy(w, r)
			return errors.Join(err, r.Close())
		})
		if err != nil {
			return fmt.Errorf("writing layout %s: %w", dir, err)
		}
	}
	return nil
}

// clearLayout removes a layout. It returns an error for a directory that is not a layout.
func clearLayout(dir string) error {
	there, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) || err == nil && len(there) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, "oci-layout")); err != nil {
		return fmt.Errorf("the folder holds other things; name a new or empty one")
	}
	return errors.Join(os.Remove(filepath.Join(dir, "index.json")), os.RemoveAll(filepath.Join(dir, "blobs")))
}

// replaceFile writes a temporary file and renames it when it is complete.
func replaceFile(file string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".*")
	if err != nil {
		return err
	}
	// CreateTemp makes private files; build results are readable by everyone.
	err = errors.Join(write(f), f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("writing %s: %w", file, err), os.Remove(f.Name()))
	}
	return nil
}
