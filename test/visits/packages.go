// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/skyhook-k8s/skyhook/internal/image"
	"github.com/skyhook-k8s/skyhook/internal/published"
)

const (
	packages       = 5
	packageRelease = "1.2.0"
)

// pushPackages pushes one image per package: the package shellscript with a file that no other has.
func (c *testCluster) pushPackages(ctx context.Context) error {
	named, err := image.ReadFile(filepath.Join(c.dir, "packages-shellscript.tar"))
	if err != nil {
		return err
	}
	base, err := image.ForPlatform(named[0].Index, v1.Platform{OS: "linux", Architecture: runtime.GOARCH})
	if err != nil {
		return err
	}
	for i := range packages {
		img, err := addFile(base, "skyhook-package/visits", packageName(i))
		if err != nil {
			return err
		}
		ref := published.Images + "/packages/" + packageName(i) + ":" + packageRelease
		file := filepath.Join(c.dir, packageName(i)+".tar")
		index := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: "linux", Architecture: runtime.GOARCH}}})
		if err := image.WriteArchiveFile(file, image.Named{Name: ref, Index: index}); err != nil {
			return err
		}
		if _, err := c.run(ctx, "image", "push", file, ref); err != nil {
			return err
		}
	}
	return nil
}

func packageName(i int) string { return "visits-" + string(rune('a'+i)) }

// addFile adds a layer with one file to an image.
func addFile(base v1.Image, name, content string) (v1.Image, error) {
	var text bytes.Buffer
	w := tar.NewWriter(&text)
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}); err != nil {
		return nil, err
	}
	if _, err := io.WriteString(w, content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text.Bytes())), nil })
	if err != nil {
		return nil, err
	}
	return mutate.AppendLayers(base, layer)
}

// kinds are what is done on the nodes.
var kinds = []struct {
	name, title string
	packages    int
	interrupt   string // of the last package
}{
	{"chain", "5 packages in a chain", packages, ""},
	{"reboot", "5 packages in a chain, and a reboot", packages, "{type: reboot}"},
	{"service", "1 package that restarts a service", 1, "{type: service, services: [cron]}"},
}

func kindNames() (names []string) {
	for _, k := range kinds {
		names = append(names, k.name)
	}
	return names
}

// manifest is a Skyhook whose packages depend on each other.
func manifest(name, kind string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: skyhook.nvidia.com/v1alpha1\nkind: Skyhook\nmetadata: {name: %s}\nspec:\n", name)
	fmt.Fprintf(&b, "  nodeSelectors: {matchLabels: {%s: \"true\"}}\n  interruptionBudget: {count: 1}\n", nodeLabel)
	b.WriteString("  packages:\n")
	for _, k := range kinds {
		if k.name != kind {
			continue
		}
		for i := range k.packages {
			fmt.Fprintf(&b, "    %[1]s:\n      version: %[2]s\n      image: %[3]s/packages/%[1]s\n", packageName(i), packageRelease, published.Images)
			fmt.Fprintf(&b, "      configMap:\n        apply.sh: \"#!/bin/sh\\necho %[1]s > /visits-%[1]s\\n\"\n        apply_check.sh: \"#!/bin/sh\\ncat /visits-%[1]s\\n\"\n"+
				"        config.sh: \"#!/bin/sh\\necho %[1]s >> /visits-%[1]s\\n\"\n", packageName(i))
			if i > 0 {
				fmt.Fprintf(&b, "      dependsOn: {%s: %s}\n", packageName(i-1), packageRelease)
			}
			if i == k.packages-1 && k.interrupt != "" {
				fmt.Fprintf(&b, "      interrupt: %s\n", k.interrupt)
			}
		}
	}
	return b.String()
}
