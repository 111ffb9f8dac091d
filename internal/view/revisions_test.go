// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"slices"
	"testing"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// TestChangesOfRevisions: each revision but the oldest says in a few words how it differs from the one before it.
func TestChangesOfRevisions(t *testing.T) {
	of := func(version v1alpha1.PackageVersion, config v1alpha1.ConfigData) v1alpha1.Package {
		return v1alpha1.Package{Version: version, ConfigMap: map[string]v1alpha1.ConfigData{"a.conf": config}}
	}
	r := &Revisions{All: []Revision{
		{Packages: map[string]v1alpha1.Package{"a": of("1.0.0", "y")}},
		{Packages: map[string]v1alpha1.Package{"a": of("1.1.0", "x"), "c": {}}},
		{Packages: map[string]v1alpha1.Package{"a": of("1.0.0", "x"), "b": {}}},
		{Packages: map[string]v1alpha1.Package{"a": {Version: "1.0.0"}, "b": {}}},
	}}
	r.CompareAll()
	for i, want := range [][]string{{"a configMap, 1.1.0 to 1.0.0", "c removed"}, {"a 1.0.0 to 1.1.0", "b removed", "c added"}, {"a configMap"}, nil} {
		if got := r.All[i].Changes; !slices.Equal(got, want) {
			t.Errorf("%d: %q, want %q", i, got, want)
		}
	}
}
