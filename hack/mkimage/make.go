// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/skyhook-k8s/skyhook/hack/licenses"
	"github.com/skyhook-k8s/skyhook/internal/image"
	"github.com/skyhook-k8s/skyhook/internal/packagecli/pkgimage"
)

// A maker builds each program and each image once.
type imageBuilder struct {
	settings
	programs map[string]string // compiled, by folder and platform
	temp     string
	progress io.Writer
	shell    *image.Named
}

// A made image is what a line of output is about.
type builtImage struct {
	short string
	image.Named
	sbom []byte
}

func newImageBuilder(set settings, progress io.Writer) (*imageBuilder, error) {
	if _, err := os.Stat(filepath.Join(set.module, "go.mod")); err != nil {
		return nil, fmt.Errorf("there is no go.mod in %s; run from the root of the repository or name it with --module", set.module)
	}
	temp, err := os.MkdirTemp("", "mkimage-")
	if err != nil {
		return nil, fmt.Errorf("making a folder for compiled programs: %w", err)
	}
	return &imageBuilder{settings: set, programs: map[string]string{}, temp: temp, progress: progress}, nil
}

func (m *imageBuilder) close() {
	if err := os.RemoveAll(m.temp); err != nil {
		m.printProgress("%v", err)
	}
}

func (m *imageBuilder) printProgress(format string, args ...any) {
	// Progress that cannot be shown stops nothing.
	_, _ = fmt.Fprintf(m.progress, format+"\n", args...)
}

// buildAll builds what was asked for, writes it, pushes it, and lists it.
func (m *imageBuilder) buildAll(ctx context.Context, out io.Writer) error {
	wanted, packages, err := m.selectImages()
	if err != nil {
		return err
	}
	var all []builtImage
	for _, p := range wanted {
		img, err := m.buildProduct(ctx, p)
		if err != nil {
			return fmt.Errorf("image %s: %w", p.name, err)
		}
		sbom, err := m.listContents(p)
		if err != nil {
			return err
		}
		all = append(all, builtImage{p.name, img, sbom})
	}
	for _, name := range packages {
		img, err := m.buildPackage(ctx, name)
		if err != nil {
			return fmt.Errorf("image packages/%s: %w", name, err)
		}
		sbom, err := pkgimage.SBOM(img.Index)
		if err != nil {
			return err
		}
		all = append(all, builtImage{"packages-" + name, img, sbom})
	}
	for _, img := range all {
		if err := m.writeImage(img); err != nil {
			return err
		}
	}
	for _, img := range all {
		if m.push == "" {
			break
		}
		ref, err := image.Registry{PlainHTTP: m.plainHTTP, Overwrite: true}.Push(ctx, img.Name, img.Index)
		if err != nil {
			return err
		}
		m.printProgress("pushed %s", ref)
	}
	return m.printList(out, all)
}

// selectImages are the products and packages to build: all, or those asked for. One that is not there is an error before anything is built.
func (m *imageBuilder) selectImages() ([]product, []string, error) {
	isWanted := func(name string) bool { return m.only == nil || slices.Contains(m.only, name) }
	var wanted []product
	for _, p := range products() {
		if isWanted(p.name) {
			wanted = append(wanted, p)
		}
	}
	found, err := filepath.Glob(filepath.Join(m.module, "packages", "*", "config.json"))
	if err != nil {
		return nil, nil, fmt.Errorf("looking for packages: %w", err)
	}
	var packages, there []string
	for _, file := range found {
		name := filepath.Base(filepath.Dir(file))
		there = append(there, "packages/"+name)
		if isWanted("packages") || isWanted("packages/"+name) {
			packages = append(packages, name)
		}
	}
	for _, name := range m.only {
		if path.Dir(name) == "packages" && !slices.Contains(there, name) {
			return nil, nil, fmt.Errorf("there is no package %s: %s/config.json does not exist; there are %s", name, name, strings.Join(there, ", "))
		}
	}
	return wanted, packages, nil
}

