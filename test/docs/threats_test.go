// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestThreats checks that every test that docs/internals/threat-model.md names exists in the package that it names.
func TestThreats(t *testing.T) {
	text, err := os.ReadFile("../../docs/internals/threat-model.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 3 || !strings.Contains(cells[2], "Test") {
			continue
		}
		for entry := range strings.SplitSeq(cells[2], ";") {
			folder, names, isTest := strings.Cut(strings.TrimSpace(entry), " ")
			if !isTest {
				continue
			}
			for name := range strings.SplitSeq(names, ",") {
				found++
				if !hasTest(t, folder, strings.TrimSpace(name)) {
					t.Errorf("%s has no test %s: %s", folder, strings.TrimSpace(name), strings.TrimSpace(cells[0]))
				}
			}
		}
	}
	if found < 30 {
		t.Errorf("only %d tests are named", found)
	}
}

func hasTest(t *testing.T, folder, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../..", folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "\nfunc "+name+"(t *testing.T) {") || strings.Contains(string(text), "\nfunc "+name+"(f *testing.F) {") {
			return true
		}
	}
	return false
}
