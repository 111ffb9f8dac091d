// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
)

// revisions reports how many nodes have each revision. Before they are known, what was reported stays.
func (rep Reporter) revisions(nodes []nodeStatus) []v1alpha1.Revision {
	if rep.Facts.Revisions == nil {
		return rep.Stored.Revisions
	}
	current, counts := rep.Facts.Key, map[string]int{}
	for _, n := range nodes {
		key := current // of a complete node, also when its definition was edited in a way that runs nothing
		if n.status != v1alpha1.StatusComplete {
			key = n.target.Revision
		}
		counts[key]++
	}
	var out []v1alpha1.Revision
	for _, r := range rep.Facts.Revisions[:min(len(rep.Facts.Revisions), 200)] {
		out = append(out, v1alpha1.Revision{Revision: r.Number, Name: r.Name, ChangeCause: node.Truncate(r.Cause, 1024), Nodes: int32(counts[r.Key])})
	}
	return out
}
