// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Rollback says when a node goes back to the packages that were complete there before: once for each set of packages, and in the
// place that it has in the budget.
type Rollback struct {
	// scope says which nodes go back: Node is each node on which the packages fail. Rollout is also every node that got the same packages
	// since the rollout began, and no further node gets them; they go back in the batches and windows of the policy. It begins anew
	// when packages changes. None is no node, whatever the profile.
	// +optional
	// +kubebuilder:default=Node
	Scope RollbackScope `json:"scope,omitempty"`
}

// RollbackScope is which nodes go back.
// +kubebuilder:validation:Enum=None;Node;Rollout
type RollbackScope string

// The scopes.
const (
	RollbackScopeNone    RollbackScope = "None"
	RollbackScopeNode    RollbackScope = "Node"
	RollbackScopeRollout RollbackScope = "Rollout"
)

// RollbackStatus is a set of packages from which nodes go back. It is about the packages of the spec.
type RollbackStatus struct {
	// key identifies the packages, as the annotation of their ControllerRevision does. Unlike most of the status, the operator reads it
	// back: with scope Rollout no node gets these packages any more, also when the node on which they failed is gone.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Key string `json:"key"`

	// revision is the number of their revision; 0 while it is not known.
	// +optional
	// +kubebuilder:default=0
	Revision int64 `json:"revision,omitempty"`

	// to are the numbers of the revisions that nodes went or go back to, at most 10.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=10
	To []int64 `json:"to,omitempty"`

	// nodes is how many nodes went back.
	// +optional
	// +kubebuilder:default=0
	Nodes int32 `json:"nodes,omitempty"`

	// nodesLeft is how many nodes are on their way back, or wait for it.
	// +optional
	// +kubebuilder:default=0
	NodesLeft int32 `json:"nodesLeft,omitempty"`

	// message says on which node the packages failed first, and how.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// since is when that was recorded.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
}

// RollbackCause is what makes a node go back.
// +kubebuilder:validation:Enum=StageFailed;ProofFailed
type RollbackCause string

// The causes.
const (
	RollbackStageFailed RollbackCause = "StageFailed"
	RollbackProofFailed RollbackCause = "ProofFailed"
)
