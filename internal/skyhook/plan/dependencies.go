// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package plan

import "slices"

// WalkDependencies visits names, and what they depend on, each once and after what it depends on. A dependency that closes a circle
// is left out of those that visit gets; the first circle is returned, with its first name repeated at the end.
func WalkDependencies(names []string, dependsOn func(name string) []string, visit func(name string, dependencies []string)) (circle []string) {
	const open, done = 1, 2
	progress := map[string]int{}
	var trail []string
	var walk func(name string)
	walk = func(name string) {
		progress[name] = open
		trail = append(trail, name)
		var dependencies []string
		for _, dependency := range dependsOn(name) {
			if progress[dependency] == 0 {
				walk(dependency)
			}
			if progress[dependency] == done {
				dependencies = append(dependencies, dependency)
			} else if circle == nil {
				circle = append(slices.Clone(trail[slices.Index(trail, dependency):]), dependency)
			}
		}
		trail = trail[:len(trail)-1]
		progress[name] = done
		visit(name, dependencies)
	}
	for _, name := range names {
		if progress[name] == 0 {
			walk(name)
		}
	}
	return circle
}

// DependenciesAmong lists what a package depends on of the packages in a map.
func (d *Definition) DependenciesAmong(known map[string]*Definition) []string {
	return slices.DeleteFunc(SortedNames(d.Package.DependsOn), func(name string) bool { return known[name] == nil })
}
