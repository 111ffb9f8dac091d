// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	diff "github.com/google/go-cmp/cmp"
	crd "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// readCRDs reads the generated CRDs, by the lower-case name of their kind.
func readCRDs(t *testing.T) map[string]*crd.CustomResourceDefinition {
	t.Helper()
	files, err := filepath.Glob("../chart/files/crds/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]*crd.CustomResourceDefinition{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		c := &crd.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(text, c); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		found[c.Spec.Names.Singular] = c
	}
	if len(found) != len(kinds) {
		t.Fatalf("%d CRDs, want %d", len(found), len(kinds))
	}
	return found
}

// field is one place in the schema of a kind. Its path has {} below a map and [] below a list.
type field struct {
	path     string
	schema   crd.JSONSchemaProps
	required bool
}

// listFields walks the schema of a kind, parents first, names in order. It does not descend into types of Kubernetes,
// whose schema and bounds are not ours.
func listFields(c *crd.CustomResourceDefinition) []field {
	var all []field
	var walk func(path string, s crd.JSONSchemaProps, required bool)
	walk = func(path string, s crd.JSONSchemaProps, required bool) {
		if path != "" {
			all = append(all, field{path, s, required})
		}
		for _, foreign := range []string{".valueFrom", ".additionalTolerations[]", ".tolerations[]", ".conditions[]", ".imagePullSecrets[]", "spec.resources"} {
			if strings.HasSuffix(path, foreign) {
				return
			}
		}
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			walk(strings.TrimPrefix(path+"."+name, "."), s.Properties[name], slices.Contains(s.Required, name))
		}
		if s.AdditionalProperties != nil {
			walk(path+"{}", *s.AdditionalProperties.Schema, false)
		}
		if s.Items != nil {
			walk(path+"[]", *s.Items.Schema, false)
		}
	}
	walk("", *c.Spec.Versions[0].Schema.OpenAPIV3Schema, true)
	return all
}

// TestBounds checks that every string, list and map of our schemas has a bound.
func TestBounds(t *testing.T) {
	for kind, c := range readCRDs(t) {
		for _, f := range listFields(c) {
			if slices.Contains([]string{"apiVersion", "kind", "metadata"}, f.path) {
				continue
			}
			s := f.schema
			switch {
			case (s.Type == "string" || s.XIntOrString) && s.MaxLength == nil && s.Enum == nil && s.Format != "date-time":
				t.Errorf("%s %s: a string without maxLength", kind, f.path)
			case s.Type == "array" && s.MaxItems == nil:
				t.Errorf("%s %s: a list without maxItems", kind, f.path)
			case s.Type == "array" && s.XListType == nil:
				t.Errorf("%s %s: a list without x-kubernetes-list-type", kind, f.path)
			case s.AdditionalProperties != nil && s.MaxProperties == nil:
				t.Errorf("%s %s: a map without maxProperties", kind, f.path)
			case s.XPreserveUnknownFields != nil && f.path != "spec.handover[].object": // policy.FindProblems bounds it
				t.Errorf("%s %s: keeps unknown fields", kind, f.path)
			}
		}
	}
}

// TestDescriptions checks that kubectl explain shows a sentence for every field.
func TestDescriptions(t *testing.T) {
	for kind, c := range readCRDs(t) {
		for _, f := range listFields(c) {
			if strings.HasSuffix(f.path, "{}") || strings.HasSuffix(f.path, "[]") || f.path == "metadata" {
				continue // the parent has the description
			}
			if !strings.HasSuffix(f.schema.Description, ".") && !strings.Contains(f.schema.Description, "More info") {
				t.Errorf("%s %s: description %q is not a sentence", kind, f.path, f.schema.Description)
			}
		}
	}
}

