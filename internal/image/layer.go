// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"maps"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// layer is compressed once and kept, so that its digest matches its content even when a file changes meanwhile.
type layer struct {
	blob           []byte
	digest, diffID v1.Hash
}

// buildLayer packs the tree: entries are sorted, owned by root, and have the same time.
func (t *Tree) buildLayer(created time.Time) (*layer, error) {
	all, err := t.withFolders()
	if err != nil {
		return nil, err
	}
	var blob bytes.Buffer
	inner := sha256.New()
	zip, err := gzip.NewWriterLevel(&blob, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	out := tar.NewWriter(io.MultiWriter(inner, zip))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if err := writeTarEntry(out, name, all[name], created); err != nil {
			return nil, fmt.Errorf("packing /%s: %w", name, err)
		}
	}
	if err := errors.Join(out.Close(), zip.Close()); err != nil {
		return nil, fmt.Errorf("packing a layer: %w", err)
	}
	outer := sha256.Sum256(blob.Bytes())
	return &layer{blob: blob.Bytes(), digest: sha256Hash(outer[:]), diffID: finishHash(inner)}, nil
}

func writeTarEntry(out *tar.Writer, name string, e entry, created time.Time) error {
	h := &tar.Header{Name: name, ModTime: created, Mode: int64(e.mode.Perm()), Typeflag: tar.TypeReg}
	if e.mode&fs.ModeSticky != 0 {
		h.Mode |= 0o1000
	}
	switch e.mode.Type() {
	case fs.ModeDir:
		h.Name, h.Typeflag = name+"/", tar.TypeDir
		return out.WriteHeader(h)
	case fs.ModeSymlink:
		h.Typeflag, h.Linkname = tar.TypeSymlink, e.link
		return out.WriteHeader(h)
	}
	content, size, err := e.openContent()
	if err != nil {
		return err
	}
	h.Size = size
	if err := out.WriteHeader(h); err != nil {
		return errors.Join(err, content.Close())
	}
	if _, err := io.CopyN(out, content, size); err != nil {
		return errors.Join(fmt.Errorf("the file changed while it was read: %w", err), content.Close())
	}
	return content.Close()
}

func sha256Hash(b []byte) v1.Hash { return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(b)} }

func finishHash(h hash.Hash) v1.Hash { return sha256Hash(h.Sum(nil)) }

// Digest returns the digest of the compressed layer.
func (l *layer) Digest() (v1.Hash, error) { return l.digest, nil }

// DiffID returns the digest of the uncompressed layer.
func (l *layer) DiffID() (v1.Hash, error) { return l.diffID, nil }

// Size returns the size of the compressed layer.
func (l *layer) Size() (int64, error) { return int64(len(l.blob)), nil }

// MediaType returns the type of a compressed tar.
func (l *layer) MediaType() (types.MediaType, error) { return types.OCILayer, nil }

// Compressed returns the layer as it is stored.
func (l *layer) Compressed() (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(l.blob)), nil
}

// Uncompressed returns the tar.
func (l *layer) Uncompressed() (io.ReadCloser, error) { return gzip.NewReader(bytes.NewReader(l.blob)) }
