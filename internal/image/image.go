// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package image builds OCI images from files and Go programs, without a container engine.
//
// The same input gives the same digest: entries are sorted, times are the recipe's, owners are root, and of a file's
// mode only the executable bit is kept. Clock, umask, user and directory of the host have no effect.
// A digest also depends on the version of Go, which compiles the programs and compresses the layers.
package image

import (
	"fmt"
	"maps"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// SearchPath is the PATH of every image, so that steps of a package find the programs of their host.
const SearchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Recipe describes the content of an image. Build builds it for each platform.
type Recipe struct {
	// From is the base image; nil for none. FromName is its reference.
	From     v1.ImageIndex
	FromName string
	// Trees are the layers to add for one platform, lowest first. A tree that is returned for several platforms
	// becomes one shared layer.
	Trees func(v1.Platform) ([]*Tree, error)

	Entrypoint []string
	Env        []string
	User       string // "uid:gid"; empty keeps that of From
	WorkingDir string

	// Labels are written to the config of each image and to the manifests, where registries look for them.
	Labels map[string]string
	// Created is the time of every file and of the image; the zero value is 1970.
	Created time.Time
}

// About is the content of an image's OCI labels.
type About struct {
	Title, Description, Version, Revision, Source, Licenses string
}

// Labels returns the org.opencontainers.image labels without empty ones.
func (a About) Labels() map[string]string {
	labels := map[string]string{}
	for key, value := range map[string]string{
		"title": a.Title, "description": a.Description, "version": a.Version,
		"revision": a.Revision, "source": a.Source, "licenses": a.Licenses,
	} {
		if value != "" {
			labels["org.opencontainers.image."+key] = value
		}
	}
	return labels
}

// DefaultPlatforms returns the platforms that our images are published for.
func DefaultPlatforms() []v1.Platform {
	return []v1.Platform{{OS: "linux", Architecture: "amd64"}, {OS: "linux", Architecture: "arm64"}}
}

// Build builds an index with one image per platform, in the given order.
func Build(r Recipe, platforms []v1.Platform) (v1.ImageIndex, error) {
	if len(platforms) == 0 {
		return nil, fmt.Errorf("building an image: no platform is named; linux/amd64 is one")
	}
	if r.Created.Unix() < 0 {
		r.Created = time.Unix(0, 0)
	}
	r.Created = r.Created.UTC().Truncate(time.Second)
	annotations, err := r.indexAnnotations()
	if err != nil {
		return nil, err
	}
	layers := map[*Tree]v1.Layer{}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for i, p := range platforms {
		for _, earlier := range platforms[:i] {
			if earlier.Equals(p) {
				return nil, fmt.Errorf("building an image: platform %s is named twice", p)
			}
		}
		img, err := r.buildImage(p, layers)
		if err != nil {
			return nil, fmt.Errorf("building the image for %s: %w", p, err)
		}
		img = mutate.Annotations(img, annotations).(v1.Image)
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: img, Descriptor: v1.Descriptor{MediaType: types.OCIManifestSchema1, Platform: &p},
		})
	}
	return mutate.Annotations(index, annotations).(v1.ImageIndex), nil
}

func (r Recipe) indexAnnotations() (map[string]string, error) {
	annotations := maps.Clone(r.Labels)
	if r.From == nil {
		return annotations, nil
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	digest, err := r.From.Digest()
	if err != nil {
		return nil, fmt.Errorf("reading the image below: %w", err)
	}
	annotations["org.opencontainers.image.base.digest"] = digest.String()
	if r.FromName != "" {
		annotations["org.opencontainers.image.base.name"] = r.FromName
	}
	return annotations, nil
}

func (r Recipe) buildImage(p v1.Platform, layers map[*Tree]v1.Layer) (v1.Image, error) {
	below := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if r.From != nil {
		found, err := ForPlatform(r.From, p)
		if err != nil {
			return nil, fmt.Errorf("the image below: %w", err)
		}
		below = mutate.ConfigMediaType(mutate.MediaType(found, types.OCIManifestSchema1), types.OCIConfigJSON)
	}
	var trees []*Tree
	if r.Trees != nil {
		var err error
		if trees, err = r.Trees(p); err != nil {
			return nil, err
		}
	}
	var add []mutate.Addendum
	for _, t := range trees {
		if layers[t] == nil {
			l, err := t.buildLayer(r.Created)
			if err != nil {
				return nil, err
			}
			layers[t] = l
		}
		add = append(add, mutate.Addendum{Layer: layers[t], MediaType: types.OCILayer,
			History: v1.History{Created: v1.Time{Time: r.Created}, CreatedBy: "skyhook image"}})
	}
	img, err := mutate.Append(below, add...)
	if err != nil {
		return nil, fmt.Errorf("adding layers: %w", err)
	}
	cf, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("reading the configuration of the image below: %w", err)
	}
	return mutate.ConfigFile(img, r.mergeConfig(cf.DeepCopy(), p))
}

// mergeConfig merges the recipe over the configuration of the base image.
func (r Recipe) mergeConfig(cf *v1.ConfigFile, p v1.Platform) *v1.ConfigFile {
	cf.OS, cf.Architecture, cf.Variant, cf.OSVersion = p.OS, p.Architecture, p.Variant, p.OSVersion
	cf.Created = v1.Time{Time: r.Created}
	cf.Author = ""
	if len(r.Entrypoint) > 0 {
		cf.Config.Entrypoint, cf.Config.Cmd = r.Entrypoint, nil
	}
	if len(r.Env) > 0 || len(cf.Config.Env) == 0 {
		cf.Config.Env = append([]string{SearchPath}, r.Env...)
	}
	if r.User != "" {
		cf.Config.User = r.User
	}
	if r.WorkingDir != "" {
		cf.Config.WorkingDir = r.WorkingDir
	}
	// The labels of the base image describe the base image only.
	cf.Config.Labels = maps.Clone(r.Labels)
	return cf
}
