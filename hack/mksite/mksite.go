// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Command mksite builds the documentation as a site: the Markdown of this tree, and that of each release, by Hugo. The pages stay
// where they are; the layouts are in site/.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

const (
	repository = "https://github.com/skyhook-k8s/skyhook"
	// development is the version of the tree itself.
	development = "main"
)

func main() {
	out := flag.String("out", "dist/site", "folder of the site, which is replaced")
	hugo := flag.String("hugo", "hugo", "the program hugo")
	releases := flag.Int("releases", 5, "number of releases beside the tree, newest first")
	flag.Parse()
	if err := build(context.Background(), *out, *hugo, *releases); err != nil {
		fmt.Fprintf(os.Stderr, "mksite: %v\n", err)
		os.Exit(1)
	}
}

// build builds one folder for each version, and an index that leads to the newest release.
func build(ctx context.Context, out, hugo string, releases int) error {
	program, err := exec.LookPath(hugo)
	if err != nil {
		return fmt.Errorf("looking for hugo; make site builds it: %w", err)
	}
	if program, err = filepath.Abs(program); err != nil {
		return fmt.Errorf("looking for hugo: %w", err)
	}
	versions, err := readVersions(ctx, releases)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(out); err != nil {
		return fmt.Errorf("clearing the site: %w", err)
	}
	for _, v := range versions {
		if err := buildVersion(ctx, program, filepath.Join(out, v.Name), v, versions); err != nil {
			return fmt.Errorf("version %s: %w", v.Name, err)
		}
		fmt.Printf("%s: %d pages\n", filepath.Join(out, v.Name), len(v.Pages))
	}
	first := versions[min(1, len(versions)-1)].Name
	index := `<!doctype html><meta charset="utf-8"><title>Skyhook</title><link rel="icon" href="data:,"><meta http-equiv="refresh" content="0; url=` + first + `/index.html"><a href="` + first + `/index.html">Skyhook</a>` + "\n"
	return writeFile(filepath.Join(out, "index.html"), []byte(index))
}

// readVersions returns the tree and the newest releases that have documentation.
func readVersions(ctx context.Context, releases int) ([]*version, error) {
	tree, err := readTree(ctx)
	if err != nil {
		return nil, err
	}
	all := []*version{newVersion(development, development, tree)}
	if all[0].Sections == nil {
		return nil, errors.New("docs/README.md lists no pages: run from the root of the repository")
	}
	tags, err := listReleases(ctx)
	if err != nil {
		return nil, err
	}
	for _, tag := range tags[:min(releases, len(tags))] {
		files, err := readTag(ctx, tag)
		if err != nil {
			return nil, err
		}
		if v := newVersion(tag, tag, files); v.Sections != nil {
			all = append(all, v)
		}
	}
	return all, nil
}

// siteData is what the layouts read as hugo.Data.site.
type siteData struct {
	Repository string            `json:"repository"`
	Revision   string            `json:"revision"`
	Version    string            `json:"version"`
	Versions   []*version        `json:"versions"`
	Sections   []section         `json:"sections"`
	Files      map[string]string `json:"files"`
}

// buildVersion writes what Hugo needs into a temporary folder and runs Hugo.
func buildVersion(ctx context.Context, program, out string, v *version, all []*version) error {
	temp, err := os.MkdirTemp("", "mksite-")
	if err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(temp) }()
	if err := os.CopyFS(temp, os.DirFS("site")); err != nil {
		return fmt.Errorf("copying the layouts: %w", err)
	}
	for name, content := range v.files {
		target := filepath.Join(temp, "static", name)
		if v.Files[name] != "" {
			target = filepath.Join(temp, "content", name)
			if name == "README.md" {
				target = filepath.Join(temp, "content", "_index.md")
			}
			content = append(v.frontMatter(name), content...)
		}
		if err := writeFile(target, content); err != nil {
			return err
		}
	}
	icon, err := os.ReadFile(filepath.Join("docs", "images", "icon.svg"))
	if err == nil {
		err = writeFile(filepath.Join(temp, "static", "icon.svg"), icon)
	}
	if err != nil {
		return fmt.Errorf("copying the icon: %w", err)
	}
	data, err := json.Marshal(siteData{Repository: repository, Revision: v.revision, Version: v.Name, Versions: all, Sections: v.Sections, Files: v.Files})
	if err == nil {
		err = writeFile(filepath.Join(temp, "data", "site.json"), data)
	}
	if err != nil {
		return fmt.Errorf("writing the data of the site: %w", err)
	}
	target, err := filepath.Abs(out)
	if err != nil {
		return fmt.Errorf("finding the folder of the site: %w", err)
	}
	cmd := exec.CommandContext(ctx, program, "build", "--source", temp, "--destination", target, "--cacheDir", filepath.Join(temp, "cache"), "--panicOnWarning", "--quiet")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("running hugo: %w\n%s", err, text)
	}
	return nil
}

func writeFile(name string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil { //nolint:gosec // G301: a site is public
		return fmt.Errorf("making a folder: %w", err)
	}
	if err := os.WriteFile(name, content, 0o644); err != nil { //nolint:gosec // G306: a site is public
		return fmt.Errorf("writing the site: %w", err)
	}
	return nil
}
