// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/skyhook-k8s/skyhook/test/cluster/registry"
)

// What manifests name: Images and PackageRepository are ours, as internal/published has it.
const (
	Images            = "ghcr.io/skyhook-k8s/skyhook"
	PackageRepository = Images + "/packages/"
	ToolsImage        = "busybox:1.36" // the busybox of this machine, as is busybox:latest, the default of NodeOps
	// KairosImage upgrades hosts to KairosVersion: its agent records its arguments and copies its release file to the host.
	KairosImage   = "quay.io/kairos/opensuse:leap-15.6-standard-amd64-generic-v3.4.2-k3sv1.30.11-k3s1"
	KairosVersion = "v3.4.2-k3sv1.30.11+k3s1"
	// KairosRelease is the release file of a host with KairosVersion.
	KairosRelease = "KAIROS_VERSION=v3.4.2\nKAIROS_SOFTWARE_VERSION_PREFIX=k3s\nKAIROS_SOFTWARE_VERSION=v1.30.11+k3s1\n"
)

// archives are the names under which manifests refer to the images that `make image` writes.
var archives = map[string][]string{
	"operator":             {Images + "/operator:" + ChartTag},
	"agent":                {Images + "/agent:" + ChartTag},
	"pause":                {"registry.k8s.io/pause:3.10"}, // a program without a version, in the place of Kubernetes'
	"shell":                {"private-registry.example.com/kairos/opensuse:leap-15.6-standard-amd64-generic-v3.4.2-k3sv1.30.11-k3s1"},
	"packages-shellscript": packageNames("shellscript", "1.0.0", "1.1.0", "1.2.0", "2.0.0", "2.1.0"),
	"packages-tuning":      packageNames("tuning", "1.2.0", "2.0.0", "2.1.0"),
	"packages-os-update":   packageNames("os-update", "1.0.0"),
	"packages-tuned":       packageNames("tuned", "1.3.0", "2.0.0", "2.1.0"),
}

func packageNames(name string, versions ...string) (names []string) {
	for _, v := range versions {
		names = append(names, PackageRepository+name+":"+v)
	}
	return names
}

// imageSet is what was pushed.
type imageSet struct {
	dir     string // of the archives
	digests map[string]string
	pairs   []string // repositories in manifests, each followed by the one it was pushed to
}

// ImageDigest returns the digest of an image that was pushed.
func (c *Cluster) ImageDigest(image string) string { return c.images.digests[image] }

// PackageImage returns the image of a package of ours for this machine's architecture.
func (c *Cluster) PackageImage(t *testing.T, name string) v1.Image {
	t.Helper()
	content, remove, err := registry.Open(filepath.Join(c.images.dir, "packages-"+name+".tar"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(remove)
	found, err := findImage(content)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// foreignImages are pairs for a replacer of texts; there are none on a cluster of ours.
func (c *Cluster) foreignImages() []string {
	if c.images == nil {
		return nil
	}
	return c.images.pairs
}

// pushImages pushes all images to the registry that nodes pull from.
func (c *Cluster) pushImages(ctx context.Context) error {
	c.images = &imageSet{digests: map[string]string{}}
	dir := os.Getenv("SKYHOOK_E2E_IMAGES")
	if dir == "" {
		dir = c.dir
		cmd := exec.CommandContext(ctx, "go", "run", "./hack/mkimage", "--only", "operator,agent,shell,pause,packages", "--out", dir)
		if cmd.Dir = Root(); c.IsOurs() {
			cmd.Args = append(cmd.Args, "--platform", "linux/"+runtime.GOARCH)
		}
		if _, err := runCommand(cmd); err != nil {
			return err
		}
	}
	c.images.dir = dir
	for archive, names := range archives {
		content, remove, err := registry.Open(filepath.Join(dir, archive+".tar"))
		if err != nil {
			return err
		}
		for _, name := range names {
			err = errors.Join(err, c.push(ctx, name, content))
		}
		if archive == "shell" {
			err = errors.Join(err, c.pushKairos(ctx, content))
		}
		remove()
		if err != nil {
			return err
		}
	}
	tools, err := registry.Tools()
	if err != nil {
		return err
	}
	return errors.Join(c.push(ctx, ToolsImage, tools), c.push(ctx, "busybox:latest", tools))
}

// PushArchive pushes an image that is in an archive.
func (c *Cluster) PushArchive(t *testing.T, archive, image string) {
	t.Helper()
	content, remove, err := registry.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer remove()
	if err := c.push(t.Context(), image, content); err != nil {
		t.Fatal(err)
	}
}

// push pushes an image under the name that manifests use, or below the prefix of a foreign registry.
func (c *Cluster) push(ctx context.Context, image string, content partial.Describable) error {
	digest, err := content.(interface{ Digest() (v1.Hash, error) }).Digest()
	if err != nil {
		return err
	}
	c.images.digests[image] = digest.String()
	if c.IsOurs() {
		_, err := c.cluster.Push(ctx, image, content)
		return err
	}
	repository, tag, _ := strings.Cut(image, ":")
	flat := strings.ReplaceAll(repository, "/", "-")
	prefix := os.Getenv("SKYHOOK_E2E_REGISTRY")
	c.images.pairs = append(c.images.pairs, repository+":", prefix+"/"+flat+":")
	if strings.Contains(repository, "/") { // image and version of a package are two fields
		c.images.pairs = append(c.images.pairs, repository, prefix+"/"+flat)
	}
	if p := os.Getenv("SKYHOOK_E2E_PUSH"); p != "" {
		prefix = p
	}
	ref, err := name.ParseReference(prefix + "/" + flat + ":" + tag)
	if err != nil {
		return err
	}
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	if index, ok := content.(v1.ImageIndex); ok {
		return remote.WriteIndex(ref, index, options...)
	}
	return remote.Write(ref, content.(v1.Image), options...)
}

// pushKairos pushes an image that looks like Kairos to an upgrade.
func (c *Cluster) pushKairos(ctx context.Context, shell partial.Describable) error {
	base, err := findImage(shell)
	if err != nil {
		return err
	}
	script := func(text string) registry.File {
		return registry.File{Content: []byte("#!/bin/sh\n" + text), Mode: 0o755}
	}
	added, err := registry.Image(map[string]registry.File{
		"etc/kairos-release": {Content: []byte(KairosRelease), Mode: 0o644},
		"bin/kairos-agent":   script("if [ \"$2\" = --help ]; then echo --exclude-path; exit 0; fi\necho \"$@\" >> /host/var/log/kairos-agent\ncp /etc/kairos-release /host/etc/kairos-release\n"),
		"bin/mount":          script("true\n"),
		"bin/grep":           script("cat > /dev/null\n"),
	})
	if err != nil {
		return err
	}
	layers, err := added.Layers()
	if err != nil {
		return err
	}
	image, err := mutate.AppendLayers(base, layers...)
	if err != nil {
		return err
	}
	return c.push(ctx, KairosImage, image)
}

// findImage finds the image of this machine's architecture.
func findImage(content any) (v1.Image, error) {
	switch content := content.(type) {
	case v1.Image:
		return content, nil
	case v1.ImageIndex:
		images, err := partial.FindImages(content, func(d v1.Descriptor) bool {
			return d.Platform != nil && d.Platform.Architecture == runtime.GOARCH
		})
		if err == nil && len(images) > 0 {
			return images[0], nil
		}
	}
	return nil, fmt.Errorf("%T holds no image for %s", content, runtime.GOARCH)
}
