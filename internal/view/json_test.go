// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"reflect"
	"testing"
)

// TestJSONNames: -o json prints no field that nobody named.
func TestJSONNames(t *testing.T) {
	seen := map[reflect.Type]bool{}
	var check func(of reflect.Type)
	check = func(of reflect.Type) {
		switch of.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			check(of.Elem())
		}
		if of.Kind() != reflect.Struct || of.PkgPath() != reflect.TypeFor[Cluster]().PkgPath() || seen[of] {
			return
		}
		seen[of] = true
		for i := range of.NumField() {
			f := of.Field(i)
			name := f.Tag.Get("json")
			if f.IsExported() && !f.Anonymous && name == "" {
				t.Errorf("%s.%s has no name in JSON", of, f.Name)
			}
			if f.Anonymous || f.IsExported() && name != "-" {
				check(f.Type)
			}
		}
	}
	for _, printed := range []any{[]RolloutStatus{}, Fleet{}, Node{}, []Explanation{}, Plan{}, Simulation{}, DriftReport{}, Policies{}} {
		check(reflect.TypeOf(printed))
	}
}
