// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// announces reports whether other programs are told which nodes are still to come, or how far held ones are.
func announces(s *v1alpha1.Skyhook, p *v1alpha1.DeploymentPolicy) bool {
	m := plan.Marks(s, p)
	return m.Has(v1alpha1.MarkConditions) || m.Has(v1alpha1.MarkPreferNoSchedule)
}
