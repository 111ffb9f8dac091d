// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func page(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "docs", "packages.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// TestDocsExamples: the package of the docs is valid, and its message is one.
func TestDocsExamples(t *testing.T) {
	for kind, check := range map[string]func(string){
		"json": func(text string) {
			if _, found := Parse([]byte(text)); len(found) > 0 {
				t.Error(found.Text())
			}
		},
		"json message": func(text string) {
			m, ok := DecodeMessage(text)
			if !ok || m.Class.ExitCode() != 1 || m.Outcome != m.Class.Outcome() {
				t.Errorf("%v: %+v", ok, m)
			}
		},
	} {
		blocks := regexp.MustCompile("(?s)\n```"+kind+"\n(.*?)\n```").FindAllStringSubmatch(page(t), -1)
		if len(blocks) == 0 {
			t.Errorf("there is no example of %s", kind)
		}
		for _, b := range blocks {
			check(b[1])
		}
	}
}

// TestDocsClasses: the table of exit codes is the code's.
func TestDocsClasses(t *testing.T) {
	var want, got []string
	for _, row := range classes {
		class := ""
		if row.class != "" {
			class = " `" + string(row.class) + "`"
		}
		want = append(want, fmt.Sprintf("%d |%s | %v", row.code, class, row.outcome == Failed))
	}
	for _, m := range regexp.MustCompile("(?m)^\\| (\\d+) \\|( `\\w+`)? \\|.*\\| (yes|no) \\|$").FindAllStringSubmatch(page(t), -1) {
		got = append(got, fmt.Sprintf("%s |%s | %v", m[1], m[2], m[3] == "yes"))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestDocsNames: every key, mode, variable of a step and rule is on the page,
// and no rule that there is not.
func TestDocsNames(t *testing.T) {
	text := page(t)
	var all []string
	all = append(all, slices.Collect(maps.Keys(rootKeys))...)
	all = append(all, stepKeys...)
	all = append(all, reserved...)
	all = append(all, EnvNodeOrder, EnvResourceID, EnvRunID, EnvDeadline, StepDir, OverlayDir, "requires_interrupt")
	for _, m := range Modes() {
		if m.HasSteps() {
			all = append(all, string(m))
		}
	}
	for _, name := range all {
		if !strings.Contains(text, "`"+name+"`") {
			t.Errorf("%s is not on the page", name)
		}
	}

	documented := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| (error|warning|error, warning) \\|").FindAllStringSubmatch(text, -1) {
		documented[m[1]] = m[2]
	}
	used := map[string]string{}
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	note := func(rule, severity string) {
		if !strings.Contains(used[rule], severity) {
			used[rule] = strings.Join(slices.Sorted(slices.Values(append(strings.FieldsFunc(used[rule], func(r rune) bool { return r == ',' || r == ' ' }), severity))), ", ")
		}
	}
	for _, file := range sources {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\.(fail|warn)\("([a-z-]+)"`).FindAllStringSubmatch(string(source), -1) {
			note(m[2], map[string]string{"fail": "error", "warn": "warning"}[m[1]])
		}
		for _, m := range regexp.MustCompile(`Severity: (Error|Warning), Rule: "([a-z-]+)"`).FindAllStringSubmatch(string(source), -1) {
			note(m[2], strings.ToLower(m[1]))
		}
		for _, m := range regexp.MustCompile(`Severity: severity, Rule: "([a-z-]+)"`).FindAllStringSubmatch(string(source), -1) {
			note(m[1], "error")
			note(m[1], "warning")
		}
		for _, m := range regexp.MustCompile(`(?:return |in\.add\(l\.\w+, |: +\{)"([a-z-]+)", `).FindAllStringSubmatch(string(source), -1) {
			note(m[1], "error")
		}
	}
	if diff := cmp.Diff(used, documented); diff != "" {
		t.Errorf("rules of the code (-) and of the page (+):\n%s", diff)
	}
}
