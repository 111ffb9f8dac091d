// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/skyhook-k8s/skyhook/hack/licenses"
	"github.com/skyhook-k8s/skyhook/internal/image"
	"github.com/skyhook-k8s/skyhook/internal/packagecli/pkgimage"
)

// The two lines of Chart.yaml that a release sets.
var (
	chartVersion = regexp.MustCompile(`(?m)^version: .*$`)
	appVersion   = regexp.MustCompile(`(?m)^appVersion: (.*)$`)
)

// packChart packs the chart as Helm does, for this version.
func (r *release) packChart() error {
	dir := filepath.Join(r.root, "chart")
	var members []member
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(file) == ".go" {
			return err
		}
		content, err := os.ReadFile(file) //nolint:gosec // G122: the tree is its maker's
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		if name == "Chart.yaml" {
			content, err = r.setChartVersion(content)
		}
		members = append(members, member{name: "skyhook-operator/" + filepath.ToSlash(name), content: content})
		return err
	})
	if err != nil {
		return fmt.Errorf("packing the chart: %w", err)
	}
	for _, name := range []string{"LICENSE", "NOTICE"} {
		content, err := os.ReadFile(filepath.Join(r.root, name))
		if err != nil {
			return fmt.Errorf("packing the chart: %w", err)
		}
		members = append(members, member{name: "skyhook-operator/" + name, content: content})
	}
	packed, err := writeTarball(members)
	if err != nil {
		return err
	}
	return r.writeFile("skyhook-operator-"+strings.TrimPrefix(r.version, "v")+".tgz", packed)
}

// setChartVersion sets the version of Chart.yaml, also in the tags of the images that Artifact Hub shows.
func (r *release) setChartVersion(about []byte) ([]byte, error) {
	of := appVersion.FindSubmatch(about)
	if of == nil {
		return nil, errors.New("chart/Chart.yaml has no appVersion")
	}
	about = imagesOf(string(of[1])).ReplaceAll(about, []byte("${1}"+r.version))
	about = chartVersion.ReplaceAll(about, []byte("version: "+strings.TrimPrefix(r.version, "v")))
	about = appVersion.ReplaceAll(about, []byte("appVersion: "+r.version))
	changes, err := r.readChanges()
	if err != nil {
		return nil, err
	}
	return addHubChanges(about, changes)
}

// imagesOf matches the images of a version, and labels with it.
func imagesOf(version string) *regexp.Regexp {
	return regexp.MustCompile(`(ghcr\.io/skyhook-k8s/skyhook/[a-z]+:|app\.kubernetes\.io/version: )` + regexp.QuoteMeta(version) + `\b`)
}

// renderManifests is what kubectl installs, with the images of this version.
func (r *release) renderManifests() error {
	chart, err := os.ReadFile(filepath.Join(r.root, "chart", "Chart.yaml"))
	if err != nil {
		return fmt.Errorf("reading the chart: %w", err)
	}
	of := appVersion.FindSubmatch(chart)
	if of == nil {
		return errors.New("chart/Chart.yaml has no appVersion")
	}
	text, err := os.ReadFile(filepath.Join(r.root, "config", "default", "install.yaml"))
	if err != nil {
		return fmt.Errorf("reading the manifests: %w", err)
	}
	return r.writeFile("install.yaml", imagesOf(string(of[1])).ReplaceAll(text, []byte("${1}"+r.version)))
}

// archivePrograms packs kubectl-skyhook for a platform. On Linux the agent is beside it: package test runs it.
func (r *release) archivePrograms(platform string) error {
	base, extension, plugin := archiveName(r.version, platform)
	content, err := r.compileProgram(platform, "kubectl-skyhook", base)
	if err != nil {
		return err
	}
	members := []member{{name: plugin, content: content, executable: true}}
	programs := []string{"kubectl-skyhook"}
	if strings.HasPrefix(platform, "linux/") {
		const agent = "skyhook-agent"
		content, err := r.compileProgram(platform, agent, strings.Replace(base, "kubectl-skyhook", agent, 1))
		if err != nil {
			return err
		}
		members = append(members, member{name: agent, content: content, executable: true})
		programs = append(programs, agent)
	}
	texts, err := r.readLicenses(platform, programs)
	if err != nil {
		return err
	}
	members = append(members, texts...)
	pack := writeTarball
	if extension == ".zip" {
		pack = writeZip
	}
	archive, err := pack(members)
	if err != nil {
		return err
	}
	return r.writeFile(base+extension, archive)
}

// readLicenses returns our licence and those of the modules in programs.
func (r *release) readLicenses(platform string, programs []string) ([]member, error) {
	var members []member
	for _, name := range []string{"LICENSE", "NOTICE"} {
		text, err := os.ReadFile(filepath.Join(r.root, name))
		if err != nil {
			return nil, fmt.Errorf("reading our licence: %w", err)
		}
		members = append(members, member{name: name, content: text})
	}
	modules, err := licenses.Collect(context.Background(), r.root, programs, []string{platform})
	if err != nil {
		return nil, err
	}
	return append(members, member{name: "THIRD_PARTY_LICENSES", content: licenses.Texts(modules)}), nil
}

