// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	skyhookv1 "github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// NodeOpStatus is the observed state of a NodeOp. nodeStatuses lists every node of up to 200; in larger clusters only
// nodes that are not complete, at most 200. The counters include all nodes.
type NodeOpStatus struct {
	// observedGeneration is the generation of the NodeOp that this status describes. It is 0 until the operator has
	// written a status, so that programs which wait for a generation do not take an object without a status for
	// finished.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	skyhookv1.Outcome `json:",inline"`

	// phase is Pending, Running, Completed or Failed. The last two are final.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Phase Phase `json:"phase,omitempty"`

	// nodeStatuses is the progress of each node that was started.
	// +optional
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=10000
	NodeStatuses map[string]NodeStatus `json:"nodeStatuses,omitempty"`

	// lastUpdated is when this status last changed.
	// +optional
	LastUpdated metav1.Time `json:"lastUpdated,omitzero"`

	// conditions say whether the NodeOp is accepted, makes progress and is ready (has succeeded), at most 32.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	Counters `json:",inline"`

	// compartmentStatuses is the progress of each compartment of the deploymentPolicy, by name. __default__ is the
	// rest, or all nodes without a policy. The operator reads earlier failures from it to decide about the next nodes.
	// +optional
	// +kubebuilder:validation:MaxProperties=101
	CompartmentStatuses map[string]skyhookv1.CompartmentStatus `json:"compartmentStatuses,omitempty"`

	// internal is what the operator remembers between its passes. It is no interface: its fields may change with any version.
	// +optional
	Internal NodeOpMemory `json:"internal,omitzero"`

	// estimatedCompletion is when the operation should be finished, from the times that nodes recorded. It is absent while that is
	// unknown.
	// +optional
	EstimatedCompletion *metav1.Time `json:"estimatedCompletion,omitempty"`

	// profile is the profile that applies, and why. Unlike the rest of the status, the operator reads it back.
	// +optional
	Profile *skyhookv1.ProfileStatus `json:"profile,omitempty"`
}

// NodeOpMemory is what the operator remembers of a NodeOp.
type NodeOpMemory struct {
	skyhookv1.Memory `json:",inline"`

	// startTargets are the nodes of an operation that keeps to those of its start. It is written before the first of them starts.
	// +optional
	StartTargets *StartTargets `json:"startTargets,omitempty"`
}

// StartTargets are the nodes that nodeSelector selected when an operation started.
type StartTargets struct {
	// count is the number of nodes.
	// +required
	// +kubebuilder:validation:Minimum=0
	Count int32 `json:"count"`

	// nodes has five bytes of a hash of the UID of each node, sorted, in base64.
	// +optional
	// +kubebuilder:validation:MaxLength=262144
	Nodes string `json:"nodes,omitempty"`
}

// NodeOpUpgradeStatus mirrors the status of the NodeOp that carries out the upgrade.
type NodeOpUpgradeStatus struct {
	// observedGeneration is the generation of the NodeOpUpgrade that this status describes. It is 0 until the operator
	// has written a status, so that programs which wait for a generation do not take an object without a status for
	// finished.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	skyhookv1.Outcome `json:",inline"`

	// phase is Initializing until the NodeOp exists, then the phase of the NodeOp.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Phase Phase `json:"phase,omitempty"`

	// nodeOpName is the name of the NodeOp, in the same namespace.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	NodeOpName string `json:"nodeOpName,omitempty"`

	// nodeStatuses is the progress of each node, as in the NodeOp.
	// +optional
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=10000
	NodeStatuses map[string]NodeStatus `json:"nodeStatuses,omitempty"`

	// message summarizes the upgrade in a sentence.
	// +optional
	// +kubebuilder:validation:MaxLength=32768
	Message string `json:"message,omitempty"`

	// lastUpdated is when this status last changed.
	// +optional
	LastUpdated metav1.Time `json:"lastUpdated,omitzero"`

	// conditions say whether the upgrade is accepted, makes progress and is ready (has succeeded), at most 32.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	Counters `json:",inline"`
}

// Counters count the selected nodes. Nodes that have not been started are counted in total only.
type Counters struct {
	// total is the number of selected nodes.
	// +optional
	// +kubebuilder:default=0
	Total int32 `json:"total,omitempty"`

	// completed is the number of nodes where the operation, including a requested reboot, has succeeded.
	// +optional
	// +kubebuilder:default=0
	Completed int32 `json:"completed,omitempty"`

	// failed is the number of nodes where the operation failed.
	// +optional
	// +kubebuilder:default=0
	Failed int32 `json:"failed,omitempty"`

	// skipped is the number of nodes that the check skipped. They are not counted in completed.
	// +optional
	// +kubebuilder:default=0
	Skipped int32 `json:"skipped,omitempty"`

	// inProgress is the number of nodes in progress.
	// +optional
	// +kubebuilder:default=0
	InProgress int32 `json:"inProgress,omitempty"`
}

// Phase is the progress of an operation, as a whole or on one node.
type Phase string

// The phases. Initializing is for a NodeOpUpgrade only, Preflight for a node only.
const (
	PhaseInitializing Phase = "Initializing"
	PhasePreflight    Phase = "Preflight"
	PhasePending      Phase = "Pending"
	PhaseRunning      Phase = "Running"
	PhaseCompleted    Phase = "Completed"
	PhaseFailed       Phase = "Failed"
)

// NodeStatus is the progress of the operation on one node.
type NodeStatus struct {
	// phase is Preflight, Pending, Running, Completed or Failed. The last two are final.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Phase Phase `json:"phase"`

	// jobName is the name of the Job. It is empty for a node that was skipped.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	JobName string `json:"jobName,omitempty"`

	// message says what happened, or what the node waits for.
	// +optional
	// +kubebuilder:validation:MaxLength=32768
	Message string `json:"message,omitempty"`

	// rebootStatus is not-requested, pending, completed or cancelled.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	RebootStatus RebootStatus `json:"rebootStatus,omitempty"`

	// exitCode is the exit code of the last run of the command. It is absent until a run has ended.
	// +optional
	ExitCode *int32 `json:"exitCode,omitempty"`

	// attempts is the number of failed runs of the command.
	// +optional
	Attempts int32 `json:"attempts,omitempty"`

	// output is the end of the command's log if it failed, or its termination message.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Output string `json:"output,omitempty"`

	// startTime is when the node was admitted.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// completionTime is when the operation on the node ended.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`

	// currentVersion is the version of Kairos that the node runs, if known. It is set for upgrades only.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	CurrentVersion string `json:"currentVersion,omitempty"`

	// targetVersion is the version of Kairos in the image, if known. It is set for upgrades only.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	TargetVersion string `json:"targetVersion,omitempty"`

	// drain is how far the drain of the node is, if it takes longer than ten seconds. Its numbers change at most every ten
	// seconds.
	// +optional
	Drain *skyhookv1.DrainProgress `json:"drain,omitempty"`

	// lastUpdated is when this entry last changed.
	// +optional
	LastUpdated metav1.Time `json:"lastUpdated,omitzero"`
}

// RebootStatus is the progress of the reboot of a node.
type RebootStatus string

// The reboot statuses.
const (
	RebootNotRequested RebootStatus = "not-requested"
	RebootPending      RebootStatus = "pending"
	RebootCompleted    RebootStatus = "completed"
	RebootCancelled    RebootStatus = "cancelled"
)
