// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package nodeop is what the packages below it know of a NodeOp: its identity, its limits, what nodes record of it, and the values that
// one of them makes and the others read. All of them are pure and have no client.
//
//	compile: NodeOp, nodes, Jobs, pods ─► Compiled ─► (engine) ─► record: action ─► edit of a node
//	                                                          ├─► render: task ─► Job, pods
//	                                                          └─► report: status, events
//	upgrade: NodeOpUpgrade ─► NodeOp            kairos: the labels of nodes that run Kairos
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
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	skyhookv1 "github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Kind is the kind of NodeOps, and the first part of the name of their rollouts: "NodeOp/default/check".
const Kind = node.KindNodeOp

// UpgradeKind is the kind of the owner of a NodeOp that carries out an upgrade.
const UpgradeKind = "NodeOpUpgrade"

// The tasks of a node, in their order.
const (
	TaskPreflight = "preflight"
	TaskCommand   = "command"
	TaskReboot    = "reboot"
)

// Prefixes and texts that other programs read.
const (
	PrefixTarget          = "target " // of the termination message of an upgrade; the version of the image follows
	PrefixSkipped         = "Skipped by preflight: "
	PrefixPreflightFailed = "Preflight failed: "
	TextJobFailed         = "Job failed"
	TextJobNotFound       = "Job not found"
	TextJobDone           = "Job completed successfully"
	TextRebootDone        = "Job and reboot completed successfully"
)

// Config is the configuration of the operator.
type Config struct {
	AgentImage    string
	DefaultImage  string                        // of a NodeOp that names none
	SentinelImage string                        // creates the file that the reboot waits for; empty for the agent image
	CopyDirRoot   string                        // on the host, for records
	LogRoot       string                        // on the host
	Namespace     string                        // of the operator, where Kairos probes run
	PullSecrets   []corev1.LocalObjectReference // for the agent's image there
	LabelKairos   bool                          // probe nodes for Kairos
	Namespaces    []string                      // whose NodeOps are executed; empty for all
}

// Compiled is a NodeOp as the engine knows it, with what is needed to carry a plan out and to report about it.
type Compiled struct {
	Operation *Operation
	Now       time.Time // as in the Snapshot
	Rollout   rollout.Rollout
	Groups    []rollout.Group
	Ledger    rollout.Ledger // in the status of this NodeOp; a policy of scope Policy has its own
	Problems  []Problem
	Edits     []node.NamedEdit // written without an action of a plan
	Limits    []AttemptLimit   // to be set on Jobs, without an action of a plan
	Nodes     []*Node          // that belong to the operation or did, in the order of all nodes; see Add
	Missing   []string         // nodes that were started and do not exist any more

	SharesBudget bool                   // of a policy
	Windows      *skyhookv1.Windows     // of that policy; may be nil
	Start        *v1alpha1.StartTargets // to be recorded; nil if they are, or are not needed
	AllGone      bool                   // it has started, and none of the nodes that it began with exists any more
	Removed      bool                   // deleted, and no node carries anything of it: the finalizer may be removed

	LeftPods map[string][]string // pods by node that a drain left because nothing recreates them; filled in by the caller

	byName map[string]*Node
}

// Add adds a node.
func (c *Compiled) Add(n *Node) {
	if c.byName == nil {
		c.byName = map[string]*Node{}
	}
	c.Nodes, c.byName[n.Name] = append(c.Nodes, n), n
}

// Node returns what is known of a node; nil if the operation has nothing to do with it.
func (c *Compiled) Node(name string) *Node { return c.byName[name] }

// Problem is a fault of a NodeOp that a user must fix.
type Problem struct {
	Reason rollout.Reason
	Text   string // a sentence without a full stop
}

// AttemptLimit is a backoffLimit to set on a Job, so that it begins no further attempt. Suspending the Job or lowering its
// parallelism would delete the pod of the running attempt; a lower backoffLimit does not.
type AttemptLimit struct {
	Job          *batchv1.Job
	BackoffLimit int32
}

// Node is what is known of a node of a NodeOp.
type Node struct {
	Name           string
	IsControlPlane bool
	IsLeaving      bool                 // not selected any more
	Record         node.OpRecord        // on the node, or inherited from what a predecessor left
	IsInherited    bool                 // the record was rebuilt
	FinalEntry     *v1alpha1.NodeStatus // that a predecessor wrote; nil if there is none
	Found          Findings
	Command        Progress
}

// Findings are what the Jobs and pods of a node report. They are recorded, because these objects are deleted later.
type Findings struct {
	Skip          string // with what the check skips the node; empty if it does not
	Exit          *int32 // of the last attempt of the command
	Output        string
	Attempts      int32
	TargetVersion string // that the command of an upgrade installed
	BootedVersion string // that came up after the reboot
	Boot          string // in which the last attempt of the command ran; empty if its pod does not say so
}

// Progress is how far the Job of a node is.
type Progress struct {
	HasRun   bool   // a pod of the Job exists or existed
	Failed   int32  // attempts
	Exit     *int32 // of the last one that failed
	Output   string
	RetryFor string // why it is tried again, and when; empty if it is not
}
