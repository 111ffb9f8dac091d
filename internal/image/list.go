// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"fmt"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Listing describes an index, with an empty Platform, or one of its images.
type Listing struct {
	Platform string
	Digest   v1.Hash
	Size     int64 // bytes to pull: manifest, configuration and compressed layers
}

// List returns the index and then its images, in their order. It returns an error when there is too much to pull.
func List(idx v1.ImageIndex) ([]Listing, error) {
	digest, err := idx.Digest()
	if err != nil {
		return nil, fmt.Errorf("reading an index: %w", err)
	}
	manifest, err := idx.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("reading index %s: %w", digest, err)
	}
	size, err := idx.Size()
	if err != nil {
		return nil, fmt.Errorf("reading index %s: %w", digest, err)
	}
	lines, budget := []Listing{{Digest: digest, Size: size}}, Budget{}
	for _, d := range manifest.Manifests {
		if !d.MediaType.IsImage() {
			continue
		}
		img, err := idx.Image(d.Digest)
		if err != nil {
			return nil, fmt.Errorf("reading image %s: %w", d.Digest, err)
		}
		m, err := img.Manifest()
		if err != nil {
			return nil, fmt.Errorf("reading image %s: %w", d.Digest, err)
		}
		line := Listing{Digest: d.Digest, Size: d.Size + m.Config.Size}
		if d.Platform != nil {
			line.Platform = d.Platform.String()
		}
		for _, l := range m.Layers {
			line.Size += l.Size
		}
		if err := budget.Add(1, line.Size); err != nil {
			return nil, fmt.Errorf("reading index %s: %w", digest, err)
		}
		lines = append(lines, line)
	}
	return lines, nil
}

// ForPlatform returns the image of an index for a platform. Without a variant in want, any variant matches.
func ForPlatform(idx v1.ImageIndex, want v1.Platform) (v1.Image, error) {
	manifest, err := idx.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("reading an index: %w", err)
	}
	var there []string
	for _, d := range manifest.Manifests {
		if !d.MediaType.IsImage() || d.Platform == nil || d.Platform.OS == "unknown" {
			continue
		}
		if d.Platform.Satisfies(want) {
			return idx.Image(d.Digest)
		}
		there = append(there, d.Platform.String())
	}
	return nil, fmt.Errorf("there is no image for %s, only for %s", want, strings.Join(there, ", "))
}
