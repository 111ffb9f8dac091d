// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestHubChanges: Artifact Hub gets the first sentence of each change without links, and not too many of them.
func TestHubChanges(t *testing.T) {
	const changes = "Something before.\n\n### Nodes\n\n- A node: is \"ready\" ([docs/a.md](docs/a.md)). It was\n  not.\n- A long\n  line.\n\n  More of it.\n- `x`\n"
	want := []string{`A node: is "ready" (docs/a.md)`, "A long line", "`x`"}
	if got := readHubChanges(t, changes); !slices.Equal(got, want) {
		t.Errorf("the changes are %q, want %q", got, want)
	}
	many := readHubChanges(t, strings.Repeat("- Another change.\n", 100))
	if len(many) != mostHubChanges+1 || !strings.Contains(many[mostHubChanges], "CHANGELOG.md") {
		t.Errorf("of 100 changes there are %d, the last is %q", len(many), many[len(many)-1])
	}
	if out, err := addHubChanges([]byte("name: x\n"), "Nothing."); err != nil || string(out) != "name: x\n" {
		t.Errorf("without changes: %q, %v", out, err)
	}
}

func readHubChanges(t *testing.T, changes string) []string {
	t.Helper()
	about, err := addHubChanges([]byte("name: x\nannotations:\n  a: b\n"), changes)
	if err != nil {
		t.Fatal(err)
	}
	var chart struct{ Annotations map[string]string }
	if err := yaml.Unmarshal(about, &chart); err != nil {
		t.Fatalf("%v:\n%s", err, about)
	}
	var got []string
	if err := yaml.Unmarshal([]byte(chart.Annotations["artifacthub.io/changes"]), &got); err != nil {
		t.Fatal(err)
	}
	return got
}
