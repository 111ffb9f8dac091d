// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// pageOfKind maps each kind to its page.
var pageOfKind = map[string]string{
	"Skyhook": "docs/skyhook.md", "DeploymentPolicy": "docs/deployment-policy.md", "NodeOp": "docs/nodeop.md", "NodeOpUpgrade": "docs/nodeop.md",
}

// explainedElsewhere maps a field, of any kind or of one, to the page that explains its content. The page of the kind links to it.
var explainedElsewhere = map[string]string{
	"status.internal": "docs/api/skyhook.nvidia.com.md", "NodeOp.status.internal": "docs/api/operator.kairos.io.md",
	"status.internal.admission": "docs/api/skyhook.nvidia.com.md", "status.internal.batches": "docs/api/skyhook.nvidia.com.md",
	"status.compartmentStatuses": "docs/deployment-policy.md", "spec.proof": "docs/proof.md", "spec.handover": "docs/handover.md",
	"spec.rollback": "docs/rollback.md", "status.rollback": "docs/rollback.md", "spec.drift": "docs/drift.md", "spec.nodeMarks": "docs/node-marks.md",
	"spec.drainConfig": "docs/interrupt_flow.md", "spec.drainOptions": "docs/interrupt_flow.md", "status.drains": "docs/interrupt_flow.md",
	"status.nodeStatuses.drain": "docs/interrupt_flow.md",
}

// kubernetesField matches fields with types of Kubernetes, which its own documentation explains.
var kubernetesField = regexp.MustCompile(`(^|\.)(env|nodeSelectors?|selector|podSelector|podNonInterruptLabels|tolerations|additionalTolerations|spec\.resources)$`)

// property is a part of a schema.
type property struct {
	Properties           map[string]property
	Items                *property
	AdditionalProperties *property
	Enum                 []string
}

// kind is the used part of a CRD.
type kind struct {
	Spec struct {
		Names    struct{ Kind string }
		Versions []struct {
			Schema struct {
				OpenAPIV3Schema property
			}
		}
	}
}

// TestFieldsExplained checks that the page of each kind names each field and each value of its enumerations.
func TestFieldsExplained(t *testing.T) {
	dir, err := repositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "chart", "files", "crds", "*.yaml"))
	if err != nil || len(files) != len(pageOfKind) {
		t.Fatalf("the CRDs are %v, and pages explain %d kinds: %v", files, len(pageOfKind), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var k kind
		if err := yaml.Unmarshal(text, &k); err != nil {
			t.Fatal(err)
		}
		page := pageOfKind[k.Spec.Names.Kind]
		if page == "" || len(k.Spec.Versions) != 1 {
			t.Fatalf("no page explains %s, or it has %d versions", k.Spec.Names.Kind, len(k.Spec.Versions))
		}
		whole := k.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties
		r := &schemaCheck{T: t, dir: dir, kind: k.Spec.Names.Kind, words: map[string]map[string]bool{}}
		r.checkFields(page, "spec", whole["spec"])
		r.checkFields(page, "status", whole["status"])
		if r.count < 20 {
			t.Errorf("%s has only %d fields", r.kind, r.count)
		}
	}
}

// schemaCheck walks through the schema of a kind.
type schemaCheck struct {
	*testing.T
	dir, kind string
	words     map[string]map[string]bool // inline code by page
	count     int
}

// checkFields checks all fields below a path on a page.
func (r *schemaCheck) checkFields(page, path string, of property) {
	if other := cmp.Or(explainedElsewhere[r.kind+"."+path], explainedElsewhere[path]); other != "" && other != page {
		home := pageOfKind[r.kind]
		if text, err := os.ReadFile(filepath.Join(r.dir, home)); err != nil || !strings.Contains(string(text), "]("+strings.TrimPrefix(other, "docs/")) {
			r.Errorf("%s: %s.%s is explained in %s, to which there is no link: %v", home, r.kind, path, other, err)
		}
		page = other
	}
	if r.words[page] == nil {
		r.words[page] = codeWords(r.T, filepath.Join(r.dir, page))
	}
	if strings.HasSuffix(path, "status.conditions") || kubernetesField.MatchString(path) {
		return
	}
	for _, value := range of.Enum {
		if value != "" && !r.words[page][value] {
			r.Errorf("%s does not explain the value %s of %s.%s", page, value, r.kind, path)
		}
	}
	if of.Items != nil {
		r.checkFields(page, path, *of.Items)
	}
	if of.AdditionalProperties != nil {
		r.checkFields(page, path, *of.AdditionalProperties)
	}
	for _, name := range slices.Sorted(maps.Keys(of.Properties)) {
		r.count++
		if !r.words[page][name] {
			r.Errorf("%s does not explain %s.%s.%s", page, r.kind, path, name)
		}
		r.checkFields(page, path+"."+name, of.Properties[name])
	}
}

// wordPattern matches a word of inline code.
var wordPattern = regexp.MustCompile(`[A-Za-z][A-Za-z0-9_-]*`)

// codeWords collects the words of a page's inline code. Examples do not count, because they explain nothing.
func codeWords(t *testing.T, file string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, piece := range inlinePattern.FindAllString(fencedPattern.ReplaceAllString(string(text), ""), -1) {
		for _, w := range wordPattern.FindAllString(piece, -1) {
			found[w] = true
		}
	}
	return found
}

// TestConditionsExplained checks that the pages of a kind name each of its conditions and their reasons.
func TestConditionsExplained(t *testing.T) {
	dir, err := repositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	for source, pages := range map[string][]string{
		"api/skyhook/v1alpha1/keys.go": {"docs/skyhook.md", "docs/deployment-policy.md"}, "api/nodeop/v1alpha1/keys.go": {"docs/nodeop.md"},
	} {
		said := map[string]bool{}
		for _, page := range pages {
			maps.Copy(said, codeWords(t, filepath.Join(dir, page)))
		}
		names := constantValues(t, filepath.Join(dir, source))
		if len(names) < 10 {
			t.Errorf("%s has only the conditions and reasons %v", source, names)
		}
		for _, name := range names {
			if !said[name] {
				t.Errorf("%v do not explain the condition or reason %s", pages, name)
			}
		}
	}
}

// constantValues returns the values of constants whose names begin with Condition or Reason, without a group.
func constantValues(t *testing.T, file string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	ast.Inspect(parsed, func(n ast.Node) bool {
		v, is := n.(*ast.ValueSpec)
		if !is || !strings.HasPrefix(v.Names[0].Name, "Condition") && !strings.HasPrefix(v.Names[0].Name, "Reason") {
			return true
		}
		ast.Inspect(v.Values[0], func(n ast.Node) bool {
			if l, is := n.(*ast.BasicLit); is {
				value, err := strconv.Unquote(l.Value)
				if err != nil {
					t.Fatal(err)
				}
				found = append(found, strings.TrimPrefix(value, "/"))
			}
			return true
		})
		return true
	})
	return found
}
