// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestRemovedFields: the CRDs know none of them, validate says what replaces each, and docs/upgrading.md lists them.
func TestRemovedFields(t *testing.T) {
	page, err := os.ReadFile("../../../docs/upgrading.md")
	if err != nil {
		t.Fatal(err)
	}
	validator, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	groups := map[string]string{"NodeOp": "operator.kairos.io/v1alpha1", "NodeOpUpgrade": "operator.kairos.io/v1alpha1"}
	for _, f := range removedFields {
		steps := strings.Split(f.path, ".")
		if !strings.Contains(string(page), steps[len(steps)-1]+"`") {
			t.Errorf("docs/upgrading.md does not list %s", f.path)
		}
		for _, kind := range f.kinds {
			var spec any = "x"
			for i := len(steps) - 1; i >= 0; i-- {
				name, isList := strings.CutSuffix(steps[i], "[]")
				if isList {
					spec = []any{spec}
				}
				spec = map[string]any{name: spec}
			}
			u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": groups[kind], "kind": kind, "metadata": map[string]any{"name": "x"}, "spec": spec}}
			if groups[kind] == "" {
				u.SetAPIVersion("skyhook.nvidia.com/v1alpha1")
			}
			o := validator.Validate(u, nil)
			if len(o.UnknownFields) != 1 || !strings.HasSuffix(o.DescribeUnknown(o.UnknownFields[0]), " is gone, and the API server would drop it: "+f.instead) {
				t.Errorf("%s of a %s: the unknown fields are %q", f.path, kind, o.UnknownFields)
			}
		}
	}
}
