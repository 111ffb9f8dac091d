// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	crd "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apimachinery/pkg/util/version"
	config "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/Masterminds/semver/v3"
	"github.com/rogpeppe/go-internal/txtar"
	"sigs.k8s.io/yaml"
)

// oldest is the oldest supported Kubernetes version; the rules use only functions that it has.
var oldest = version.MajorMinor(1, 30)

// TestOldestKubernetes compiles every rule with the functions that the oldest supported Kubernetes has.
func TestOldestKubernetes(t *testing.T) {
	rules := 0
	for kind, c := range readCRDs(t) {
		var walk func(path string, s *schema.Structural, root bool)
		walk = func(path string, s *schema.Structural, root bool) {
			if len(s.XValidations) > 0 {
				rules += len(s.XValidations)
				for i, problem := range compileRules(t, s, root) {
					if problem != "" {
						t.Errorf("%s %s: %s: %s", kind, path, s.XValidations[i].Rule, problem)
					}
				}
			}
			for name, p := range s.Properties {
				walk(path+"."+name, &p, false)
			}
			if s.AdditionalProperties != nil {
				walk(path+"{}", s.AdditionalProperties.Structural, false)
			}
			if s.Items != nil {
				walk(path+"[]", s.Items, false)
			}
		}
		walk("", convertSchema(t, c), true)
	}
	if rules < 60 {
		t.Errorf("only %d rules", rules)
	}
}

// TestOldestKubernetesIsStrict checks that the test above rejects a function that was added later.
func TestOldestKubernetesIsStrict(t *testing.T) {
	for rule, known := range map[string]bool{
		"self.matches('a') && quantity(self).isLessThan(quantity('1'))": true,
		"'%s'.format([self]).size() > 0":                                true,
		"isSemver(self)":                                                false, // 1.33
		"!format.dns1123Label().validate(self).hasValue()":              false, // 1.31
	} {
		s := &schema.Structural{Generic: schema.Generic{Type: "string"}}
		s.XValidations = crd.ValidationRules{{Rule: rule}}
		if problem := compileRules(t, s, false)[0]; (problem == "") != known {
			t.Errorf("%s: %q, want known %v", rule, problem, known)
		}
	}
}

// compileRules returns the problem of each rule of a schema; empty for a valid one.
func compileRules(t *testing.T, s *schema.Structural, root bool) []string {
	t.Helper()
	results, err := cel.Compile(s, model.SchemaDeclType(s, root), config.PerCallLimit, environment.MustBaseEnvSet(oldest), cel.NewExpressionsEnvLoader())
	if err != nil {
		t.Fatal(err)
	}
	problems := make([]string, len(results))
	for i, r := range results {
		if r.Error != nil {
			problems[i] = r.Error.Error()
		}
		if r.MessageExpressionError != nil {
			problems[i] += r.MessageExpressionError.Error()
		}
	}
	return problems
}

func convertSchema(t *testing.T, c *crd.CustomResourceDefinition) *schema.Structural {
	t.Helper()
	var in apiextensions.JSONSchemaProps
	if err := crd.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(c.Spec.Versions[0].Schema.OpenAPIV3Schema, &in, nil); err != nil {
		t.Fatal(err)
	}
	s, err := schema.NewStructural(&in)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestEveryRuleHasACase checks that each CEL rule rejects a case in testdata/rules with its own message.
func TestEveryRuleHasACase(t *testing.T) {
	for kind, c := range readCRDs(t) {
		files, err := filepath.Glob("testdata/rules/" + kind + "/*.txtar")
		if err != nil {
			t.Fatal(err)
		}
		var cases strings.Builder
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			cases.Write(text)
		}
		all := append(listFields(c), field{schema: *c.Spec.Versions[0].Schema.OpenAPIV3Schema})
		for _, f := range all {
			for _, rule := range f.schema.XValidations {
				at := strings.LastIndex(rule.Message, ": ")
				if at < 0 {
					t.Errorf("%s %s: message %q has no advice after a colon", kind, f.path, rule.Message)
				} else if !strings.Contains(cases.String(), rule.Message[at:]) {
					t.Errorf("%s %s: no case is rejected with %q", kind, f.path, rule.Message)
				}
			}
		}
	}
}

// TestVersions checks that the rule accepts exactly the versions that the operator can compare.
func TestVersions(t *testing.T) {
	archive, err := txtar.ParseFile("testdata/rules/skyhook/version.txtar")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, f := range archive.Files {
		var o struct {
			Spec struct {
				Packages map[string]struct {
					Version any `json:"version"`
				} `json:"packages"`
			} `json:"spec"`
		}
		if strings.HasSuffix(f.Name, messageSuffix) {
			continue
		}
		if err := yaml.Unmarshal(f.Data, &o); err != nil {
			t.Fatal(err)
		}
		v, isText := o.Spec.Packages["aa"].Version.(string)
		if !isText || strings.HasSuffix(f.Name, "long") { // rejected for another reason
			continue
		}
		seen++
		if _, err := semver.NewVersion(v); (err == nil) != strings.HasPrefix(f.Name, "good") {
			t.Errorf("%s: version %q: %v", f.Name, v, err)
		}
	}
	if seen < 10 {
		t.Errorf("only %d versions", seen)
	}
}
