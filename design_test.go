// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const designPage = "docs/internals/design.md"

var (
	inlineCode    = regexp.MustCompile("`([^`\n]+)`")
	filePath      = regexp.MustCompile(`^[\w.-]+(/[\w.*-]+)*(/|\.(go|md|yaml|txt|tpl|mod|sh|yml))$`)
	qualifiedName = regexp.MustCompile(`^([a-z]+)\.([A-Z]\w*)(?:\.(\w+))?$`)
	identifier    = regexp.MustCompile(`^[A-Za-z]\w*(\.[A-Za-z]\w*)?$`)
)

// TestDesignNames checks that every file, folder and package-qualified name in docs/internals/design.md exists.
func TestDesignNames(t *testing.T) {
	for _, code := range codeSpans(designText(t)) {
		if filePath.MatchString(code) && resolvePath(code) == "" {
			t.Errorf("%s names %s, which does not exist", designPage, code)
		}

		m := qualifiedName.FindStringSubmatch(code)
		if m == nil {
			continue
		}
		dir := filepath.Join("internal", m[1])
		if _, err := os.Stat(dir); err != nil {
			continue // a package of somebody else
		}
		name := m[2]
		if m[3] != "" {
			name += "." + m[3]
		}
		if !slices.Contains(declarations(t, dir), name) {
			t.Errorf("%s names %s, which %s does not declare", designPage, code, dir)
		}
	}
}

// TestDesignMap checks the table "Where to change what": each row names at least one file, and the names behind a file
// are declared in it.
func TestDesignMap(t *testing.T) {
	rows := tableRows(section(t, "Where to change what"))
	if len(rows) < 12 {
		t.Fatalf("the table has only %d rows", len(rows))
	}

	for _, row := range rows {
		file, names := "", 0
		for _, code := range codeSpans(row[len(row)-1]) {
			switch {
			case filePath.MatchString(code):
				file = resolvePath(code)
			case file == "":
				t.Errorf("%q: %s stands before any file", row[0], code)
			case identifier.MatchString(code) && strings.HasSuffix(file, ".go"):
				names++
				if !slices.Contains(declarations(t, file), code) {
					t.Errorf("%q: %s does not declare %s", row[0], file, code)
				}
			}
		}
		if file == "" || names == 0 {
			t.Errorf("%q names no function or type of a file", row[0])
		}
	}
}

// TestDesignTree checks that the tree lists every package of this module, and nothing that does not exist.
func TestDesignTree(t *testing.T) {
	listed := treePaths(section(t, "The tree"))
	if len(slices.Compact(slices.Sorted(slices.Values(listed)))) < len(listed) {
		t.Error("the tree lists a folder twice")
	}
	for _, p := range listed {
		if _, err := os.Stat(p); err != nil {
			t.Errorf("the tree lists %s, which does not exist", p)
		}
	}

	for _, p := range listPackages(t) {
		dir := strings.TrimPrefix(p.ImportPath+"/", module)
		if dir != "" && !slices.Contains(listed, dir) {
			t.Errorf("the tree does not list the package %s", dir)
		}
	}
}

// TestDesignImports checks the table of imports: each row lists exactly the packages of this module that the package and
// the packages below it import.
func TestDesignImports(t *testing.T) {
	rows := tableRows(section(t, "Imports"))
	if len(rows) < 10 {
		t.Fatalf("the table has only %d rows", len(rows))
	}

	all := listPackages(t)
	for _, row := range rows {
		name := strings.Trim(row[0], "`")
		want := slices.Sorted(slices.Values(codeSpans(row[1])))
		if got := importsOf(all, name); !slices.Equal(got, want) {
			t.Errorf("%s imports %q, and the table says %q", name, got, want)
		}
	}
}

// importsOf lists the packages of this module that a row of the table imports, without itself.
func importsOf(all []pkg, row string) []string {
	var found []string
	for _, p := range all {
		if rowOf(strings.TrimPrefix(p.ImportPath, module)) != row {
			continue
		}
		for _, imp := range p.Imports {
			rest, ours := strings.CutPrefix(imp, module)
			if other := rowOf(rest); ours && other != row && !slices.Contains(found, other) {
				found = append(found, other)
			}
		}
	}
	slices.Sort(found)
	return found
}