// buildProduct builds an image with one program.
func (m *imageBuilder) buildProduct(ctx context.Context, p product) (image.Named, error) {
	if p.name == "shell" && m.shell != nil {
		return *m.shell, nil
	}
	about := image.About{Title: p.title, Version: m.version, Revision: m.revision, Source: source, Licenses: "Apache-2.0"}
	if p.name == "shell" {
		// Packages stand on it, and their digests shall change when they or the shell do, not with every release.
		about.Version, about.Revision = "", ""
	}
	recipe := image.Recipe{User: p.user, Env: p.env, Labels: about.Labels(), Created: m.created,
		Entrypoint: []string{p.file},
		Trees: func(platform v1.Platform) ([]*image.Tree, error) {
			t, err := m.buildTree(ctx, p, platform)
			return []*image.Tree{t}, err
		}}
	if p.onShell {
		shell, err := m.shellImage(ctx)
		if err != nil {
			return image.Named{}, err
		}
		recipe.From, recipe.FromName = shell.Index, shell.Name
	}
	idx, err := image.Build(recipe, m.platforms)
	if err != nil {
		return image.Named{}, err
	}
	img := image.Named{Name: m.prefix + "/" + p.name + ":" + m.version, Index: idx}
	if p.name == "shell" {
		m.shell = &img
	}
	return img, m.checkSize(p, idx)
}

// shellImage is the shell image, built when the first image needs it.
func (m *imageBuilder) shellImage(ctx context.Context) (image.Named, error) {
	all := products()
	return m.buildProduct(ctx, all[slices.IndexFunc(all, func(p product) bool { return p.name == "shell" })])
}

func (m *imageBuilder) buildTree(ctx context.Context, p product, platform v1.Platform) (*image.Tree, error) {
	program, err := m.compileProgram(ctx, p.program, platform)
	if err != nil {
		return nil, err
	}
	if st, err := os.Stat(program); err != nil {
		return nil, fmt.Errorf("looking at the program: %w", err)
	} else if p.fileLimit > 0 && st.Size() > p.fileLimit*1_000_000 {
		return nil, fmt.Errorf("the program for %s weighs %s, more than the %d MB it may", platform, formatMegabytes(st.Size()), p.fileLimit)
	}
	t := &image.Tree{}
	if p.files != nil {
		p.files(t)
	}
	if err := m.addLicenses(ctx, t, p, platform); err != nil {
		return nil, err
	}
	t.HostFile(p.file, 0o755, program)
	for _, name := range p.links {
		t.Symlink(path.Join(path.Dir(p.file), name), path.Base(p.file))
	}
	return t, nil
}

// addLicenses adds our licence and those of the modules in the program. The folder is the image's own: a base image has another one.
func (m *imageBuilder) addLicenses(ctx context.Context, t *image.Tree, p product, platform v1.Platform) error {
	folder := "/usr/share/doc/" + p.title
	for _, name := range []string{"LICENSE", "NOTICE"} {
		text, err := os.ReadFile(filepath.Join(m.module, name))
		if err != nil {
			return fmt.Errorf("reading our licence: %w", err)
		}
		t.Bytes(folder+"/"+name, 0o644, text)
	}
	modules, err := licenses.Collect(ctx, m.module, licenses.Build{Program: path.Base(p.program), Platform: platform.OS + "/" + platform.Architecture})
	if err != nil {
		return err
	}
	t.Bytes(folder+"/THIRD_PARTY_LICENSES", 0o644, licenses.Texts(modules))
	return nil
}

func (m *imageBuilder) compileProgram(ctx context.Context, folder string, platform v1.Platform) (string, error) {
	key := folder + " " + platform.String()
	if file, done := m.programs[key]; done {
		return file, nil
	}
	file := filepath.Join(m.temp, strings.NewReplacer("/", "-", " ", "-").Replace(key))
	p := image.Program{Module: m.module, Package: "./" + folder, Set: map[string]string{"main.version": m.version}}
	if err := p.Compile(ctx, platform, file); err != nil {
		return "", err
	}
	m.printProgress("compiled %s for %s", folder, platform)
	m.programs[key] = file
	return file, nil
}