// TestFields pins every field of the wire format with its type, default and bounds. Removing or changing a field breaks
// users; a new one shows in the diff.
func TestFields(t *testing.T) {
	var b strings.Builder
	all := readCRDs(t)
	for _, kind := range slices.Sorted(maps.Keys(all)) {
		for _, f := range listFields(all[kind]) {
			fmt.Fprintf(&b, "%s %s\n", kind, describeField(f))
		}
	}
	compareGolden(t, "testdata/fields.txt", b.String())
}

// TestPublished checks that the documented wire format of the predecessors is supported: testdata/published.txt was
// written from their documentation and is never generated. Our field must have every word of a line.
func TestPublished(t *testing.T) {
	text, err := os.ReadFile("testdata/published.txt")
	if err != nil {
		t.Fatal(err)
	}
	ours := map[string][]string{}
	for kind, c := range readCRDs(t) {
		for _, f := range listFields(c) {
			ours[kind+" "+f.path] = strings.Split(describeField(f), " ")
		}
	}
	seen := 0
	for l := range strings.Lines(string(text)) {
		words := strings.Fields(l)
		if len(words) == 0 || strings.HasPrefix(l, "#") {
			continue
		}
		seen++
		have, found := ours[words[0]+" "+words[1]]
		if !found {
			t.Errorf("%s %s was removed", words[0], words[1])
			continue
		}
		for _, w := range words[2:] {
			name, forbidden := strings.CutPrefix(w, "!")
			there := slices.ContainsFunc(have[1:], func(h string) bool {
				return h == name || forbidden && strings.HasPrefix(h, name+"=")
			})
			if there == forbidden {
				t.Errorf("%s %s: %q does not match, it has %q", words[0], words[1], w, have[1:])
			}
		}
	}
	if seen < 177 {
		t.Errorf("only %d published fields: entries were removed", seen)
	}
}

// describeField returns a line with the path, the type and every constraint of a field.
func describeField(f field) string {
	s := f.schema
	words := []string{f.path, s.Type}
	if s.XIntOrString {
		words[1] = "int-or-string"
	}
	add := func(name string, value any, given bool) {
		if given {
			text, err := json.Marshal(value)
			if err != nil {
				panic(err)
			}
			words = append(words, name+"="+strings.Trim(string(text), `"`))
		}
	}
	if f.required {
		words = append(words, "required")
	}
	if s.Nullable {
		words = append(words, "nullable")
	}
	add("format", s.Format, s.Format != "")
	if s.Default != nil {
		words = append(words, "default="+strings.ReplaceAll(string(s.Default.Raw), " ", ""))
	}
	if s.Enum != nil {
		var values []string
		for _, e := range s.Enum {
			values = append(values, strings.Trim(string(e.Raw), `"`))
		}
		slices.Sort(values)
		words = append(words, "enum="+strings.Join(values, ","))
	}
	add("min", s.Minimum, s.Minimum != nil)
	add("max", s.Maximum, s.Maximum != nil)
	add("minLength", s.MinLength, s.MinLength != nil)
	add("maxLength", s.MaxLength, s.MaxLength != nil)
	add("maxItems", s.MaxItems, s.MaxItems != nil)
	add("maxProperties", s.MaxProperties, s.MaxProperties != nil)
	add("list", s.XListType, s.XListType != nil && *s.XListType != "atomic")
	if s.XListMapKeys != nil {
		words = append(words, "keys="+strings.Join(s.XListMapKeys, ","))
	}
	return strings.Join(words, " ")
}

// wordsOfPredecessors are the values of enums that the predecessors have and that are not in CamelCase.
var wordsOfPredecessors = map[string]string{
	"nodeStatus": "blocked,complete,disabled,erroring,in_progress,paused,unknown,waiting",
	"sequencing": "all,node",
	"stage":      "apply,config,interrupt,post-interrupt,uninstall,uninstall-interrupt,upgrade",
	"state":      "complete,erroring,in_progress,skipped,unknown",
	"status":     "blocked,complete,disabled,erroring,in_progress,paused,unknown,waiting",
	"type":       "noop,reboot,restartAllServices,service",
}

