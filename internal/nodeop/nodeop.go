// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package nodeop compiles the kinds NodeOp and NodeOpUpgrade: a NodeOp to a rollout.Rollout, a task to a Job or a Pod,
// an action to an edit of a node, and a report to a status. It is pure and has no client.
//
//	ParseNode ─► Compile ─► (engine) ─► Change, Objects ─► Status, Events
//
// On a node the tasks of a NodeOp are a fixed chain: preflight, command, reboot. The command is a Job. The reboot pod
// is created before the Job and waits on the host for a file that the Job creates when it has succeeded. So the Job
// finishes before the node goes down and does not run again afterwards.
//
// The source of truth about a node is its annotation record-<12 hexadecimal digits of the NodeOp's UID>. A predecessor
// kept its state in status only: terminal entries of nodes without a record are read back and final, and so is a
// terminal phase.
package nodeop

import (
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	skyhookv1 "github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Kind is the kind of NodeOps, and the first part of the name of their rollouts: "NodeOp/default/check".
const Kind = node.KindNodeOp

// Input is everything that one NodeOp is compiled from.
type Input struct {
	NodeOp        *v1alpha1.NodeOp
	Nodes         []*node.Node        // all nodes of the cluster, in the order of their creation and names
	Jobs          []*batchv1.Job      // of the namespace; others than those of this NodeOp are ignored
	Pods          []*corev1.Pod       // likewise
	Budget        *Budget             // of the policy; nil when none is named or it does not exist
	Proofs        node.Proofs         // of the NodeOp and of the policy
	Findings      node.Findings       // of the nodes on which the proof is waited for
	Marks         skyhookv1.NodeMarks // of the NodeOp and of the policy
	PolicyMissing bool                // a policy is named and does not exist
	Refused       node.Refusals       // tasks whose objects the API server refused at their last attempt
	Config        Config
	Now           time.Time // as in the Snapshot
	Durations     *rollout.Durations
}

// Budget is what a DeploymentPolicy allows.
type Budget struct {
	Groups []rollout.Group
	Of     map[string]rollout.GroupRef // Group.Ref by node
	Place  map[string]string           // Target.Place by node

	Windows *skyhookv1.Windows
}

// Config is the configuration of the operator.
type Config struct {
	AgentImage    string
	DefaultImage  string   // of a NodeOp that names none
	SentinelImage string   // creates the file that the reboot waits for; empty for the agent image
	CopyDirRoot   string   // on the host, for records
	LogRoot       string   // on the host
	Namespace     string   // of the operator, where Kairos probes run
	PullSecret    string   // for the agent's image there; empty for none
	LabelKairos   bool     // probe nodes for Kairos
	Namespaces    []string // whose NodeOps are executed; empty for all
}

// Compiled is a NodeOp as the engine knows it, with what is needed to carry a plan out and to report about it.
type Compiled struct {
	Rollout  rollout.Rollout
	Groups   []rollout.Group
	Ledger   rollout.Ledger // in the status of this NodeOp; a policy of scope Policy has its own
	Problems []Problem
	Edits    []node.NamedEdit    // written without an action of a plan
	Limits   []AttemptLimit      // to be set on Jobs, without an action of a plan
	LeftPods map[string][]string // pods by node that a drain left because nothing recreates them; filled in by the caller
	Removed  bool                // deleted, and no node carries anything of it: the finalizer may be removed

	in           *Input
	op           *operation
	pass         *passState
	sharesBudget bool // of a policy
	isOrphan     bool // the NodeOp no longer exists
	order        []*target
	index        map[string]*target // by node
	missing      []string           // nodes that were started and do not exist any more
	budget       *Budget
	start        *v1alpha1.StartTargets // to be recorded; nil if they are, or are not needed
}

// IsFinished reports whether the NodeOp has finished.
func (c *Compiled) IsFinished() bool { return c.op.isFinished() }

// HasEndedOn reports whether a finished NodeOp was carried out on a node, which records nothing of it any more. A node that it did not
// begin with, because it failed elsewhere, may still be admitted by another operator. The status of a large one that has completed
// lists no nodes.
func (c *Compiled) HasEndedOn(name string) bool {
	if !c.op.isFinished() {
		return false
	}
	if entry, isListed := c.pass.status.NodeStatuses[name]; isListed {
		return isEntryFinal(entry)
	}
	return c.pass.status.Phase == v1alpha1.PhaseCompleted && len(c.pass.status.NodeStatuses) < int(c.pass.status.Total)
}

// GracePeriod is the grace period of evictions; nil for that of each pod.
func (c *Compiled) GracePeriod() *int64 {
	d := c.op.spec().DrainOptions
	if d == nil || d.GracePeriodSeconds == nil || *d.GracePeriodSeconds < 0 {
		return nil
	}
	return new(int64(*d.GracePeriodSeconds))
}

// CompileOrphan compiles a NodeOp that no longer exists and left a hold behind, so that the hold is released.
func CompileOrphan(owner rollout.Ref, in Input) *Compiled {
	name, uid, _ := strings.Cut(owner.Name, "@")
	in.NodeOp = &v1alpha1.NodeOp{}
	in.NodeOp.Namespace, in.NodeOp.Name = owner.Namespace, name
	in.NodeOp.UID, in.NodeOp.DeletionTimestamp = types.UID(uid), &metav1.Time{Time: in.Now}
	c := Compile(&in)
	c.Rollout.Ref, c.Rollout.UID, c.isOrphan = owner, uid, true
	return c
}

// Problem is a fault of a NodeOp that a user must fix.
type Problem struct {
	Reason rollout.Reason
	Text   string // a sentence without a full stop
}
