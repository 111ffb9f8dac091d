// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"cmp"
	"context"
	"fmt"
	"net/http"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Registry configures the connection to a registry. The zero value uses TLS, and the credentials that
// `docker login` and `podman login` store.
type Registry struct {
	PlainHTTP bool // HTTP is allowed where a registry does not speak TLS
	Overwrite bool // a tag may be moved from another image
	Keychain  authn.Keychain
	Transport http.RoundTripper
}

// RemoteOptions returns how requests to the registry are made.
func (g Registry) RemoteOptions(ctx context.Context) []remote.Option {
	keys := g.Keychain
	if keys == nil {
		keys = authn.DefaultKeychain
	}
	opts := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(keys), remote.WithUserAgent("skyhook")}
	if g.Transport != nil {
		opts = append(opts, remote.WithTransport(g.Transport))
	}
	return opts
}

// Reference checks an image reference.
func (g Registry) Reference(ref string) (name.Reference, error) {
	opts := []name.Option{name.WeakValidation}
	if g.PlainHTTP {
		opts = append(opts, name.Insecure)
	}
	r, err := name.ParseReference(ref, opts...)
	if err != nil {
		return nil, fmt.Errorf("image reference %q cannot be read; write registry/repository:tag: %w", ref, err)
	}
	return r, nil
}

// Push writes an index under a reference and returns the reference by digest. A tag of another image is an error.
func (g Registry) Push(ctx context.Context, ref string, idx v1.ImageIndex) (string, error) {
	r, err := g.Reference(ref)
	if err != nil {
		return "", err
	}
	digest, err := idx.Digest()
	there, _ := remote.Head(r, g.RemoteOptions(ctx)...) // registries have several answers for what is not there
	if there != nil && there.Digest != digest && !g.Overwrite {
		return "", fmt.Errorf("pushing %s: it is published as %s, and nodes that have it would not notice %s: raise the version, or add --overwrite", ref, there.Digest, digest)
	}
	if err = cmp.Or(err, remote.WriteIndex(r, idx, g.RemoteOptions(ctx)...)); err != nil {
		return "", fmt.Errorf("pushing %s: %w", ref, err)
	}
	return r.Context().Digest(digest.String()).Name(), nil
}

// Pull finds the index of a reference; its blobs are fetched when they are read. A single image comes as an index of
// its own.
func (g Registry) Pull(ctx context.Context, ref string) (v1.ImageIndex, error) {
	r, err := g.Reference(ref)
	if err != nil {
		return nil, err
	}
	d, err := remote.Get(r, g.RemoteOptions(ctx)...)
	if err != nil {
		return nil, fmt.Errorf("pulling %s: %w", ref, err)
	}
	if d.MediaType.IsIndex() {
		return d.ImageIndex()
	}
	img, err := d.Image()
	if err != nil {
		return nil, fmt.Errorf("pulling %s: %w", ref, err)
	}
	return singleImageIndex(img)
}

// singleImageIndex returns an index of one image.
func singleImageIndex(img v1.Image) (v1.ImageIndex, error) {
	cf, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("reading the configuration of an image: %w", err)
	}
	p := cf.Platform()
	return mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex),
		mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: p}}), nil
}
