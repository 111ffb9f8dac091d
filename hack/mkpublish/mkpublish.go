// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Mkpublish pushes a release that mkimage and mkrelease have built: its images with their lists of contents as OCI referrers, and its
// chart. It builds nothing, so that what is published is what was checked. It writes the reference by digest of each to a file,
// for what signs them.
//
//	go run ./hack/mkpublish --images ghcr.io/skyhook-k8s/skyhook --charts ghcr.io/skyhook-k8s/charts
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"sigs.k8s.io/yaml"

	"github.com/skyhook-k8s/skyhook/internal/image"
)

// The media types of a chart in a registry, which Helm defines, and of a list of contents.
const (
	chartConfigType = "application/vnd.cncf.helm.config.v1+json"
	chartType       = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
	sbomType        = "application/spdx+json"
)

// What Artifact Hub looks for beside a chart: https://artifacthub.io/docs/topics/repositories/helm-charts/#oci-support
const (
	hubFile       = "artifacthub-repo.yml"
	hubConfigType = "application/vnd.cncf.artifacthub.config.v1+yaml"
	hubType       = "application/vnd.cncf.artifacthub.repository-metadata.layer.v1.yaml"
)

// builtPrefix is the repository that mkimage writes into archives.
const builtPrefix = "ghcr.io/skyhook-k8s/skyhook/"

type publisher struct {
	root, from, images, charts, list, sums string
	registry                               image.Registry
	published                              []string // references by digest
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "mkpublish: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	var p publisher
	f := flag.NewFlagSet("mkpublish", flag.ContinueOnError)
	f.StringVar(&p.root, "module", ".", "the root `folder` of this repository")
	f.StringVar(&p.from, "from", "dist/release", "the `folder` of the release")
	f.StringVar(&p.images, "images", "", "push the images below this `repository`")
	f.StringVar(&p.charts, "charts", "", "push the chart below this `repository`")
	f.StringVar(&p.list, "list", "dist/published.txt", "the `file` for the references by digest")
	f.StringVar(&p.sums, "sums", "dist/published.sha256", "the `file` for the digests and repositories, as sha256sum writes it, for those who attest them")
	f.BoolVar(&p.registry.PlainHTTP, "plain-http", false, "push to a registry without TLS")
	if err := f.Parse(args); err != nil {
		return err
	}
	if p.images == "" || p.charts == "" {
		return errors.New("name the repositories with --images and --charts")
	}
	if err := p.pushImages(ctx); err != nil {
		return err
	}
	if err := p.pushChart(ctx); err != nil {
		return err
	}
	return p.writeLists()
}

// writeLists writes the references by digest, and the same as checksums.
func (p *publisher) writeLists() error {
	var sums strings.Builder
	for _, ref := range p.published {
		repository, digest, isFound := strings.Cut(ref, "@sha256:")
		if !isFound {
			return fmt.Errorf("%s was pushed without a SHA-256 digest", ref)
		}
		fmt.Fprintf(&sums, "%s  %s\n", digest, repository)
	}
	for file, content := range map[string]string{p.list: strings.Join(p.published, "\n") + "\n", p.sums: sums.String()} {
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil { //nolint:gosec // G306: a release is for everybody to read
			return fmt.Errorf("writing what was published: %w", err)
		}
	}
	return nil
}

// pushImages pushes each archive of the release and attaches its list of contents.
func (p *publisher) pushImages(ctx context.Context) error {
	files, err := filepath.Glob(filepath.Join(p.from, "images", "*.tar"))
	if err != nil {
		return fmt.Errorf("looking for images: %w", err)
	}
	if len(files) == 0 {
		return fmt.Errorf("there is no image in %s: run make release first", filepath.Join(p.from, "images"))
	}
	for _, file := range files {
		sbom, err := os.ReadFile(strings.TrimSuffix(file, ".tar") + ".spdx.json")
		if err != nil {
			return fmt.Errorf("reading what an image consists of: %w", err)
		}
		named, err := image.ReadFile(file)
		if err != nil {
			return err
		}
		for _, img := range named {
			if err := p.pushImage(ctx, img, sbom); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *publisher) pushImage(ctx context.Context, img image.Named, sbom []byte) error {
	short, isOurs := strings.CutPrefix(img.Name, builtPrefix)
	if !isOurs {
		return fmt.Errorf("image %s is not below %s: build it with make release", img.Name, builtPrefix)
	}
	ref := strings.TrimSuffix(p.images, "/") + "/" + short
	pushed, err := p.registry.Push(ctx, ref, img.Index)
	if err != nil {
		return err
	}
	attached, err := p.registry.Attach(ctx, ref, img.Index, image.Artifact{Type: sbomType, Content: sbom})
	if err != nil {
		return err
	}
	fmt.Printf("%s\n  %s with %s\n", ref, pushed, attached)
	p.published = append(p.published, pushed)
	return nil
}

// pushChart pushes the chart as `helm push` does: its metadata are the configuration.
func (p *publisher) pushChart(ctx context.Context) error {
	files, err := filepath.Glob(filepath.Join(p.from, "skyhook-operator-*.tgz"))
	if err != nil {
		return fmt.Errorf("looking for the chart: %w", err)
	}
	if len(files) != 1 {
		return fmt.Errorf("there are %d charts in %s instead of one: remove the folder and run make release", len(files), p.from)
	}
	packed, err := os.ReadFile(files[0])
	if err != nil {
		return fmt.Errorf("reading the chart: %w", err)
	}
	text, err := readMetadata(packed)
	if err != nil {
		return fmt.Errorf("reading %s: %w", files[0], err)
	}
	var about struct{ Name, Version, Description string }
	config, err := yaml.YAMLToJSON(text)
	if err = errors.Join(err, yaml.Unmarshal(text, &about)); err != nil {
		return fmt.Errorf("reading Chart.yaml of %s: %w", files[0], err)
	}
	ref := strings.TrimSuffix(p.charts, "/") + "/" + about.Name + ":" + about.Version
	pushed, err := p.registry.PushFile(ctx, ref, image.Blob{Type: chartConfigType, Content: config}, image.Blob{Type: chartType, Content: packed}, map[string]string{
		"org.opencontainers.image.title": about.Name, "org.opencontainers.image.version": about.Version, "org.opencontainers.image.description": about.Description,
	})
	if err != nil {
		return err
	}
	fmt.Printf("%s\n  %s\n", ref, pushed)
	p.published = append(p.published, pushed)
	return p.pushHubFile(ctx, strings.TrimSuffix(p.charts, "/")+"/"+about.Name+":artifacthub.io")
}

// pushHubFile pushes what Artifact Hub shows about the repository. It says nothing about the release, so it is not signed.
func (p *publisher) pushHubFile(ctx context.Context, ref string) error {
	content, err := os.ReadFile(filepath.Join(p.root, hubFile))
	if err != nil {
		return fmt.Errorf("reading what Artifact Hub shows: %w", err)
	}
	_, err = p.registry.PushFile(ctx, ref, image.Blob{Type: hubConfigType}, image.Blob{Type: hubType, Content: content}, map[string]string{"org.opencontainers.image.title": hubFile})
	return err
}

// readMetadata returns the Chart.yaml of a packed chart.
func readMetadata(packed []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	for t := tar.NewReader(z); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil, errors.New("there is no Chart.yaml in it")
		}
		if err != nil {
			return nil, err
		}
		if h.Name == "skyhook-operator/Chart.yaml" {
			return io.ReadAll(t)
		}
	}
}
