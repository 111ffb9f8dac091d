// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Each package is looked at once, however many ways lead to it: here 2^59.
func TestDependenciesAreWalkedOnce(t *testing.T) {
	var names []string
	before := map[string][]string{}
	for n := range 60 {
		name := fmt.Sprintf("p%02d", n)
		before[name] = slices.Clone(names)
		names = append(names, name)
	}
	slices.Reverse(names)
	asked, visited := 0, []string{}
	circle := WalkDependencies(names, func(name string) []string { asked++; return before[name] }, func(name string, dependencies []string) {
		if !slices.Equal(dependencies, before[name]) {
			t.Errorf("%s is visited with %v", name, dependencies)
		}
		visited = append(visited, name)
	})
	if asked != 60 || len(visited) != 60 || !slices.IsSorted(visited) || circle != nil {
		t.Errorf("%d questions, visited %v, circle %v", asked, visited, circle)
	}
}

func TestWalkOfDependenciesLeavesCircles(t *testing.T) {
	after := map[string][]string{"a": {"b"}, "b": {"c", "x"}, "c": {"b", "d"}, "x": {"x"}}
	var visited []string
	circle := WalkDependencies([]string{"a", "b", "c", "x"}, func(name string) []string { return after[name] }, func(name string, dependencies []string) {
		visited = append(visited, name+" after "+strings.Join(dependencies, "+"))
	})
	want := []string{"d after ", "c after d", "x after ", "b after c+x", "a after b"}
	if !slices.Equal(visited, want) || !slices.Equal(circle, []string{"b", "c", "b"}) {
		t.Errorf("visited %q, want %q; circle %v", visited, want, circle)
	}
}
