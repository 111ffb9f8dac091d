// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package signing

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// payloadType is the media type of what is signed.
const payloadType = "application/vnd.dev.cosign.simplesigning.v1+json"

// maxPayload bounds what is read of a payload: a registry is not trusted.
const maxPayload = 1 << 20

// Store has the signatures of one repository.
type Store struct {
	Options []remote.Option // of the registry
}

// tagOf is where the signatures of an image are.
func tagOf(image name.Digest) name.Tag {
	return image.Context().Tag(strings.Replace(image.DigestStr(), ":", "-", 1) + ".sig")
}

// List reads the signatures of an image; none when there is no tag for them.
func (s Store) List(ctx context.Context, image name.Digest) ([]Signature, error) {
	img, err := s.read(ctx, image)
	if err != nil || img == nil {
		return nil, err
	}
	manifest, err := img.Manifest()
	if err != nil {
		return nil, fmt.Errorf("reading the signatures of %s: %w", image, err)
	}
	var out []Signature
	for _, layer := range manifest.Layers {
		if layer.MediaType != payloadType {
			continue
		}
		found, err := readSignature(img, layer)
		if err != nil {
			return nil, fmt.Errorf("reading the signatures of %s: %w", image, err)
		}
		out = append(out, found)
	}
	return out, nil
}

// read returns the image that has the signatures; nil when there is none.
func (s Store) read(ctx context.Context, image name.Digest) (v1.Image, error) {
	img, err := remote.Image(tagOf(image), append(s.Options, remote.WithContext(ctx))...)
	var refused *transport.Error
	if errors.As(err, &refused) && refused.StatusCode == http.StatusNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the signatures of %s: %w", image, err)
	}
	return img, nil
}

func readSignature(img v1.Image, d v1.Descriptor) (Signature, error) {
	value, err := base64.StdEncoding.DecodeString(d.Annotations[annotationSignature])
	if err != nil {
		return Signature{}, err
	}
	layer, err := img.LayerByDigest(d.Digest)
	if err != nil {
		return Signature{}, err
	}
	in, err := layer.Compressed()
	if err != nil {
		return Signature{}, err
	}
	defer in.Close()
	signed, err := io.ReadAll(io.LimitReader(in, maxPayload+1))
	if err != nil {
		return Signature{}, err
	}
	if len(signed) > maxPayload {
		return Signature{}, fmt.Errorf("layer %s has more than %d bytes", d.Digest, maxPayload)
	}
	return Signature{
		Payload: signed, Value: value,
		Certificate: d.Annotations[annotationCertificate], Chain: d.Annotations[annotationChain], LogEntry: d.Annotations[annotationBundle],
	}, nil
}

// Add stores a signature beside those that the image has, and returns where.
func (s Store) Add(ctx context.Context, image name.Digest, add Signature) (string, error) {
	base, err := s.read(ctx, image)
	if err != nil {
		return "", err
	}
	if base == nil {
		base = mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	}
	annotations := map[string]string{annotationSignature: base64.StdEncoding.EncodeToString(add.Value)}
	for key, value := range map[string]string{annotationCertificate: add.Certificate, annotationChain: add.Chain, annotationBundle: add.LogEntry} {
		if value != "" {
			annotations[key] = value
		}
	}
	img, err := mutate.Append(base, mutate.Addendum{Layer: static.NewLayer(add.Payload, payloadType), MediaType: payloadType, Annotations: annotations})
	if err == nil {
		err = remote.Write(tagOf(image), img, append(s.Options, remote.WithContext(ctx))...)
	}
	if err != nil {
		return "", fmt.Errorf("storing the signature of %s: %w", image, err)
	}
	return tagOf(image).Name(), nil
}
