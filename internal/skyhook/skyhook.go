// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package skyhook is the front end for the kind Skyhook: a Skyhook becomes a rollout.Rollout, a task becomes a Pod,
// and a report becomes a status. It is pure: objects come in, values go out, and nothing here talks to an API server
// or looks at a clock.
//
// A pass goes like this. ParseNode reads a node once per resource version. Compile compares, node by node, what the
// Skyhook wants with what the node records, and gives the tasks that are owed; the engine decides. For each action
// Change says what to change on the node, and Object what to create. Status and Words say how things are.
//
//	ParseNode ─► Compile ─► (engine) ─► Change, Object, ConfigMaps ─► Status, Words, Events
//
// The truth about a node is in two of its annotations: nodeState_<skyhook>, whose format is older than this program
// and which people edit by hand to reset a node, and record_<skyhook>, which holds what nodeState cannot: what was
// admitted and when, from which definition, which interrupt, the boot id before it, failed attempts, and who holds
// the cordon. Where the two disagree, nodeState wins.
package skyhook

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Kind is the kind of every rollout compiled here, and the first part of its name: "Skyhook/demo".
const Kind = node.KindSkyhook

// Input is everything one Skyhook is compiled from.
type Input struct {
	Skyhook       *v1alpha1.Skyhook
	Policy        *v1alpha1.DeploymentPolicy // nil when none is named, or when it is missing
	PolicyMissing bool                       // a policy is named and does not exist
	Closed        *rollout.Why               // a gate of the policy's, for the whole fleet, that does not pass
	Unready       map[string]string          // by node: what a gate of the policy's misses there that its Node does not say
	Nodes         []*node.Node               // all nodes of the cluster, in a total order; Compile picks its own
	Pods          []*corev1.Pod              // of this Skyhook: see Owns
	Definitions   map[string]*Definition     // frozen ones, by hash: see ParseDefinition
	Claims        map[string]string          // ConfigMap names that earlier Skyhooks use, and which Skyhook: see Claims
	Config        Config
	Now           time.Time // as in the Snapshot
}

// Config is what the operator was started with.
type Config struct {
	Namespace         string // where pods and ConfigMaps live
	AgentImage        string
	PauseImage        string
	CopyDirRoot       string // on the host, for packages and records
	LogRoot           string // on the host
	RuntimeTaint      corev1.Taint
	ReapplyOnReboot   bool
	TrustAgentReboots bool   // an interrupt pod that ends well is proof enough of a reboot (REBOOT_PROOF=agent)
	ImagePullSecret   string // in Namespace; empty for none
	ServiceAccount    string // of the pods; empty for the namespace's default
	OwnAccount        string // of the operators themselves, in Namespace: no drain moves their pods; empty when unknown
	AlwaysPull        bool   // force imagePullPolicy Always; otherwise Kubernetes chooses by tag or digest
	StageDeadline     time.Duration
	InterruptDeadline time.Duration
	Version           string // of the operator; empty for a development build
	DefaultPolicy     string // for Skyhooks that name none and have no budget of their own; empty for none
}

// DefaultStageDeadline and DefaultInterruptDeadline are what the operator starts with.
const (
	DefaultStageDeadline     = time.Hour
	DefaultInterruptDeadline = 30 * time.Minute
)

// Compiled is a Skyhook made ready for the engine, with what the other doors need to carry a plan out.
type Compiled struct {
	Rollout  rollout.Rollout
	Groups   []rollout.Group  // with a policy of scope Policy several Skyhooks give groups of the same name: see policy.Merge
	Ledger   rollout.Ledger   // of this Skyhook; its groups name the policy's ledger instead when the scope is Policy
	Problems []Problem        // what is wrong with the Skyhook, worst first
	Adopt    []node.NamedEdit // what is written without a plan, before its actions: records for nodes a predecessor finished, words taken back
	Removed  bool             // deleted, and no node carries anything of it: the finalizer may go

	in      *Input
	defs    map[string]*Definition // wanted now, by package name
	byHash  map[string]*Definition // the same, by hash
	extra   map[string]*Definition // used by a step, wanted no longer and frozen nowhere
	pods    map[string][]*podInfo  // by node name
	all     []target
	targets map[string]*target      // the same, by node name
	alike   map[string]*targetTasks // what nodes owe that stand alike, by onNode.shape
	marks   nodeMarks
}

// Problem is something about a Skyhook that a person should change.
type Problem struct {
	Reason  rollout.Reason
	Text    string // a sentence without a full stop
	Field   string // path below spec; empty for the object as a whole
	Refuses bool   // the Skyhook is not accepted; otherwise it is a warning
}

// Event is something worth telling on a node, on the Skyhook, or on both.
type Event struct {
	Node      string // empty: on the Skyhook only
	OnSkyhook bool   // on the Skyhook too
	Type      string // corev1.EventTypeNormal or corev1.EventTypeWarning
	Reason    string
	Message   string
}
