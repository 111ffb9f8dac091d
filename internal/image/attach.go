// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Artifact is a document about an image that is stored beside it, such as an SBOM. Registries
// find it by the digest of the image: it is a referrer.
type Artifact struct {
	Type    string // of the document, such as application/spdx+json
	Content []byte
}

// Blob is content with its media type.
type Blob struct {
	Type    string
	Content []byte
}

// emptyType and emptyContent replace the configuration of an image.
const (
	emptyType    = "application/vnd.oci.empty.v1+json"
	emptyContent = "{}"
)

// toImage returns the artifact as an image manifest with this subject.
func (a Artifact) toImage(subject v1.Descriptor) (v1.Image, error) {
	return newManifest(v1.Manifest{ArtifactType: a.Type, Subject: &subject}, Blob{emptyType, []byte(emptyContent)}, Blob(a))
}

// newManifest completes a manifest with a configuration and one layer.
func newManifest(m v1.Manifest, config, layer Blob) (v1.Image, error) {
	all := blobs{}
	hold := func(b Blob) v1.Descriptor {
		is := sha256.Sum256(b.Content)
		all[sha256Hash(is[:])] = b.Content
		return v1.Descriptor{MediaType: types.MediaType(b.Type), Size: int64(len(b.Content)), Digest: sha256Hash(is[:])}
	}
	m.SchemaVersion, m.MediaType, m.Config, m.Layers = 2, types.OCIManifestSchema1, hold(config), []v1.Descriptor{hold(layer)}
	raw, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	return all.readImage(hold(Blob{string(types.OCIManifestSchema1), raw}))
}

// attachTo returns the artifact with an index as its subject.
func (a Artifact) attachTo(idx v1.ImageIndex) (v1.Image, v1.Hash, error) {
	subject, err := partial.Descriptor(idx)
	if err != nil {
		return nil, v1.Hash{}, fmt.Errorf("attaching %s: %w", a.Type, err)
	}
	img, err := a.toImage(v1.Descriptor{MediaType: subject.MediaType, Size: subject.Size, Digest: subject.Digest})
	if err != nil {
		return nil, v1.Hash{}, fmt.Errorf("attaching %s: %w", a.Type, err)
	}
	digest, err := img.Digest()
	if err != nil {
		return nil, v1.Hash{}, fmt.Errorf("attaching %s: %w", a.Type, err)
	}
	return img, digest, nil
}

// Attach stores an artifact about an index of the registry and returns its reference. Attaching the same one again
// changes nothing.
func (g Registry) Attach(ctx context.Context, ref string, idx v1.ImageIndex, a Artifact) (string, error) {
	r, err := g.Reference(ref)
	if err != nil {
		return "", err
	}
	img, digest, err := a.attachTo(idx)
	if err != nil {
		return "", err
	}
	to := r.Context().Digest(digest.String())
	if err := remote.Write(to, img, g.RemoteOptions(ctx)...); err != nil {
		return "", fmt.Errorf("attaching %s to %s: %w", a.Type, ref, err)
	}
	return to.Name(), nil
}

// AttachInLayout stores an artifact about an index in the OCI layout folder that holds it.
func AttachInLayout(dir string, idx v1.ImageIndex, a Artifact) error {
	img, _, err := a.attachTo(idx)
	if err != nil {
		return err
	}
	at, err := layout.FromPath(dir)
	if err == nil {
		err = at.AppendImage(img)
	}
	if err != nil {
		return fmt.Errorf("attaching %s in layout %s: %w", a.Type, dir, err)
	}
	return nil
}

// Attached returns references to the artifacts of a type about an image of a registry.
func (g Registry) Attached(ctx context.Context, ref string, digest v1.Hash, artifactType string) ([]string, error) {
	r, err := g.Reference(ref)
	if err != nil {
		return nil, err
	}
	list, err := remote.Referrers(r.Context().Digest(digest.String()), g.RemoteOptions(ctx)...)
	if err != nil {
		return nil, fmt.Errorf("looking for %s attached to %s: %w", artifactType, ref, err)
	}
	manifest, err := list.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("looking for %s attached to %s: %w", artifactType, ref, err)
	}
	var out []string
	for _, d := range manifest.Manifests {
		at := r.Context().Digest(d.Digest.String())
		is := d.ArtifactType
		if is == emptyType { // of registries that know the older rule only, which took the type of the configuration
			if is, err = g.artifactType(ctx, at); err != nil {
				return nil, err
			}
		}
		if is == artifactType {
			out = append(out, at.Name())
		}
	}
	return out, nil
}

func (g Registry) artifactType(ctx context.Context, at name.Digest) (string, error) {
	d, err := remote.Get(at, g.RemoteOptions(ctx)...)
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", at, err)
	}
	var m v1.Manifest
	if err := json.Unmarshal(d.Manifest, &m); err != nil {
		return "", fmt.Errorf("reading %s: %w", at, err)
	}
	return m.ArtifactType, nil
}

// Artifact reads an artifact that Attached returned.
func (g Registry) Artifact(ctx context.Context, ref string) (Artifact, error) {
	r, err := g.Reference(ref)
	if err != nil {
		return Artifact{}, err
	}
	img, err := remote.Image(r, g.RemoteOptions(ctx)...)
	if err != nil {
		return Artifact{}, fmt.Errorf("reading %s: %w", ref, err)
	}
	m, err := img.Manifest()
	if err != nil {
		return Artifact{}, fmt.Errorf("reading %s: %w", ref, err)
	}
	if len(m.Layers) != 1 {
		return Artifact{}, fmt.Errorf("reading %s: it has %d parts and is not one document", ref, len(m.Layers))
	}
	layer, err := img.LayerByDigest(m.Layers[0].Digest)
	if err != nil {
		return Artifact{}, fmt.Errorf("reading %s: %w", ref, err)
	}
	in, err := layer.Compressed()
	if err = cmp.Or(err, new(Budget).Add(1, m.Layers[0].Size)); err != nil {
		return Artifact{}, fmt.Errorf("reading %s: %w", ref, err)
	}
	defer in.Close()
	content, err := io.ReadAll(in)
	if err != nil {
		return Artifact{}, fmt.Errorf("reading %s: %w", ref, err)
	}
	return Artifact{Type: string(m.Layers[0].MediaType), Content: content}, nil
}
