// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"slices"
	"strings"

	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// Hit is something whose name has the text that was searched.
type Hit struct {
	Kind  string `json:"kind"`
	Name  string `json:"name"`
	State State  `json:"state,omitempty"`
	Text  string `json:"text,omitempty"`
	Path  string `json:"path"` // of its page
}

// maxHits is how many hits a search returns.
const maxHits = 50

// Find returns what has a text in its name: rollouts, packages, policies and nodes, those that begin with it first.
func (v *Cluster) Find(text string) []Hit {
	hits := []Hit{}
	text = strings.ToLower(text)
	add := func(h Hit) {
		if text != "" && strings.Contains(strings.ToLower(h.Name), text) {
			hits = append(hits, h)
		}
	}
	for i := range v.Snapshot.Rollouts {
		ref := v.Snapshot.Rollouts[i].Ref
		path := "rollouts/" + strings.ToLower(ref.Kind) + "/" + ref.Path()
		add(Hit{Kind: ref.Kind, Name: ShortName(ref), State: StateIdle, Path: path})
	}
	for _, hook := range v.Objects.Skyhooks {
		for _, name := range plan.SortedNames(hook.Spec.Packages) {
			add(Hit{Kind: "package", Name: name, State: StateIdle, Text: string(hook.Spec.Packages[name].Version) + " of " + hook.Name, Path: "rollouts/skyhook/" + hook.Name})
		}
	}
	for _, p := range v.Objects.Policies {
		add(Hit{Kind: policy.Kind, Name: p.Name, State: StateIdle, Path: "policies#policy-" + p.Name})
	}
	for _, c := range v.listCells(nil) {
		add(Hit{Kind: "node", Name: c.Node, State: c.State, Text: c.Reason, Path: "nodes/" + c.Node})
	}
	isExact := func(h Hit) int { return boolToInt(!strings.HasPrefix(strings.ToLower(h.Name), text)) }
	slices.SortStableFunc(hits, func(a, b Hit) int { return cmp.Compare(isExact(a), isExact(b)) })
	return hits[:min(maxHits, len(hits))]
}