// buildPackage builds a package image.
func (m *imageBuilder) buildPackage(ctx context.Context, name string) (image.Named, error) {
	shell, err := m.shellImage(ctx)
	if err != nil {
		return image.Named{}, err
	}
	// The name of the shell image has the version of this build in it, which is no part of the package.
	recipe, err := image.Package(filepath.Join(m.module, "packages", name), image.Named{Index: shell.Index})
	if err != nil {
		return image.Named{}, err
	}
	recipe.Created = m.created
	version := recipe.Labels["org.opencontainers.image.version"]
	if !tag.MatchString(version) {
		return image.Named{}, fmt.Errorf("package_version %q cannot be the tag of an image; leave out what follows the plus sign", version)
	}
	recipe.Labels["org.opencontainers.image.source"] = source
	recipe.Labels["org.opencontainers.image.licenses"] = "Apache-2.0"
	idx, err := image.Build(recipe, m.platforms)
	return image.Named{Name: m.prefix + "/packages/" + name + ":" + version, Index: idx}, err
}

func (m *imageBuilder) writeImage(img builtImage) error {
	if m.format == "layout" {
		return image.WriteLayout(filepath.Join(m.out, img.short), img.Named)
	}
	sbom := filepath.Join(m.out, img.short+".spdx.json")
	if err := errors.Join(image.WriteArchiveFile(filepath.Join(m.out, img.short+".tar"), img.Named), os.WriteFile(sbom, img.sbom, 0o644)); err != nil { //nolint:gosec // G306: a release is for everybody to read
		return fmt.Errorf("writing image %s: %w", img.short, err)
	}
	return nil
}

// listContents returns the SBOM of an image with one program.
func (m *imageBuilder) listContents(p product) ([]byte, error) {
	var all []pkgimage.Program
	for _, platform := range m.platforms {
		content, err := os.ReadFile(m.programs[p.program+" "+platform.String()])
		if err != nil {
			return nil, fmt.Errorf("reading the program of image %s: %w", p.name, err)
		}
		program := pkgimage.Program{Platform: platform.String() + " " + p.file, Content: content}
		if info, ok := debug.ReadBuildInfo(); ok && p.dataModule != "" { // it is part of this program, too
			for _, m := range info.Deps {
				if m.Path == p.dataModule {
					program.Data = []pkgimage.Module{{Path: m.Path, Version: m.Version}}
				}
			}
		}
		all = append(all, program)
	}
	return pkgimage.ProgramSBOM(p.title, m.version, all)
}

// checkSize refuses an image that has grown beyond its limit.
func (m *imageBuilder) checkSize(p product, idx v1.ImageIndex) error {
	for _, platform := range m.platforms {
		img, err := image.ForPlatform(idx, platform)
		if err != nil {
			return err
		}
		files := mutate.Extract(img)
		size, err := io.Copy(io.Discard, files)
		if err = errors.Join(err, files.Close()); err != nil {
			return fmt.Errorf("weighing the image: %w", err)
		}
		if size > p.limit*1_000_000 {
			return fmt.Errorf("the files for %s weigh %s, more than the %d MB they may", platform, formatMegabytes(size), p.limit)
		}
	}
	return nil
}

func formatMegabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }

// printList prints what was made and keeps the digests beside it.
func (m *imageBuilder) printList(out io.Writer, all []builtImage) error {
	var digests strings.Builder
	fmt.Fprintf(&digests, "# built with %s, SOURCE_DATE_EPOCH=%d\n", runtime.Version(), m.created.Unix())
	for _, img := range all {
		lines, err := image.List(img.Index)
		if err != nil {
			return err
		}
		for _, l := range lines {
			platform, size := l.Platform, formatMegabytes(l.Size)
			if platform == "" {
				platform, size = "index", ""
			}
			if _, err := fmt.Fprintf(out, "%-60s %-12s %8s  %s\n", img.Name, platform, size, l.Digest); err != nil {
				return err
			}
			fmt.Fprintf(&digests, "%s  %s  %s\n", l.Digest, platform, img.Name)
		}
	}
	if err := os.WriteFile(filepath.Join(m.out, "digests.txt"), []byte(digests.String()), 0o644); err != nil { //nolint:gosec // G306: a release is for everybody to read
		return fmt.Errorf("writing the digests: %w", err)
	}
	return nil
}
