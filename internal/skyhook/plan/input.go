// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// PullSecrets are the Secrets that a pod names, of names that are separated by commas.
func PullSecrets(names string) (secrets []corev1.LocalObjectReference) {
	for name := range strings.SplitSeq(names, ",") {
		if name = strings.TrimSpace(name); name != "" {
			secrets = append(secrets, corev1.LocalObjectReference{Name: name})
		}
	}
	return secrets
}

func (c Config) stageDeadline() time.Duration {
	if c.StageDeadline > 0 {
		return c.StageDeadline
	}
	return DefaultStageDeadline
}

func (c Config) interruptDeadline() time.Duration {
	if c.InterruptDeadline > 0 {
		return c.InterruptDeadline
	}
	return DefaultInterruptDeadline
}

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
	Namespace         string           // where pods and ConfigMaps live
	Profile           v1alpha1.Profile // of objects that do not say; empty for unknown
	AgentImage        string
	PauseImage        string
	CopyDirRoot       string // on the host, for packages and records
	LogRoot           string // on the host
	RuntimeTaint      corev1.Taint
	ReapplyOnReboot   bool
	TrustAgentReboots bool      // a successful interrupt pod proves a reboot (REBOOT_PROOF=agent)
	ImagePullSecret   string    // in Namespace, several separated by commas; empty for none
	ServiceAccount    string    // of the pods; empty for the namespace's default
	OwnAccount        string    // of the operators, in Namespace: no drain evicts their pods; empty when unknown
	PodLayout         PodLayout // how stages become pods; empty for that of the profile
	ImageVolumesFrom  string    // version of Kubernetes from which kubelets mount images; empty for DefaultImageVolumesFrom
	PinImages         *bool     // nodes pull by the digest that the first of them pulled; nil for what the profile says
	Prepull           *bool     // images are pulled before a node's turn; nil for no
	AlwaysPull        bool      // force imagePullPolicy Always; otherwise Kubernetes chooses by tag or digest
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

// Problem is something about a Skyhook that its author should change.
type Problem struct {
	Reason  rollout.Reason
	Text    string // a sentence without a full stop
	Field   string // path below spec; empty for the object as a whole
	Refuses bool   // the Skyhook is not accepted; otherwise it is a warning
	// a warning that has a condition of its own
	IsCondition bool
}
