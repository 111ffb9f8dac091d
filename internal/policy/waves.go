// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// findWaveProblems returns what is invalid in the order of the compartments: names that do not exist, and compartments that wait for
// each other in a circle.
func findWaveProblems(p *v1alpha1.DeploymentPolicy) []string {
	after := WavesOf(p)
	var problems []string
	for _, name := range slices.Sorted(maps.Keys(after)) {
		for _, before := range after[name] {
			if _, exists := after[before]; !exists {
				problems = append(problems, fmt.Sprintf("after of compartment %s of DeploymentPolicy %s names %s, which does not exist: correct the name, or add the compartment",
					name, p.Name, before))
			}
		}
	}
	if circle := findCircle(after); len(circle) > 0 {
		problems = append(problems, fmt.Sprintf("compartments of DeploymentPolicy %s wait for each other in a circle: %s: remove one of these names from after",
			p.Name, strings.Join(circle, " after ")))
	}
	return problems
}

// WavesOf returns the compartments of a policy, with the default one, and what each comes after.
func WavesOf(p *v1alpha1.DeploymentPolicy) map[string][]string {
	after := map[string][]string{v1alpha1.DefaultCompartment: p.Spec.Default.After}
	for _, c := range p.Spec.Compartments {
		after[c.Name] = c.After
	}
	return after
}

// findCircle returns the first circle, from a name to itself; nil if there is none.
func findCircle(after map[string][]string) []string {
	isDone := map[string]bool{}
	var path []string
	var visit func(name string) []string
	visit = func(name string) []string {
		if at := slices.Index(path, name); at >= 0 {
			return append(slices.Clone(path[at:]), name)
		}
		if isDone[name] {
			return nil
		}
		path = append(path, name)
		for _, before := range after[name] {
			if circle := visit(before); circle != nil {
				return circle
			}
		}
		path = path[:len(path)-1]
		isDone[name] = true
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if circle := visit(name); circle != nil {
			return circle
		}
	}
	return nil
}