// TestEnums checks that values of enums are in CamelCase, as the API conventions of Kubernetes want it.
func TestEnums(t *testing.T) {
	camelCase := regexp.MustCompile("^([A-Z][a-z]+)+$")
	for kind, c := range readCRDs(t) {
		for _, f := range listFields(c) {
			var values []string
			for _, e := range f.schema.Enum {
				values = append(values, strings.Trim(string(e.Raw), `"`))
			}
			slices.Sort(values)
			name := strings.TrimSuffix(f.path[strings.LastIndex(f.path, ".")+1:], "{}")
			isOurs := wordsOfPredecessors[name] != strings.Join(values, ",")
			if i := slices.IndexFunc(values, func(v string) bool { return !camelCase.MatchString(v) }); i >= 0 && isOurs {
				t.Errorf("%s %s: the value %q is not in CamelCase", kind, f.path, values[i])
			}
		}
	}
}

// TestKinds pins what kubectl shows: names, scope and columns.
func TestKinds(t *testing.T) {
	var b strings.Builder
	all := readCRDs(t)
	for _, kind := range slices.Sorted(maps.Keys(all)) {
		c := all[kind]
		v := c.Spec.Versions[0]
		fmt.Fprintf(&b, "%s %s/%s %s short %v categories %v\n", c.Name, c.Spec.Names.Kind, v.Name, c.Spec.Scope, c.Spec.Names.ShortNames, c.Spec.Names.Categories)
		names := c.Spec.Names
		for _, category := range names.Categories {
			if slices.Contains(append([]string{names.Plural, names.Singular}, names.ShortNames...), category) {
				// kubectl resolves categories first: "kubectl delete skyhook demo" would select four kinds.
				t.Errorf("%s: the category %s is a name of the kind as well", kind, category)
			}
		}
		fmt.Fprintf(&b, "  served %v stored %v status %v scale %v\n", v.Served, v.Storage, v.Subresources.Status != nil, v.Subresources.Scale != nil)
		for _, col := range v.AdditionalPrinterColumns {
			fmt.Fprintf(&b, "  %-18s %-8s %s%s\n", col.Name, col.Type, col.JSONPath, strings.Repeat(" (wide)", int(col.Priority)))
		}
		if c.Spec.Conversion != nil {
			t.Errorf("%s: has a conversion", kind)
		}
	}
	compareGolden(t, "testdata/kinds.txt", b.String())
}

// compareGolden compares with a file, or writes it with -update.
func compareGolden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := diff.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got):\n%s", file, d)
	}
}

// TestDocumentation compares the table of rules in docs/api-validation.md.
func TestDocumentation(t *testing.T) {
	const file, from, to = "../docs/api-validation.md", "<!-- rules: written by the API tests -->\n", "<!-- end of rules -->\n"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, found := strings.Cut(string(text), from)
	_, tail, ended := strings.Cut(rest, to)
	if !found || !ended {
		t.Fatalf("%s has lost its markers", file)
	}
	var b strings.Builder
	all := readCRDs(t)
	for _, kind := range []string{"skyhook", "deploymentpolicy", "nodeop", "nodeopupgrade"} {
		c := all[kind]
		fmt.Fprintf(&b, "\n### %s\n\n| Field | Refused with |\n|---|---|\n", c.Spec.Names.Kind)
		for _, f := range append([]field{{schema: *c.Spec.Versions[0].Schema.OpenAPIV3Schema}}, listFields(c)...) {
			for _, rule := range f.schema.XValidations {
				path := strings.NewReplacer("{}", "[*]", "[]", "[*]").Replace(f.path + rule.FieldPath)
				fmt.Fprintf(&b, "| `%s` | %s |\n", cmp.Or(strings.TrimPrefix(path, "."), "metadata.name"), strings.ReplaceAll(rule.Message, "|", `\|`))
			}
		}
	}
	compareGolden(t, file, head+from+b.String()+"\n"+to+tail)
}
