// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Repository returns the repository of an image, registry host included.
func Repository(image string) (string, error) {
	wanted, err := name.ParseReference(image)
	if err != nil {
		return "", fmt.Errorf("reading the image name %q: %w; write it as HOST/REPOSITORY:TAG", image, err)
	}
	host := wanted.Context().RegistryStr()
	if host == name.DefaultRegistry {
		host = "docker.io" // what containerd calls it
	}
	return host + "/" + wanted.Context().RepositoryStr(), nil
}

// Locate translates the name of an image in manifests to the reference under which it is pushed to the registry at address.
func Locate(address, image string) (name.Reference, error) {
	repository, err := Repository(image)
	if err != nil {
		return nil, err
	}
	wanted, err := name.ParseReference(image)
	if err != nil {
		return nil, err
	}
	separator := ":"
	if _, digest := wanted.(name.Digest); digest {
		separator = "@"
	}
	located, err := name.ParseReference(address+"/"+RepositoryPath(repository)+separator+wanted.Identifier(), name.Insecure)
	if err != nil {
		return nil, fmt.Errorf("reading the image name %q: %w", image, err)
	}
	return located, nil
}

// Push stores an image or an index of images under the name, and returns its digest.
func Push(ctx context.Context, address, image string, content partial.Describable) (v1.Hash, error) {
	ref, err := Locate(address, image)
	if err != nil {
		return v1.Hash{}, err
	}
	switch content := content.(type) {
	case v1.ImageIndex:
		err = remote.WriteIndex(ref, content, remote.WithContext(ctx))
	case v1.Image:
		err = remote.Write(ref, content, remote.WithContext(ctx))
	default:
		err = fmt.Errorf("%T is neither an image nor an index", content)
	}
	if err != nil {
		return v1.Hash{}, fmt.Errorf("pushing %s: %w", image, err)
	}
	digest, err := content.(interface{ Digest() (v1.Hash, error) }).Digest()
	if err != nil {
		return v1.Hash{}, fmt.Errorf("reading the digest of %s: %w", image, err)
	}
	return digest, nil
}

// Open reads an OCI archive, or the output of `docker save`. The returned function removes temporary files.
func Open(file string) (partial.Describable, func(), error) {
	kept := func() {}
	oci, err := hasFile(file, "oci-layout")
	if err != nil {
		return nil, kept, fmt.Errorf("reading the image archive %s: %w", file, err)
	}
	if !oci {
		image, err := tarball.ImageFromPath(file, nil)
		if err != nil {
			return nil, kept, fmt.Errorf("reading the image archive %s: %w; it must be an OCI archive or the output of docker save, with one image", file, err)
		}
		return image, kept, nil
	}
	dir, err := os.MkdirTemp("", "image-")
	if err != nil {
		return nil, kept, fmt.Errorf("unpacking %s: %w", file, err)
	}
	kept = func() { _ = os.RemoveAll(dir) }
	if err := unpackArchive(file, dir); err != nil {
		return nil, kept, fmt.Errorf("unpacking %s: %w", file, err)
	}
	content, err := soleContent(dir)
	if err != nil {
		return nil, kept, fmt.Errorf("reading the image archive %s: %w", file, err)
	}
	return content, kept, nil
}

// soleContent returns the only image or index of an OCI layout, or the index of all if there are several.
func soleContent(dir string) (partial.Describable, error) {
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, err
	}
	list, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	if len(list.Manifests) != 1 {
		return index, nil
	}
	if one := list.Manifests[0]; one.MediaType.IsIndex() {
		return index.ImageIndex(one.Digest)
	}
	return index.Image(list.Manifests[0].Digest)
}

// hasFile reports whether an archive contains a file.
func hasFile(archive, name string) (bool, error) {
	found := false
	err := eachFile(archive, func(h *tar.Header, _ io.Reader) error {
		found = found || filepath.Clean(h.Name) == name
		return nil
	})
	return found, err
}

func unpackArchive(archive, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	return eachFile(archive, func(h *tar.Header, content io.Reader) error {
		path := strings.TrimPrefix(filepath.Clean(h.Name), "/")
		if h.Typeflag != tar.TypeReg {
			return nil
		}
		if err := root.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		out, err := root.Create(path)
		if err != nil {
			return err
		}
		_, err = io.Copy(out, content)
		return errors.Join(err, out.Close())
	})
}

func eachFile(archive string, visit func(*tar.Header, io.Reader) error) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	for reader := tar.NewReader(f); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("not a tar archive: %w", err)
		}
		if err := visit(header, reader); err != nil {
			return err
		}
	}
}
