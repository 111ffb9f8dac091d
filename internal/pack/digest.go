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
		WriteFramed(h, key, config[key])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// ConfigDigestFS is the ConfigDigest of what ReadConfigMap reads.
func ConfigDigestFS(dir fs.FS) (string, error) {
	config, err := ReadConfigMap(dir)
	return ConfigDigest(config), err
}

// ReadConfigMap is what ReadMounted reads, without the modes.
func ReadConfigMap(dir fs.FS) (map[string]string, error) {
	config := map[string]string{}
	files, err := ReadMounted(dir)
	for key, f := range files {
		config[key] = string(f.Content)
	}
	return config, err
}

// MaxConfig bounds the files of one folder of config, which are in memory together. A ConfigMap has at most 1 MiB.
const MaxConfig = 4 << 20

// MountedFile is a file of a mounted configMap, or of a copy of one.
type MountedFile struct {
	Content []byte
	Mode    fs.FileMode
}

// ReadMounted reads a mounted configMap or a copy of one: each file of the
// folder is a key. Folders are no keys, and names that start with ".." are the
// kubelet's own. A folder that is not there is empty.
func ReadMounted(dir fs.FS) (map[string]MountedFile, error) {
	entries, err := fs.ReadDir(dir, ".")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the config files: %w", err)
	}
	files, left := map[string]MountedFile{}, int64(MaxConfig)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "..") {
			continue
		}
		st, err := fs.Stat(dir, e.Name()) // of the target of a link
		if err == nil && !st.Mode().IsRegular() {
			continue
		}
		var content []byte
		if err == nil {
			content, err = readAtMost(dir, e.Name(), left+1)
		}
		if left -= int64(len(content)); left < 0 && err == nil {
			err = fmt.Errorf("with it the files of its folder have more than %d MiB", MaxConfig>>20)
		}
		if err != nil {
			return nil, fmt.Errorf("reading the config file %s: %w", e.Name(), err)
		}
		files[e.Name()] = MountedFile{content, st.Mode()}
	}
	return files, nil
}

// WriteFramed writes each text after its length, so that no two lists of texts meet.
func WriteFramed(w io.Writer, texts ...string) {
	for _, text := range texts {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(text)))
		_, _ = w.Write(n[:]) // a hash never fails
		_, _ = io.WriteString(w, text)
	}
}
