// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"time"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// renderer makes the objects of a Skyhook.
type renderer struct{ facts *facts }

// recorder makes the edits of a node.
type recorder struct {
	facts  *facts
	target *target       // on the node; nil if there is none
	usual  time.Duration // how long a node is usually admitted; 0 if it is not known
}

// reporter makes what users read.
type reporter struct {
	facts     *facts
	stored    *v1alpha1.SkyhookStatus // the status as it was read
	rollout   *rollout.Rollout
	groups    []rollout.Group
	problems  []Problem
	removed   bool
	nodes     []*node.Node // of the cluster
	targets   []*target    // in the order of those of the rollout
	target    func(nodeName string) *target
	pulls     []imagePull
	unnamed   []imagePull
	unlimited string
}
