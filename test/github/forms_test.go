// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package github

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// form is what GitHub reads of an issue form.
type form struct {
	Name, Description string
	Labels            []string
	Body              []struct {
		Type, ID    string
		Attributes  struct{ Label, Description, Render, Placeholder string }
		Validations struct{ Required bool }
	}
}

// TestForms checks the issue forms as GitHub does: keys, unique identifiers and labels; and that the labels exist.
func TestForms(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, ".github", "ISSUE_TEMPLATE", "*.yml"))
	if err != nil || len(files) < 4 {
		t.Fatalf("the forms are %v, %v", files, err)
	}
	labels := labelNames(t)
	for _, file := range files {
		if filepath.Base(file) == "config.yml" {
			continue
		}
		var f form
		readYAML(t, file, &f)
		if f.Name == "" || f.Description == "" || len(f.Body) == 0 {
			t.Errorf("%s needs name, description and body", file)
		}
		for _, label := range f.Labels {
			if !slices.Contains(labels, label) {
				t.Errorf("%s: the label %q is not in labels.txt", file, label)
			}
		}
		var ids, names []string
		for _, field := range f.Body {
			if !slices.Contains([]string{"input", "textarea"}, field.Type) || field.ID == "" || field.Attributes.Label == "" {
				t.Errorf("%s: %+v needs a type, an id and a label", file, field)
			}
			if slices.Contains(ids, field.ID) || slices.Contains(names, field.Attributes.Label) {
				t.Errorf("%s: the id %s or its label is there twice", file, field.ID)
			}
			ids, names = append(ids, field.ID), append(names, field.Attributes.Label)
		}
	}
}

// readYAML reads a file and refuses unknown keys.
func readYAML(t *testing.T, file string, into any) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	d := yaml.NewDecoder(f)
	d.KnownFields(true)
	if err := d.Decode(into); err != nil {
		t.Errorf("%s: %v", file, err)
	}
}

// contact finds addresses of mail, and people and teams of GitHub.
var contact = regexp.MustCompile(`[\w.+-]+@[\w-]+(?:\.[\w-]+)+|@[a-z0-9-]+/[a-z0-9-]+`)

// TestContacts checks that pages for contributors name the contacts of .github/contacts.yaml and no others, that each is named somewhere, and lists
// those that are still placeholders.
func TestContacts(t *testing.T) {
	var contacts map[string]string
	readYAML(t, filepath.Join(root, ".github", "contacts.yaml"), &contacts)
	places := map[string][]string{}
	for _, page := range []string{"SECURITY.md", "CODE_OF_CONDUCT.md", "GOVERNANCE.md", "MAINTAINERS.md", "CONTRIBUTING.md", "ADOPTERS.md", "ROADMAP.md", ".github/CODEOWNERS", "docs/security.md"} {
		content, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range contact.FindAllString(string(content), -1) {
			places[found] = append(places[found], page)
		}
	}
	for role, address := range contacts {
		if places[address] == nil {
			t.Errorf("%s (%s) is named nowhere", role, address)
		}
		if strings.HasSuffix(address, ".example.com") {
			t.Logf("%s is a placeholder: %s, in %v", role, address, places[address])
		}
		delete(places, address)
	}
	for address, pages := range places {
		t.Errorf("%v name %s, which is not in .github/contacts.yaml", pages, address)
	}
}

// TestOwners checks that each pattern of CODEOWNERS has an owner.
func TestOwners(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(root, ".github", "CODEOWNERS"))
	if err != nil {
		t.Fatal(err)
	}
	rules := 0
	for line := range strings.Lines(string(content)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		rules++
		if fields := strings.Fields(line); len(fields) < 2 || !contact.MatchString(fields[1]) {
			t.Errorf("CODEOWNERS: %q has no owner", line)
		}
	}
	if rules == 0 {
		t.Error("CODEOWNERS has no rule")
	}
}
