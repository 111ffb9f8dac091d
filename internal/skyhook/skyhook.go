// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package skyhook is the front end for the kind Skyhook: a Skyhook becomes a rollout.Rollout, a task becomes a Pod,
// and a report becomes a status. It is pure: objects come in, values go out, and nothing here talks to an API server
// or looks at a clock.
//
// In a pass, node.Parse reads a node once per resource version. Compile compares, node by node, what the
// Skyhook wants with what the node records, and returns the remaining tasks; the engine decides. For each action
// Change returns the edit of the node, and Object the pod to create. Status, Words and Events report the result.
//
//	ParseNode ─► Compile ─► (engine) ─► Change, Object, ConfigMaps ─► Status, Words, Events
//
// The state of a node is in two of its annotations: nodeState_<skyhook>, whose format is that of the predecessor
// and which people edit by hand to reset a node, and record_<skyhook>, which holds what nodeState cannot: the
// admission and its time, the definition, the interrupt, the boot id before it, failed attempts, and the owner of
// the cordon. Where the two disagree, nodeState wins.
package skyhook

import (
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// Compiled is a Skyhook prepared for the engine, with everything that is needed to apply a plan and to report.
type Compiled struct {
	Rollout  rollout.Rollout
	Groups   []rollout.Group  // with a policy of scope Policy several Skyhooks give groups of the same name: see policy.MergeGroups
	Ledger   rollout.Ledger   // of this Skyhook; its groups name the policy's ledger instead when the scope is Policy
	Problems []plan.Problem   // problems of the spec, worst first
	Adopt    []node.NamedEdit // edits to apply before the plan: records for nodes that a predecessor finished, removed status marks
	Removed  bool             // deleted, and no node has anything of it: the finalizer may be removed

	facts        *plan.Facts
	stored       *v1alpha1.SkyhookStatus // the status as it was read
	clusterNodes []*node.Node            // all of the cluster
	memo         memo
	targets      []*plan.Target              // in the order of Rollout.Targets
	extra        map[string]*plan.Definition // used by a step, no longer in the spec and frozen nowhere
	pulls        []plan.ImagePull            // of images without an explicit digest
	unnamed      []plan.ImagePull            // without a digest that could be recorded
	unlimited    string                      // warning that packages interrupt many nodes without a budget
}
