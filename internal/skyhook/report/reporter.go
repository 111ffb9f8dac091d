// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package report makes what users read of a Skyhook: its status, conditions and events, and the words on nodes.
package report

import (
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// Reporter makes what users read.
type Reporter struct {
	Facts     *plan.Facts
	Stored    *v1alpha1.SkyhookStatus // the status as it was read
	Rollout   *rollout.Rollout
	Groups    []rollout.Group
	Problems  []plan.Problem
	Removed   bool
	Nodes     []*node.Node   // of the cluster
	Targets   []*plan.Target // in the order of those of the rollout
	Target    func(nodeName string) *plan.Target
	Pulls     []plan.ImagePull
	Unnamed   []plan.ImagePull
	Unlimited string
}
