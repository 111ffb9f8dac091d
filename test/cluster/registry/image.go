// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"maps"
	"path"
	"runtime"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// File is one file of an image.
type File struct {
	Content []byte
	Link    string // makes it a symbolic link to this
	Mode    int64
}

// Image creates an image of this machine's architecture from a few files.
func Image(files map[string]File, entrypoint ...string) (v1.Image, error) {
	var layer bytes.Buffer
	archive := tar.NewWriter(&layer)
	dirs := map[string]bool{".": true, "/": true}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if dir := path.Dir(name); !dirs[dir] {
			dirs[dir] = true
			if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}); err != nil {
				return nil, fmt.Errorf("creating an image: %w", err)
			}
		}
		f := files[name]
		header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: f.Mode, Size: int64(len(f.Content))}
		if f.Link != "" {
			header.Typeflag, header.Linkname = tar.TypeSymlink, f.Link
		}
		if err := archive.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("creating an image: %w", err)
		}
		if _, err := archive.Write(f.Content); err != nil {
			return nil, fmt.Errorf("creating an image: %w", err)
		}
	}
	if err := archive.Close(); err != nil {
		return nil, fmt.Errorf("creating an image: %w", err)
	}
	made, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer.Bytes())), nil })
	if err != nil {
		return nil, fmt.Errorf("creating an image: %w", err)
	}
	image, err := mutate.AppendLayers(empty.Image, made)
	if err != nil {
		return nil, fmt.Errorf("creating an image: %w", err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("creating an image: %w", err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config.Entrypoint = entrypoint
	config.Config.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return nil, fmt.Errorf("creating an image: %w", err)
	}
	return image, nil
}
