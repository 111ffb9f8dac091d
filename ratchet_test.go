// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// Ratchets limit how much a maintainer has to carry. A limit is the figure of today and only falls: who makes one smaller lowers it in
// the same change, and who has to raise one does so in a change of its own that says what the weight buys.
var ratchets = []ratchet{
	{"lines of the product", 83940, "every line is read by somebody"},
	{"lines of the harness", 18088, "a test that needs a large harness proves less about the product"},
	{"lines of hack", 1557, "tools that others keep need no maintainer here"},
	{"lines of the largest package", 6015, "a package can be read in one sitting"},
	{"fields of the largest struct", 26, "the states of a struct multiply with its fields"},
	{"methods of the largest type", 123, "what embeds a type has all of its methods in reach, so they count together"},
	{"decisions per thousand lines", 235, "branches and operators are what a reader has to play through"},
	{"spec fields of the API", 343, "each field multiplies the states in which the others must be right"},
	{"modules of go.mod", 129, "a module is code of others that we answer for"},
}

type ratchet struct {
	what  string
	limit int
	why   string
}

// TestRatchets compares the tree with its limits.
func TestRatchets(t *testing.T) {
	product := readPackages(t, "api", "chart", "cmd", "internal")
	found := map[string]measure{
		"lines of the product":         sumLines(product),
		"lines of the harness":         sumLines(readPackages(t, "test")),
		"lines of hack":                sumLines(readPackages(t, "hack")),
		"lines of the largest package": largest(product, (*goPackage).lines),
		"fields of the largest struct": largest(product, (*goPackage).mostFields),
		"methods of the largest type":  largest(product, (*goPackage).mostMethods),
		"decisions per thousand lines": density(product),
		"spec fields of the API":       specFields(t),
		"modules of go.mod":            modules(t),
	}
	for _, r := range ratchets {
		got := found[r.what]
		t.Logf("%s: %d of %d %s", r.what, got.n, r.limit, got.where)
		if got.n > r.limit {
			t.Errorf("%s: %d %s, and the limit is %d: %s", r.what, got.n, got.where, r.limit, r.why)
		}
	}
}

type measure struct {
	n     int
	where string
}

// A goPackage is what is written by hand in a folder, without tests.
type goPackage struct {
	dir   string
	files []*ast.File
	fset  *token.FileSet
	text  []byte
}

func readPackages(t *testing.T, roots ...string) []*goPackage {
	t.Helper()
	found := map[string]*goPackage{}
	for _, root := range roots {
		err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.HasPrefix(entry.Name(), "zz_generated") {
				return err
			}
			text, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			dir := filepath.Dir(name)
			if found[dir] == nil {
				found[dir] = &goPackage{dir: dir, fset: token.NewFileSet()}
			}
			p := found[dir]
			file, err := parser.ParseFile(p.fset, name, text, parser.SkipObjectResolution|parser.ParseComments)
			p.files, p.text = append(p.files, file), append(p.text, text...)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b *goPackage) int { return strings.Compare(a.dir, b.dir) })
}

func (p *goPackage) lines() measure { return measure{bytes.Count(p.text, []byte("\n")), "in " + p.dir} }

func sumLines(ps []*goPackage) measure {
	var sum measure
	for _, p := range ps {
		sum.n += p.lines().n
	}
	return sum
}

func largest(ps []*goPackage, of func(*goPackage) measure) measure {
	var most measure
	for _, p := range ps {
		if m := of(p); m.n > most.n {
			most = m
		}
	}
	return most
}

// mostFields counts the fields of structs; embedded ones count as one.
func (p *goPackage) mostFields() measure {
	var most measure
	for name, s := range p.structs() {
		if n := s.Fields.NumFields(); n > most.n {
			most = measure{n, fmt.Sprintf("in %s.%s", p.dir, name)}
		}
	}
	return most
}

// mostMethods counts the methods of types, with those of types that embed them, directly or through others.
func (p *goPackage) mostMethods() measure {
	own, embeds := map[string]int{}, map[string][]string{}
	for _, file := range p.files {
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv != nil {
				own[receiverType(f.Recv.List[0].Type)]++
			}
		}
	}
	for name, s := range p.structs() {
		for _, field := range s.Fields.List {
			if len(field.Names) == 0 {
				of := receiverType(field.Type)
				embeds[of] = append(embeds[of], name)
			}
		}
	}
	var most measure
	for name := range own {
		sum := 0
		for _, member := range reach(embeds, name) {
			sum += own[member]
		}
		if sum > most.n {
			most = measure{sum, fmt.Sprintf("in %s.%s", p.dir, name)}
		}
	}
	return most
}

// reach lists a name, and all that is reached from it.
func reach(edges map[string][]string, from string) []string {
	found := []string{from}
	for i := 0; i < len(found); i++ {
		for _, next := range edges[found[i]] {
			if !slices.Contains(found, next) {
				found = append(found, next)
			}
		}
	}
	return found
}

func (p *goPackage) structs() map[string]*ast.StructType {
	found := map[string]*ast.StructType{}
	for _, file := range p.files {
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				if s, ok := spec.Type.(*ast.StructType); ok {
					found[spec.Name.Name] = s
				}
			}
			return true
		})
	}
	return found
}

// density counts branches and operators that decide, for a thousand lines of code.
func density(ps []*goPackage) measure {
	decisions, lines := 0, 0
	for _, p := range ps {
		for _, line := range bytes.Split(p.text, []byte("\n")) {
			if line = bytes.TrimSpace(line); len(line) > 0 && !bytes.HasPrefix(line, []byte("//")) {
				lines++
			}
		}
		for _, file := range p.files {
			ast.Inspect(file, func(n ast.Node) bool {
				if decides(n) {
					decisions++
				}
				return true
			})
		}
	}
	return measure{n: decisions * 1000 / lines}
}

func decides(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt:
		return true
	case *ast.CaseClause:
		return len(n.List) > 0
	case *ast.CommClause:
		return n.Comm != nil
	case *ast.BinaryExpr:
		return n.Op == token.LAND || n.Op == token.LOR
	case *ast.UnaryExpr:
		return n.Op == token.NOT
	}
	return false
}

// specFields counts the properties below spec in the CRDs.
func specFields(t *testing.T) measure {
	t.Helper()
	paths, err := filepath.Glob("chart/files/crds/*.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatal("no CRDs in chart/files/crds", err)
	}
	sum := 0
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var crd struct {
			Spec struct {
				Versions []struct {
					Schema struct{ OpenAPIV3Schema property }
				}
			}
		}
		if err := yaml.Unmarshal(text, &crd); err != nil {
			t.Fatal(err)
		}
		for _, v := range crd.Spec.Versions {
			sum += v.Schema.OpenAPIV3Schema.Properties["spec"].count()
		}
	}
	return measure{n: sum}
}

type property struct {
	Properties           map[string]property
	Items                *property
	AdditionalProperties *property
}

func (p property) count() int {
	n := len(p.Properties)
	for _, below := range p.Properties {
		n += below.count()
	}
	for _, below := range []*property{p.Items, p.AdditionalProperties} {
		if below != nil {
			n += below.count()
		}
	}
	return n
}

var requiredModule = regexp.MustCompile(`(?m)^\t\S+ v\S+`)

func modules(t *testing.T) measure {
	t.Helper()
	text, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	return measure{n: len(requiredModule.FindAll(text, -1))}
}
