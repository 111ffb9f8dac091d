// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// DefaultRevisionLimit is how many earlier revisions are kept for a Skyhook that does not say.
const DefaultRevisionLimit = 10

// HasBegun reports whether the packages of the spec have begun to roll out: a node was admitted for them, or has them.
func (c *Compiled) HasBegun() bool {
	if c.Rollout.Broken != nil || c.facts.Deleting || len(c.facts.Packages) == 0 {
		return false
	}
	key := c.facts.Key
	for i := range c.targets {
		t := c.targets[i]
		isAdmitted := t.Record.Admitted && t.Record.Generation == c.facts.Skyhook.Generation
		if t.Selected && (isAdmitted || t.Revision == key) {
			return true
		}
	}
	return false
}

// RenumberPatch returns the merge patch that gives an existing ControllerRevision the number and cause of this one. It says what an
// earlier cause is replaced by, also when that is nothing.
func RenumberPatch(r *appsv1.ControllerRevision) ([]byte, error) {
	annotations := map[string]any{plan.AnnotationChangeCause: nil}
	for key, value := range r.Annotations {
		annotations[key] = value
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}, "revision": r.Revision})
	if err != nil {
		return nil, fmt.Errorf("encoding the number of a revision: %w", err)
	}
	return patch, nil
}

// SuperfluousRevisions returns the revisions beyond the limit that no node has, of all that exist, the newest first.
func (c *Compiled) SuperfluousRevisions(all []plan.Revision) []plan.Revision {
	limit := DefaultRevisionLimit
	if wanted := c.facts.Skyhook.Spec.RevisionHistoryLimit; wanted != nil {
		limit = int(*wanted)
	}
	if len(all) <= limit {
		return nil
	}
	current, onNodes := c.facts.Key, map[string]bool{}
	for i := range c.targets {
		onNodes[c.targets[i].Revision] = true
	}
	var out []plan.Revision
	earlier := 0
	for _, r := range all {
		if r.Key == current {
			continue
		}
		if earlier++; earlier > limit && !onNodes[r.Key] {
			out = append(out, r)
		}
	}
	return out
}

// HasSamePackages reports whether two sets of packages are the same revision.
func HasSamePackages(a, b map[string]v1alpha1.Package) bool {
	return keyOfPackages(a) == keyOfPackages(b)
}

func keyOfPackages(packages map[string]v1alpha1.Package) string {
	defs := make(map[string]*plan.Definition, len(packages))
	for name, p := range packages {
		defs[name] = plan.NewDefinition(name, p)
	}
	return plan.KeyOfDefinitions(defs)
}

// RepositoryOf returns an image without its tag and digest.
func RepositoryOf(image string) string { return plan.Repository(image) }
