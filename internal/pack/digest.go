// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
)

// ConfigDigest is the digest of a configMap's keys and values: 64 hex digits.
// No two different maps share one, and none at all equals an empty one.
func ConfigDigest(config map[string]string) string {
	h := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(config)) {
		writeFramed(h, key)
		writeFramed(h, config[key])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// ConfigDigestFS is the ConfigDigest of a mounted configMap or of a copy of
// one: each file of the folder is a key. Folders are no keys, and names that
// start with ".." are the kubelet's own. A folder that is not there is empty.
func ConfigDigestFS(dir fs.FS) (string, error) {
	entries, err := fs.ReadDir(dir, ".")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("reading the config files: %w", err)
	}
	config := map[string]string{}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "..") {
			continue
		}
		if info, err := fs.Stat(dir, e.Name()); err == nil && info.IsDir() {
			continue
		}
		content, err := fs.ReadFile(dir, e.Name())
		if err != nil {
			return "", fmt.Errorf("reading the config file %s: %w", e.Name(), err)
		}
		config[e.Name()] = string(content)
	}
	return ConfigDigest(config), nil
}

// writeFramed writes s after its length, so that no two lists of strings meet.
func writeFramed(w io.Writer, s string) {
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(len(s)))
	_, _ = w.Write(n[:]) // a hash takes everything
	_, _ = io.WriteString(w, s)
}
