// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestIsTakenOver: a Skyhook must be migrated if it is older than the NodeWright of its name, and was not.
func TestIsTakenOver(t *testing.T) {
	start := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	newObject := func(name string, created time.Time, annotations map[string]string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(created), Annotations: annotations}}
	}
	nodeWright := newObject("demo", start, nil)
	for name, c := range map[string]struct {
		skyhook *metav1.PartialObjectMetadata
		want    bool
	}{
		"older":                 {newObject("demo", start.Add(-time.Hour), nil), true},
		"of the same second":    {newObject("demo", start, nil), true},
		"migrated":              {newObject("demo", start.Add(-time.Hour), map[string]string{"skyhook.nvidia.com/migrated-from": "nodewright/1"}), false},
		"created again since":   {newObject("demo", start.Add(time.Hour), nil), false},
		"with another name":     {newObject("other", start.Add(-time.Hour), nil), false},
		"migrated incompletely": {newObject("demo", start.Add(-time.Hour), map[string]string{"skyhook.nvidia.com/migrating": "pause="}), true},
	} {
		if got := isTakenOver(c.skyhook, nodeWright); got != c.want {
			t.Errorf("%s: taken over %v, want %v", name, got, c.want)
		}
	}
}
