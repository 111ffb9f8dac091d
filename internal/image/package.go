// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// PackageDir is the directory of the package in a package image. PackageSums lists the SHA-256 of each of its files, as
// sha256sum does: (cd / && sha256sum -c skyhook-package.sha256).
const (
	PackageDir  = "/skyhook-package"
	PackageSums = "/skyhook-package.sha256"
)

// Package returns the recipe of a package image: the directory, at /skyhook-package, on an image that has /bin/sh, cp and
// mkdir. Title and version come from config.json, which is not validated here.
func Package(dir string, shell Named) (Recipe, error) {
	title, version, err := readIdentity(dir)
	if err != nil {
		return Recipe{}, err
	}
	files := &Tree{}
	if err := files.HostDir(PackageDir, dir, NotForHosts); err != nil {
		return Recipe{}, err
	}
	sums, err := files.checksumFile()
	if err != nil {
		return Recipe{}, fmt.Errorf("reading package %s: %w", dir, err)
	}
	files.Bytes(PackageSums, 0o644, sums)
	return Recipe{
		From: shell.Index, FromName: shell.Name,
		Trees:  func(v1.Platform) ([]*Tree, error) { return []*Tree{files}, nil },
		Labels: About{Title: title, Version: version}.Labels(),
	}, nil
}

// readIdentity returns the name and version in a package's config.json.
func readIdentity(dir string) (title, version string, err error) {
	file := filepath.Join(dir, "config.json")
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", "", fmt.Errorf("folder %s is not a package: it has no config.json", dir)
	}
	if err != nil {
		return "", "", fmt.Errorf("reading package %s: %w", dir, err)
	}
	var config struct {
		Name    string `json:"package_name"`
		Version string `json:"package_version"`
	}
	if err := json.Unmarshal(raw, &config); err != nil {
		return "", "", fmt.Errorf("reading package %s: %w", file, err)
	}
	if config.Name == "" {
		return "", "", fmt.Errorf("%s: package_name is missing; write the name of the package", file)
	}
	if config.Version == "" {
		return "", "", fmt.Errorf("%s: package_version is missing; write the version, e.g. 1.0.0", file)
	}
	return config.Name, config.Version, nil
}

// NotForHosts reports whether a file beside a package is only for its author. All others reach every node.
func NotForHosts(name string) bool {
	file := path.Base(name)
	switch file {
	case ".git", ".gitignore", ".gitattributes", ".github", ".dockerignore", "Dockerfile", ".DS_Store", "testdata":
		return true
	}
	return strings.HasSuffix(file, "_test.go")
}
