// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../.."

// TestList checks that every fault can still be planted: its text is in the tree exactly once, the file parses with it,
// and there are tests that have to notice it.
func TestList(t *testing.T) {
	all, err := parseList(listText)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 60 {
		t.Errorf("there are %d faults, and at least 60 are promised", len(all))
	}
	seen := map[string]bool{}
	for _, m := range all {
		if key := m.file + m.old + m.new; seen[key] {
			t.Errorf("mutations.txt:%d: the fault is listed twice", m.line)
		} else {
			seen[key] = true
		}
		for _, tests := range testsFor(m.file) {
			if _, err := os.Stat(filepath.Join(root, strings.TrimSuffix(tests[0], "/..."))); err != nil {
				t.Errorf("mutations.txt:%d: the tests of %s: %v", m.line, m.file, err)
			}
		}
		if m.rule == "" {
			t.Errorf("mutations.txt:%d: it names no rule", m.line)
		}
		text, err := m.apply(root)
		if err != nil {
			t.Error(err)
			continue
		}
		if _, err := parser.ParseFile(token.NewFileSet(), m.file, text, 0); err != nil {
			t.Errorf("mutations.txt:%d: %v", m.line, err)
		}
	}
}

func TestParseListRefusesBrokenLines(t *testing.T) {
	for _, line := range []string{"a.go :: x => y", "a.go :: x :: rule", "a.go :: x => x :: rule"} {
		if _, err := parseList(line); err == nil {
			t.Errorf("%q is accepted", line)
		}
	}
}

func TestApplyWantsTheTextOnce(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.go"), []byte("package a\n\nvar x = 1 + 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for old, want := range map[string]string{"1": "2 times", "gone": "0 times"} {
		_, err := mutation{line: 7, file: "a.go", old: old, new: "0"}.apply(dir)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "mutations.txt:7") {
			t.Errorf("replacing %q: %v", old, err)
		}
	}
	text, err := mutation{file: "a.go", old: "x = 1", new: "x = 2"}.apply(dir)
	if err != nil || !strings.Contains(string(text), "x = 2 + 1") {
		t.Errorf("%s: %v", text, err)
	}
}

// TestParts checks that the parts together are the whole list, whichever number a run counts from.
func TestParts(t *testing.T) {
	all := make([]mutation, 10)
	for i := range all {
		all[i].line = i
	}
	var got []mutation
	for k := range 3 {
		got = append(got, part(all, k+9, 3)...)
	}
	if len(got) != len(all) {
		t.Errorf("three parts have %d faults", len(got))
	}
}
