// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package scaffold creates the folder of a new package that can be validated, tested and built as it is. Its files show
// what belongs where.
package scaffold

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"

	"github.com/skyhook-k8s/skyhook/internal/pack"
)

//go:embed files
var files embed.FS

// Package describes a new package.
type Package struct {
	Name      string // of the package, and of its files on hosts
	Version   string
	Preflight bool // it has one
}

const preflightFile = "skyhook_dir/preflight.sh"

// nameRule is the rule for package names in a Skyhook.
var nameRule = regexp.MustCompile(`^[a-z][-a-z0-9]{0,41}[a-z]$`)

// Validate checks the name and the version.
func (p Package) Validate() error {
	if !nameRule.MatchString(p.Name) {
		return fmt.Errorf("name %q cannot be that of a package in a Skyhook: use 2 to 43 lower-case letters, digits and -, beginning and ending with a letter", p.Name)
	}
	return pack.CheckVersion(p.Version)
}

// WriteFolder creates the folder, which must be new or empty, and returns the relative paths of its files.
func (p Package) WriteFolder(dir string) ([]string, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	there, err := os.ReadDir(dir)
	if err == nil && len(there) > 0 {
		return nil, fmt.Errorf("making package %s: folder %s is not empty", p.Name, dir)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("making package %s: %w", p.Name, err)
	}
	var made []string
	err = fs.WalkDir(files, "files", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		short := strings.TrimPrefix(name, "files/")
		if short == preflightFile && !p.Preflight {
			return nil
		}
		made = append(made, short)
		return p.writeTemplate(name, filepath.Join(dir, filepath.FromSlash(short)))
	})
	if err != nil {
		return nil, fmt.Errorf("making package %s: %w", p.Name, err)
	}
	return made, nil
}

func (p Package) writeTemplate(name, to string) error {
	text, err := fs.ReadFile(files, name)
	if err != nil {
		return err
	}
	t, err := template.New(path.Base(name)).Delims("<<", ">>").Parse(string(text))
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := t.Execute(&out, p); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil { //nolint:gosec // G301: a folder of the user's, who has an umask
		return err
	}
	mode := fs.FileMode(0o644)
	if strings.HasSuffix(name, ".sh") {
		mode = 0o755
	}
	return os.WriteFile(to, out.Bytes(), mode)
}
