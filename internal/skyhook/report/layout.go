// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
)

// podLayoutStatus counts the selected nodes by their layout; nil unless stages share pods.
func (rep Reporter) podLayoutStatus() *v1alpha1.PodLayoutStatus {
	if !rep.Facts.WantsCompact() {
		return nil
	}
	out := &v1alpha1.PodLayoutStatus{}
	for i := range rep.Targets {
		t := rep.Targets[i]
		if !t.Selected {
			continue
		}
		problem := rep.Facts.MountProblem(t.Node, &t.Record)
		if problem == "" {
			out.Compact++
			continue
		}
		if out.Compatible++; out.Message == "" {
			out.Message = node.Truncate(fmt.Sprintf("node %s gets Compatible: %s", t.Node.Name, problem), 300)
		}
	}
	return out
}
