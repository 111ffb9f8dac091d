// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// listed is a package as go list knows it.
type listed struct {
	ImportPath, Name, Dir string
	GoFiles               []string
}

// imports are the type-checked packages. Packages of other modules are empty.
type imports map[string]*types.Package

func (i imports) Import(path string) (*types.Package, error) {
	if p := i[path]; p != nil {
		return p, nil
	}
	return nil, errors.New("go list did not name it")
}

// TestPlatforms checks that on every released platform each package declares the names that others use. Compiling
// for all platforms would take minutes.
func TestPlatforms(t *testing.T) {
	for _, system := range []string{"darwin", "linux", "windows"} {
		for _, lack := range lacks(t, system) {
			t.Errorf("%s: %s", system, lack)
		}
	}
}

var lacking = regexp.MustCompile(`^undefined: (?:(\w+)\.)?\w+`)

func lacks(t *testing.T, system string) []string {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Name,Dir,GoFiles", "./cmd/kubectl-skyhook")
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0")
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	known := imports{}
	var ours, found []string
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(p.ImportPath, "github.com/skyhook-k8s/skyhook/") {
			known[p.ImportPath] = types.NewPackage(p.ImportPath, p.Name)
			known[p.ImportPath].MarkComplete()
			continue
		}
		files := token.NewFileSet()
		var parsed []*ast.File
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			parsed = append(parsed, f)
		}
		ours = append(ours, p.Name)
		conf := types.Config{Importer: known, Error: func(err error) {
			var e types.Error
			if !errors.As(err, &e) {
				return
			}
			if m := lacking.FindStringSubmatch(e.Msg); m != nil && (m[1] == "" || slices.Contains(ours, m[1])) {
				found = append(found, e.Error())
			}
		}}
		// The error is the first of those that were seen one by one.
		known[p.ImportPath], _ = conf.Check(p.ImportPath, files, parsed, nil)
		known[p.ImportPath].MarkComplete()
	}
	if len(ours) < 10 {
		t.Fatalf("only %v of ours were looked at", ours)
	}
	return found
}
