// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package lint finds in a package's scripts what the package format itself has no rules for: shell that cannot be read,
// and habits that go wrong on hosts. It also reports which stages the steps of a package cover.
//
// Errors cannot work. Warnings may fail in some situation.
package lint

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// maxScript is the maximum size of a script that is checked.
const maxScript = 1 << 20

// script is one shell file of the package.
type script struct {
	name      string // relative to the package
	lang      syntax.LangVariant
	action    bool // a step of a mode that acts
	preflight bool // a step of a preflight
	text      string
	found     pack.Problems
}

// Scripts checks every shell script that the steps of a package run or may run.
func Scripts(pkg fs.FS, c pack.Config) pack.Problems {
	var found pack.Problems
	for _, s := range findScripts(pkg, c) {
		found = append(found, s.findProblems()...)
	}
	found = append(found, checkAnswer(pkg, c)...)
	if c.Modes != nil && len(c.Steps(pack.ModeUninstall)) == 0 && len(c.Steps(pack.ModeApply))+len(c.Steps(pack.ModeConfig)) > 0 {
		found = append(found, pack.Problem{
			Severity: pack.Warning, Rule: "no-uninstall", File: pack.ConfigFile, Path: "$.modes",
			Message: "no step undoes what the package did", Fix: "add uninstall steps and a check that nothing is left; if no earlier version can follow this one, also write \"rollback\": false",
		})
	}
	return found
}

// findScripts lists the shell files: those of steps, and others named *.sh. It skips files for the host's root and
// test data.
func findScripts(pkg fs.FS, c pack.Config) []*script {
	steps, preflights := map[string]bool{}, map[string]bool{} // whether the step acts, and whether a preflight runs it
	for _, m := range pack.Modes() {
		for _, s := range c.Steps(m) {
			name := path.Join(pack.StepDir, s.File())
			steps[name] = steps[name] || !m.IsReadOnly()
			preflights[name] = preflights[name] || m == pack.ModePreflight
		}
	}
	var out []*script
	// Unreadable files are reported by the rules of the package format.
	_ = fs.WalkDir(pkg, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil
		case d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || name == pack.OverlayDir || name == pack.ConfigMapDir):
			return fs.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		action, isStep := steps[name]
		if !isStep && !strings.HasSuffix(name, ".sh") {
			return nil
		}
		if s := readScript(pkg, name); s != nil {
			s.action, s.preflight = action, preflights[name]
			out = append(out, s)
		}
		return nil
	})
	return out
}

// readScript returns a shell script, or nil for a file of another kind.
func readScript(pkg fs.FS, name string) *script {
	info, err := fs.Stat(pkg, name)
	if err != nil || info.Size() > maxScript {
		return nil
	}
	content, err := fs.ReadFile(pkg, name)
	if err != nil {
		return nil
	}
	s := &script{name: name, text: string(content), lang: syntax.LangBash}
	first, _, _ := strings.Cut(s.text, "\n")
	words := strings.Fields(strings.TrimPrefix(first, "#!"))
	if !strings.HasPrefix(first, "#!") || len(words) == 0 {
		return s // without #!: other scripts source it
	}
	if path.Base(words[0]) == "env" {
		words = slices.DeleteFunc(words[1:], func(w string) bool { return strings.HasPrefix(w, "-") })
	}
	if len(words) == 0 {
		return nil
	}
	switch path.Base(words[0]) {
	case "bash":
	case "sh", "dash", "ash":
		s.lang = syntax.LangPOSIX
	case "ksh", "mksh":
		s.lang = syntax.LangMirBSDKorn
	default:
		return nil
	}
	return s
}

// findProblems applies all rules.
func (s *script) findProblems() pack.Problems {
	file, err := syntax.NewParser(syntax.Variant(s.lang)).Parse(strings.NewReader(s.text), "")
	if err != nil && s.lang == syntax.LangPOSIX {
		if bash, errBash := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(s.text), ""); errBash == nil {
			line, what := splitError(err)
			s.addBashism(line, what)
			file, err = bash, nil
		}
	}
	if err != nil {
		line, what := splitError(err)
		s.add(pack.Error, "shell-syntax", line, what, "correct it; bash -n "+s.name+" says the same")
		return s.found
	}
	s.checkHabits(file)
	if s.preflight {
		s.checkPreflight(file)
	}
	slices.SortStableFunc(s.found, func(a, b pack.Problem) int { return cmp.Compare(a.Rule, b.Rule) })
	return s.found
}

// splitError returns the line and the message of a parser's error.
func splitError(err error) (line uint, what string) {
	var parse syntax.ParseError
	var lang syntax.LangError
	switch {
	case errors.As(err, &parse):
		return parse.Pos.Line(), parse.Text
	case errors.As(err, &lang):
		return lang.Pos.Line(), lang.Feature
	}
	return 0, err.Error()
}

func (s *script) add(severity pack.Severity, rule string, line uint, message, fix string) {
	if line > 0 {
		message = fmt.Sprintf("line %d: %s", line, message)
	}
	s.found = append(s.found, pack.Problem{Severity: severity, Rule: rule, File: s.name, Message: message, Fix: fix})
}

func (s *script) addBashism(line uint, what string) {
	s.add(pack.Warning, "bash-in-sh", line, "it is run by sh and uses what only bash has: "+what, "start it with #!/bin/bash")
}

func (s *script) warn(rule string, at syntax.Node, message, fix string) {
	s.add(pack.Warning, rule, at.Pos().Line(), message, fix)
}