// compileProgram compiles a program of cmd for a platform. It writes the list of what the program consists of, and returns
// the program.
func (r *release) compileProgram(platform, name, base string) ([]byte, error) {
	temp, err := os.MkdirTemp("", "mkrelease-")
	if err != nil {
		return nil, fmt.Errorf("making a folder for a program: %w", err)
	}
	defer func() { _ = os.RemoveAll(temp) }()
	file := filepath.Join(temp, name)
	system, arch, _ := strings.Cut(platform, "/")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid= -X main.version="+r.version, "-o", file, "./cmd/"+name)
	cmd.Dir = r.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+arch, "GOFLAGS=-mod=readonly", "GOWORK=off", "GOAMD64=v1", "GOARM64=v8.0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compiling %s for %s: %w\n%s", name, platform, err, out)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading %s for %s: %w", name, platform, err)
	}
	list, err := pkgimage.ProgramSBOM(name, r.version, []pkgimage.Program{{Platform: platform, Content: content}})
	if err != nil {
		return nil, err
	}
	return content, r.writeFile(base+".spdx.json", list)
}

// archiveName says how kubectl-skyhook is packed for a platform: what its files are called without their extension, the
// extension of the archive, and the program inside. .krew.yaml says the same, which a test compares.
func archiveName(version, platform string) (base, extension, program string) {
	system, arch, _ := strings.Cut(platform, "/")
	base = fmt.Sprintf("kubectl-skyhook_%s_%s_%s", version, system, arch)
	if system == "windows" {
		return base, ".zip", "kubectl-skyhook.exe"
	}
	return base, ".tar.gz", "kubectl-skyhook"
}

// listImageContents lists what each image of the folder images consists of: the files of a package, the modules of a program.
func (r *release) listImageContents() error {
	files, err := filepath.Glob(filepath.Join(r.out, "images", "*.tar"))
	if err != nil {
		return fmt.Errorf("looking for images: %w", err)
	}
	for _, file := range files {
		all, err := image.ReadFile(file)
		if err != nil {
			return err
		}
		short := strings.TrimSuffix(filepath.Base(file), ".tar")
		for _, img := range all {
			list, err := r.readSBOM(short, img)
			if err != nil {
				return err
			}
			if err := r.writeFile(filepath.Join("images", short+".spdx.json"), list); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *release) readSBOM(short string, img image.Named) ([]byte, error) {
	if strings.HasPrefix(short, "packages-") {
		return pkgimage.SBOM(img.Index)
	}
	listed, err := image.List(img.Index)
	if err != nil {
		return nil, err
	}
	var programs []pkgimage.Program
	for _, l := range listed[1:] {
		platform, err := v1.ParsePlatform(l.Platform)
		if err != nil {
			return nil, fmt.Errorf("looking into image %s: %w", short, err)
		}
		one, err := image.ForPlatform(img.Index, *platform)
		if err != nil {
			return nil, err
		}
		files := mutate.Extract(one)
		found, err := r.readPrograms(files, l.Platform)
		if err = errors.Join(err, files.Close()); err != nil {
			return nil, fmt.Errorf("looking into image %s for %s: %w", short, l.Platform, err)
		}
		programs = append(programs, found...)
	}
	return pkgimage.ProgramSBOM("skyhook-"+short, r.version, programs)
}

// rootsFile is where an image has root certificates, and rootsModule the Go module that they come from.
const (
	rootsFile   = "etc/ssl/certs/ca-certificates.crt"
	rootsModule = "golang.org/x/crypto/x509roots/fallback"
)

// readPrograms finds the Go programs among the files of an image. Root certificates belong to the first of them.
func (r *release) readPrograms(files io.Reader, platform string) ([]pkgimage.Program, error) {
	var found []pkgimage.Program
	var data []pkgimage.Module
	for t := tar.NewReader(files); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		path := strings.TrimPrefix(h.Name, "/")
		if path == rootsFile {
			version, err := r.findModuleVersion(rootsModule)
			if err != nil {
				return nil, err
			}
			data = append(data, pkgimage.Module{Path: rootsModule, Version: version})
			continue
		}
		content, err := io.ReadAll(t)
		if err != nil {
			return nil, err
		}
		if _, err := buildinfo.Read(bytes.NewReader(content)); err == nil {
			found = append(found, pkgimage.Program{Platform: platform + " /" + path, Content: content})
		}
	}
	if len(found) == 0 {
		return nil, errors.New("there is no program in it")
	}
	found[0].Data = data
	return found, nil
}

// findModuleVersion returns the version of a module that this tree uses.
func (r *release) findModuleVersion(path string) (string, error) {
	cmd := exec.Command("go", "list", "-m", "-f", "{{.Version}}", path)
	cmd.Dir = r.root
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("looking for the version of module %s: %w", path, err)
	}
	return strings.TrimSpace(string(out)), nil
}