// rowOf returns the row of a package in the table: cluster for internal/cluster/drain, api for api/skyhook/v1alpha1.
func rowOf(pkg string) string {
	first, rest, _ := strings.Cut(pkg, "/")
	if first == "internal" {
		first, _, _ = strings.Cut(rest, "/")
		return first
	}
	if first == "cmd" || first == "test" || first == "hack" {
		return pkg
	}
	return first
}

func designText(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(designPage)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// section returns the text between the heading that ends with a title and the next heading.
func section(t *testing.T, title string) string {
	t.Helper()
	var text strings.Builder
	inside, fenced := false, false
	for line := range strings.Lines(designText(t)) {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		if strings.HasPrefix(line, "#") && !fenced {
			inside = strings.HasSuffix(strings.TrimSpace(line), title)
			continue
		}
		if inside {
			text.WriteString(line)
		}
	}
	if text.Len() == 0 {
		t.Fatalf("%s has no section %q", designPage, title)
	}
	return text.String()
}

func codeSpans(text string) []string {
	var found []string
	for _, m := range inlineCode.FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	return found
}

// tableRows returns the cells of the table rows in a text, without headings and separators.
func tableRows(text string) [][]string {
	var rows [][]string
	header := true
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			header = true
			continue
		}
		if strings.HasPrefix(line, "|---") {
			header = false
			continue
		}
		if header {
			continue
		}
		var cells []string
		for _, cell := range strings.Split(strings.Trim(line, "|"), "|") {
			cells = append(cells, strings.TrimSpace(cell))
		}
		rows = append(rows, cells)
	}
	return rows
}

// treePaths returns the folders of an indented tree in a code block: names that end in a slash, two blanks per level.
func treePaths(text string) []string {
	var stack, found []string
	for line := range strings.Lines(text) {
		entry := strings.TrimLeft(line, " ")
		name, _, _ := strings.Cut(strings.TrimSpace(entry), " ")
		if !strings.HasSuffix(name, "/") {
			continue
		}
		level := (len(line) - len(entry)) / 2
		if level > len(stack) {
			continue // a continued description
		}
		stack = append(stack[:level], name)
		found = append(found, path.Join(stack...)+"/")
	}
	return found
}

// resolvePath finds a path from the root of the repository or below internal.
func resolvePath(name string) string {
	for _, candidate := range []string{name, path.Join("internal", name)} {
		if found, err := filepath.Glob(candidate); err == nil && len(found) > 0 {
			return found[0]
		}
	}
	return ""
}

// declarations lists the top-level names of a Go file, or of the package in a folder; methods as Type.Method.
func declarations(t *testing.T, name string) []string {
	t.Helper()
	files := []string{name}
	if !strings.HasSuffix(name, ".go") {
		var err error
		if files, err = filepath.Glob(filepath.Join(name, "*.go")); err != nil {
			t.Fatal(err)
		}
	}

	var found []string
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range parsed.Decls {
			found = append(found, declaredNames(decl)...)
		}
	}
	return found
}

func declaredNames(decl ast.Decl) []string {
	if f, ok := decl.(*ast.FuncDecl); ok {
		if f.Recv == nil {
			return []string{f.Name.Name}
		}
		return []string{receiverType(f.Recv.List[0].Type) + "." + f.Name.Name}
	}

	var names []string
	for _, spec := range decl.(*ast.GenDecl).Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			names = append(names, spec.Name.Name)
			names = append(names, fieldNames(spec)...)
		case *ast.ValueSpec:
			for _, n := range spec.Names {
				names = append(names, n.Name)
			}
		}
	}
	return names
}

// fieldNames lists the fields of a struct as Type.Field.
func fieldNames(spec *ast.TypeSpec) []string {
	s, ok := spec.Type.(*ast.StructType)
	if !ok {
		return nil
	}
	var names []string
	for _, field := range s.Fields.List {
		for _, n := range field.Names {
			names = append(names, spec.Name.Name+"."+n.Name)
		}
	}
	return names
}

func receiverType(expr ast.Expr) string {
	switch expr := expr.(type) {
	case *ast.StarExpr:
		return receiverType(expr.X)
	case *ast.IndexExpr:
		return receiverType(expr.X)
	case *ast.Ident:
		return expr.Name
	}
	return ""
}
