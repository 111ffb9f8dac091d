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
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Kind is the kind of every rollout compiled here.
const Kind = node.KindSkyhook

// Input is everything that one Skyhook is compiled from.
type Input struct {
	Skyhook       *v1alpha1.Skyhook
	Policy        *v1alpha1.DeploymentPolicy // nil when none is named, or when it is missing
	PolicyMissing bool                       // a policy is named and does not exist
	Closed        *rollout.Why               // a gate of the policy, for all nodes, that does not pass
	Failed        *rollout.Why               // one that is false and stops the rollout
	Findings      node.Findings              // of the nodes on which the proof is waited for
	Unready       map[string]string          // by node: what a gate of the policy misses there and the Node object does not show
	Nodes         []*node.Node               // all nodes of the cluster, in a total order; Compile selects from them
	Pods          []*corev1.Pod              // of this Skyhook: see Owns
	Definitions   map[string]*Definition     // frozen definitions by hash: see ParseDefinition
	Claims        map[string]string          // ConfigMap names that earlier Skyhooks use, to the Skyhook: see Claims
	Revisions     []Revision                 // that exist, the newest first; nil when they are not known
	Refused       node.Refusals              // tasks whose pods the API server refused at their last attempt
	Config        Config
	Now           time.Time // as in the Snapshot
}

// Config contains the settings of the operator.
type Config struct {
	Namespace         string // where pods and ConfigMaps live
	AgentImage        string
	PauseImage        string
	CopyDirRoot       string // on the host, for packages and records
	LogRoot           string // on the host
	RuntimeTaint      corev1.Taint
	ReapplyOnReboot   bool
	TrustAgentReboots bool               // a successful interrupt pod proves a reboot (REBOOT_PROOF=agent)
	ImagePullSecret   string             // in Namespace; empty for none
	ServiceAccount    string             // of the pods; empty for the namespace's default
	OwnAccount        string             // of the operators, in Namespace: no drain evicts their pods; empty when unknown
	PodLayout         v1alpha1.PodLayout // for Skyhooks that do not say how stages become pods; empty for Compatible
	ImageVolumesFrom  string             // version of Kubernetes from which kubelets mount images; empty for DefaultImageVolumesFrom
	PinImages         bool               // for Skyhooks that do not say whether digests of images are recorded
	AlwaysPull        bool               // force imagePullPolicy Always; otherwise Kubernetes chooses by tag or digest
	StageDeadline     time.Duration
	InterruptDeadline time.Duration
	InterruptMemory   string // of the interrupt container
	Version           string // of the operator; empty for a development build
	DefaultPolicy     string // for Skyhooks that name none and have no budget of their own; empty for none

	// PrometheusEndpoints are beginnings of URLs that the health gates of policies may query beside Services of the cluster.
	PrometheusEndpoints []string

	// KeepRemovedPackages leaves packages without an uninstall section on hosts when they are removed from the Skyhook or their
	// version is lowered.
	KeepRemovedPackages bool
}

// DefaultStageDeadline and DefaultInterruptDeadline apply when the operator has no setting.
const (
	DefaultStageDeadline     = time.Hour
	DefaultInterruptDeadline = 30 * time.Minute
)

// DefaultInterruptMemory applies when the operator has no setting: the predecessor's 64Mi are too little for its agent on
// kernels with pages of 64 KiB.
const DefaultInterruptMemory = "256Mi"

// Compiled is a Skyhook prepared for the engine, with everything that is needed to apply a plan and to report.
type Compiled struct {
	Rollout  rollout.Rollout
	Groups   []rollout.Group  // with a policy of scope Policy several Skyhooks give groups of the same name: see policy.MergeGroups
	Ledger   rollout.Ledger   // of this Skyhook; its groups name the policy's ledger instead when the scope is Policy
	Problems []Problem        // problems of the spec, worst first
	Adopt    []node.NamedEdit // edits to apply before the plan: records for nodes that a predecessor finished, removed status marks
	Removed  bool             // deleted, and no node has anything of it: the finalizer may be removed

	facts        *facts
	stored       *v1alpha1.SkyhookStatus // the status as it was read
	clusterNodes []*node.Node            // all of the cluster
	memo         memo
	targets      []*target              // in the order of Rollout.Targets
	extra        map[string]*Definition // used by a step, no longer in the spec and frozen nowhere
	pulls        []imagePull            // of images without an explicit digest
	unnamed      []imagePull            // without a digest that could be recorded
	unlimited    string                 // warning that packages interrupt many nodes without a budget
}

// Problem is something about a Skyhook that its author should change.
type Problem struct {
	Reason  rollout.Reason
	Text    string // a sentence without a full stop
	Field   string // path below spec; empty for the object as a whole
	Refuses bool   // the Skyhook is not accepted; otherwise it is a warning
	// a warning that has a condition of its own
	IsCondition bool
}

// Event is an event on a node, on the Skyhook, or on both.
type Event struct {
	Node      string // empty: on the Skyhook only
	OnSkyhook bool   // on the Skyhook too
	Type      string // corev1.EventTypeNormal or corev1.EventTypeWarning
	Reason    string
	Message   string
}
