// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"text/template"
)

// writeKrewManifest fills in .krew.yaml with the checksums of the archives, for `kubectl krew install --manifest` and for
// the index of kubectl plugins. A release without the archives of all platforms has no manifest.
func (r *release) writeKrewManifest() error {
	for _, platform := range platforms {
		base, extension, _ := archiveName(r.version, platform)
		if _, err := os.Stat(filepath.Join(r.out, base+extension)); os.IsNotExist(err) {
			return nil
		}
	}
	text, err := os.ReadFile(filepath.Join(r.root, ".krew.yaml"))
	if err != nil {
		return fmt.Errorf("reading the krew manifest: %w", err)
	}
	manifest, err := fillKrewManifest(text, r.version, func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(r.out, name)) })
	if err != nil {
		return err
	}
	return r.writeFile("skyhook.yaml", manifest)
}

// fillKrewManifest does what krew-release-bot does with .krew.yaml. It reads the archives by their file names.
func fillKrewManifest(text []byte, version string, readArchive func(name string) ([]byte, error)) ([]byte, error) {
	values := map[string]string{"TagName": version}
	fill := template.FuncMap{"addURIAndSha": func(url, _ string) (string, error) {
		uri, err := expandTemplate(url, nil, values)
		if err != nil {
			return "", err
		}
		content, err := readArchive(path.Base(string(uri)))
		// The bot writes sha256 with four blanks.
		return fmt.Sprintf("uri: %s\n    sha256: %x", uri, sha256.Sum256(content)), err
	}}
	return expandTemplate(string(text), fill, values)
}

func expandTemplate(text string, funcs template.FuncMap, values map[string]string) ([]byte, error) {
	t, err := template.New("").Funcs(funcs).Option("missingkey=error").Parse(text)
	if err != nil {
		return nil, fmt.Errorf("reading the template of the krew manifest: %w", err)
	}
	var out bytes.Buffer
	if err := t.Execute(&out, values); err != nil {
		return nil, fmt.Errorf("filling in the krew manifest: %w", err)
	}
	return out.Bytes(), nil
}
