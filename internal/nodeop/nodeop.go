// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package nodeop is the front end for the kinds NodeOp and NodeOpUpgrade: a NodeOp becomes a rollout.Rollout, a task
// becomes a Job or a Pod, and a report becomes a status. It is pure: objects come in, values go out.
//
//	ParseNode ─► Compile ─► (engine) ─► Change, Objects ─► Status, Events
//
// On a node a NodeOp is a fixed chain: preflight, command, reboot. The command is a Job. The pod that reboots is made
// before that Job, and waits on the host for the file the Job leaves when it has ended well, so that the Job finishes
// before the node goes down and is not run again afterwards.
//
// The truth about a node is in its annotation record-<12 hexadecimal digits of the NodeOp's UID>. A predecessor kept
// its truth in status only: terminal entries there, of nodes without a record, are read back and final, and so is a
// terminal phase.
package nodeop

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Kind begins the name of every rollout compiled here: "NodeOp/default/check".
const Kind = "NodeOp"

// Input is everything one NodeOp is compiled from.
type Input struct {
	NodeOp        *v1alpha1.NodeOp
	Nodes         []*Node        // all nodes of the cluster, in a total order
	Jobs          []*batchv1.Job // of this NodeOp's namespace and name; whose they are is judged here
	Pods          []*corev1.Pod  // likewise
	Budget        *Budget        // of the policy; nil when none is named, or when it is missing
	PolicyMissing bool           // a policy is named and does not exist
	Config        Config
	Now           time.Time // as in the Snapshot
}

// Budget is what a DeploymentPolicy allows.
type Budget struct {
	Groups []rollout.Group
	Of     map[string]string // Group.Name by node
	Place  map[string]string // Target.Place by node
}

// Config is what the operator was started with.
type Config struct {
	AgentImage    string
	DefaultImage  string   // of a NodeOp that names none
	SentinelImage string   // makes the file that the reboot waits for; empty for the agent
	CopyDirRoot   string   // on the host, for records
	LogRoot       string   // on the host
	Namespace     string   // of the operator, where nodes are looked at from
	PullSecret    string   // for the agent's image there; empty for none
	LabelKairos   bool     // look at each node whether it runs Kairos
	Namespaces    []string // whose NodeOps are carried out; none for all
}

// Compiled is a NodeOp made ready for the engine, with what the other doors need to carry a plan out.
type Compiled struct {
	Rollout  rollout.Rollout
	Groups   []rollout.Group
	Ledger   rollout.Ledger // of this NodeOp; the policy's is used instead when its scope is Policy
	Problems []Problem
	Adopt    []NodeEdit          // what is written without a plan: what was seen of jobs, and what a finished NodeOp leaves behind
	Spared   map[string][]string // pods that were left on nodes though nothing recreates them; filled in by who looks at pods
	Removed  bool                // deleted, and no node carries anything of it: the finalizer may go

	in      *Input
	final   bool // its phase is terminal
	ghost   bool // it does not exist any more
	targets map[string]*target
	order   []*target
	gone    []string // nodes that were started and do not exist any more
}

// Problem is something about a NodeOp that a person should change.
type Problem struct {
	Reason rollout.Reason
	Text   string // a sentence without a full stop
}

// Edit is a change of a node: a merge patch in plain data. A nil value removes a key.
type Edit struct {
	Annotations   map[string]*string
	Labels        map[string]*string
	Unschedulable *bool
}

// NodeEdit is an Edit and the node it is for.
type NodeEdit struct {
	Node string
	Edit Edit
}

// Empty says that the edit changes nothing.
func (e Edit) Empty() bool {
	return len(e.Annotations) == 0 && len(e.Labels) == 0 && e.Unschedulable == nil
}

// Event is something worth telling on the NodeOp, or on a node too.
type Event struct {
	Node    string // empty: on the NodeOp only
	Type    string // corev1.EventTypeNormal or corev1.EventTypeWarning
	Reason  string
	Message string
}
