// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestPage: the page for authors lists each rule that has a test case, and otherwise only those of images.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/packages-authoring.md")
	if err != nil {
		t.Fatal(err)
	}
	cases, err := os.ReadFile("testdata/rules.txt")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| (?:error|warning) \\|").FindAllStringSubmatch(string(page), -1) {
		if !strings.HasPrefix(m[1], "image-") {
			listed = append(listed, m[1])
		}
	}
	told := []string{"no-uninstall"} // in TestCoverage
	for _, m := range regexp.MustCompile(`(?m)^(?:error|warning): .* \[([a-z-]+)\]$`).FindAllStringSubmatch(string(cases), -1) {
		told = append(told, m[1])
	}
	slices.Sort(listed)
	slices.Sort(told)
	if told = slices.Compact(told); !slices.Equal(listed, told) {
		t.Errorf("the page lists\n%v, there are cases for\n%v", listed, told)
	}
}
