// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"time"
)

// member is a file of an archive.
type member struct {
	name       string
	content    []byte
	executable bool
}

func (m member) mode() int64 {
	if m.executable {
		return 0o755
	}
	return 0o644
}

// epoch is the time that every member bears. The format zip knows none before 1980.
var epoch = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

// writeTarball packs files in the order given; nothing of this machine shows in it.
func writeTarball(members []member) ([]byte, error) {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, fmt.Errorf("packing: %w", err)
	}
	t := tar.NewWriter(z)
	for _, m := range members {
		h := &tar.Header{Name: m.name, Mode: m.mode(), Size: int64(len(m.content)), ModTime: epoch, Format: tar.FormatPAX}
		if err := t.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("packing %s: %w", m.name, err)
		}
		if _, err := t.Write(m.content); err != nil {
			return nil, fmt.Errorf("packing %s: %w", m.name, err)
		}
	}
	if err := errors.Join(t.Close(), z.Close()); err != nil {
		return nil, fmt.Errorf("packing: %w", err)
	}
	return out.Bytes(), nil
}

func writeZip(members []member) ([]byte, error) {
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for _, m := range members {
		w, err := z.CreateHeader(&zip.FileHeader{Name: m.name, Method: zip.Deflate, Modified: epoch})
		if err != nil {
			return nil, fmt.Errorf("packing %s: %w", m.name, err)
		}
		if _, err := w.Write(m.content); err != nil {
			return nil, fmt.Errorf("packing %s: %w", m.name, err)
		}
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("packing: %w", err)
	}
	return out.Bytes(), nil
}
