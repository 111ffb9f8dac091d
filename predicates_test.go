// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"go/ast"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	predicateName = regexp.MustCompile(`^([iI]s|[hH]as|[mM]ay|[cC]an|[aA]re)[A-Z]`)
	foundOnce     = regexp.MustCompile(`(computed|encoded|found out) once`)
)

// TestPredicates checks that a function which asks changes nothing: one whose name says so, or whose comment begins with "reports
// whether". It finds assignments to what the receiver and the parameters refer to, and calls of functions of the package that do so. What
// a function remembers is no change if its comment says that it is found out once.
func TestPredicates(t *testing.T) {
	for _, p := range readPackages(t, "api", "chart", "cmd", "internal", "test", "hack") {
		changes := p.changes()
		for _, f := range p.functions() {
			isNamedSo := predicateName.MatchString(f.Name.Name)
			if isNamedSo && !returnsBool(f) {
				t.Errorf("%s: %s does not return whether", p.fset.Position(f.Pos()), f.Name.Name)
			}
			saysSo := strings.HasPrefix(f.Doc.Text(), f.Name.Name+" reports whether")
			if why := changes[f]; why != "" && (isNamedSo || saysSo) {
				t.Errorf("%s: %s asks, but %s", p.fset.Position(f.Pos()), f.Name.Name, why)
			}
		}
	}
}

func (p *goPackage) functions() []*ast.FuncDecl {
	var found []*ast.FuncDecl
	for _, file := range p.files {
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
				found = append(found, f)
			}
		}
	}
	return found
}

func returnsBool(f *ast.FuncDecl) bool {
	results := f.Type.Results
	return results != nil && slices.ContainsFunc(results.List, func(r *ast.Field) bool {
		name, ok := r.Type.(*ast.Ident)
		return ok && name.Name == "bool"
	})
}

// changes has the functions that change what they are given, and what they do. Calls are found by name, until no more are found.
func (p *goPackage) changes() map[*ast.FuncDecl]string {
	found, names := map[*ast.FuncDecl]string{}, map[string]bool{"delete": true, "clear": true, "copy": true}
	for isNew := true; isNew; {
		isNew = false
		for _, f := range p.functions() {
			isMemo := foundOnce.MatchString(f.Doc.Text())
			if found[f] != "" || isMemo {
				continue
			}
			if found[f] = findChange(f, names); found[f] != "" {
				isNew = true
				names[f.Name.Name] = !f.Name.IsExported() // another package may have a method of an exported name
			}
		}
	}
	return found
}

// findChange returns what a function does to its receiver and parameters; it is empty if it does nothing to them.
func findChange(f *ast.FuncDecl, changing map[string]bool) string {
	given, values := givenNames(f)
	change := ""
	ast.Inspect(f.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i, to := range n.Lhs {
				s, isField := to.(*ast.SelectorExpr)
				isCopy := isField && values[rootOf(to)] && isName(s.X)
				if isName(to) {
					given[rootOf(to)] = len(n.Lhs) == len(n.Rhs) && given[rootOf(n.Rhs[i])]
				} else if given[rootOf(to)] && !isCopy {
					change = "assigns to " + rootOf(to)
				}
			}
		case *ast.IncDecStmt:
			if given[rootOf(n.X)] && !isName(n.X) {
				change = "counts in " + rootOf(n.X)
			}
		case *ast.CallExpr:
			name, on := n.Fun, ""
			if s, ok := name.(*ast.SelectorExpr); ok {
				name, on = s.Sel, rootOf(s.X)
			}
			isGiven := given[on] || slices.ContainsFunc(n.Args, func(a ast.Expr) bool { return on == "" && given[rootOf(a)] })
			if id, ok := name.(*ast.Ident); ok && changing[id.Name] && isGiven {
				change = "calls " + id.Name
			}
		}
		return true
	})
	return change
}

// givenNames has the names of the receiver and the parameters, and which of these have a named type, like those of copied structs.
func givenNames(f *ast.FuncDecl) (given, values map[string]bool) {
	given, values = map[string]bool{}, map[string]bool{}
	for _, field := range f.Type.Params.List {
		for _, name := range field.Names {
			_, isQualified := field.Type.(*ast.SelectorExpr)
			given[name.Name], values[name.Name] = true, isQualified || isName(field.Type)
		}
	}
	if f.Recv != nil {
		for _, name := range f.Recv.List[0].Names {
			given[name.Name] = true
		}
	}
	return given, values
}

func isName(e ast.Expr) bool {
	_, ok := e.(*ast.Ident)
	return ok
}

// rootOf returns the name with which an expression begins: "a" of a.b[i].c and &a.b; it is empty for other expressions.
func rootOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return rootOf(e.X)
	case *ast.IndexExpr:
		return rootOf(e.X)
	case *ast.UnaryExpr:
		return rootOf(e.X)
	case *ast.ParenExpr:
		return rootOf(e.X)
	}
	return ""
}
