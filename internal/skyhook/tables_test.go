// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"fmt"
	"strings"
	"testing"
)

// TestRemovalOfManyDependents removes packages of which each depends on all earlier ones: with a search of all paths this
// would not end.
func TestRemovalOfManyDependents(t *testing.T) {
	const count = 40
	w := newTestCluster(t)
	var packages []string
	for i := range count {
		var on []string
		for dep := range i {
			on = append(on, fmt.Sprintf("p%02d: 1.0.0", dep))
		}
		packages = append(packages, fmt.Sprintf("p%02d: {version: 1.0.0, image: example.org/p, dependsOn: {%s}}", i, strings.Join(on, ", ")))
	}
	s := w.apply("{metadata: {name: demo}, spec: {packages: {" + strings.Join(packages, ", ") + "}}}")
	w.addNode("n1")
	w.drive(s)
	s = w.apply("{metadata: {name: demo}, spec: {packages: {}}}")
	ran := strings.Split(w.drive(s), "\n")
	if len(ran) != count {
		t.Fatalf("%d stages ran, want %d uninstalls", len(ran), count)
	}
	for i, line := range ran {
		if want := fmt.Sprintf("n1 p%02d|1.0.0/uninstall", count-1-i); line != want {
			t.Errorf("uninstall %d is %q, want %q", i, line, want)
		}
	}
}
