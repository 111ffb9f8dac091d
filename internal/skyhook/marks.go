// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"time"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// announces reports whether other programs are told which nodes are still to come, or how far held ones are.
func announces(s *v1alpha1.Skyhook, p *v1alpha1.DeploymentPolicy) bool {
	m := plan.Marks(s, p)
	return m.Has(v1alpha1.MarkConditions) || m.Has(v1alpha1.MarkPreferNoSchedule)
}

// usualVisit is the median of how long the nodes were admitted that are complete in this generation; 0 if there are none.
func (c *Compiled) usualVisit() time.Duration {
	if !c.Marks().Has(v1alpha1.MarkDescription) {
		return 0
	}
	var visits []time.Duration
	for _, t := range c.targets {
		isDone := !t.Record.Admitted && t.Record.At != nil && t.Record.FinishedAt != nil && t.Record.Generation == c.facts.Skyhook.Generation
		if isDone {
			visits = append(visits, t.Record.FinishedAt.Sub(*t.Record.At))
		}
	}
	return node.Median(visits)
}
