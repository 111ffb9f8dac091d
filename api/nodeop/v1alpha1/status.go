// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NodeOpStatus is what the operator says about a NodeOp. nodeStatuses hold every node up to 200 nodes; beyond that
// only nodes that are not complete, at most 200, and the counters speak for the rest.
type NodeOpStatus struct {
	// observedGeneration is the generation of the NodeOp that this status describes. 0 before anybody looked, so
	// that programs which wait for it do not take an object without a status for done.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// phase is Pending, Running, Completed or Failed. The last two are final.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Phase Phase `json:"phase,omitempty"`

	// nodeStatuses say how far each node is that was started.
	// +optional
	// +kubebuilder:validation:MaxProperties=10000
	NodeStatuses map[string]NodeStatus `json:"nodeStatuses,omitempty"`

	// lastUpdated is when this status last changed.
	// +optional
	LastUpdated metav1.Time `json:"lastUpdated,omitzero"`

	// conditions say whether the NodeOp is accepted, progresses and is ready (finished well), at most 32.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	Counters `json:",inline"`

	// compartmentStatuses say how far each compartment is when a deploymentPolicy is named, by its name; __default__ is
	// the rest, and everything without a policy. What they remember of earlier failures decides about the next nodes.
	// +optional
	// +kubebuilder:validation:MaxProperties=101
	CompartmentStatuses map[string]CompartmentStatus `json:"compartmentStatuses,omitempty"`

	// admission lists nodes that are being admitted. It keeps two operators from exceeding concurrency together.
	// +optional
	Admission *Admission `json:"admission,omitempty"`
}

// NodeOpUpgradeStatus mirrors the status of the NodeOp that carries the upgrade out.
type NodeOpUpgradeStatus struct {
	// observedGeneration is the generation of the NodeOpUpgrade that this status describes. 0 before anybody looked, so
	// that programs which wait for it do not take an object without a status for done.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// phase is Initializing until the NodeOp exists, then the phase of the NodeOp.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Phase Phase `json:"phase,omitempty"`

	// nodeOpName is the name of the NodeOp, in the same namespace.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	NodeOpName string `json:"nodeOpName,omitempty"`

	// nodeStatuses say how far each node is, as in the NodeOp.
	// +optional
	// +kubebuilder:validation:MaxProperties=10000
	NodeStatuses map[string]NodeStatus `json:"nodeStatuses,omitempty"`

	// message sums the upgrade up in a sentence.
	// +optional
	// +kubebuilder:validation:MaxLength=32768
	Message string `json:"message,omitempty"`

	// lastUpdated is when this status last changed.
	// +optional
	LastUpdated metav1.Time `json:"lastUpdated,omitzero"`

	// conditions say whether the upgrade is accepted, progresses and is ready (finished well), at most 32.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	Counters `json:",inline"`
}

// Counters count the selected nodes. Nodes that have not started are the rest of total.
type Counters struct {
	// total is the number of selected nodes.
	// +optional
	// +kubebuilder:default=0
	Total int32 `json:"total,omitempty"`

	// completed is the number of nodes where the operation, and the reboot if asked for, is done.
	// +optional
	// +kubebuilder:default=0
	Completed int32 `json:"completed,omitempty"`

	// failed is the number of nodes where it failed.
	// +optional
	// +kubebuilder:default=0
	Failed int32 `json:"failed,omitempty"`

	// skipped is the number of nodes where there was nothing to do. They are not in completed.
	// +optional
	// +kubebuilder:default=0
	Skipped int32 `json:"skipped,omitempty"`

	// inProgress is the number of nodes that are worked on.
	// +optional
	// +kubebuilder:default=0
	InProgress int32 `json:"inProgress,omitempty"`
}

// Phase is how far an operation is, as a whole or on one node.
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

// NodeStatus is how far the operation is on one node.
type NodeStatus struct {
	// phase is Preflight, Pending, Running, Completed or Failed. The last two are final.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Phase Phase `json:"phase"`

	// jobName is the name of the job; empty for a node that was skipped.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	JobName string `json:"jobName,omitempty"`

	// message says what happened, or what is waited for.
	// +optional
	// +kubebuilder:validation:MaxLength=32768
	Message string `json:"message,omitempty"`

	// rebootStatus is not-requested, pending, completed or cancelled.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	RebootStatus RebootStatus `json:"rebootStatus,omitempty"`

	// exitCode of the command's last run; absent when it has not ended.
	// +optional
	ExitCode *int32 `json:"exitCode,omitempty"`

	// attempts is the number of failed runs of the command.
	// +optional
	Attempts int32 `json:"attempts,omitempty"`

	// output holds the last words of the command when it failed, or what it left as its termination message.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Output string `json:"output,omitempty"`

	// startTime is when the node was admitted.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// completionTime is when the node was finished, well or not.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`

	// currentVersion is the version of Kairos that the node runs, when it is known; for an upgrade only.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	CurrentVersion string `json:"currentVersion,omitempty"`

	// targetVersion is the version of Kairos that the image holds, when it is known; for an upgrade only.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	TargetVersion string `json:"targetVersion,omitempty"`

	// lastUpdated is when this entry last changed.
	// +optional
	LastUpdated metav1.Time `json:"lastUpdated,omitzero"`
}

// RebootStatus is how far the reboot of a node is.
type RebootStatus string

// The reboot statuses.
const (
	RebootNotRequested RebootStatus = "not-requested"
	RebootPending      RebootStatus = "pending"
	RebootCompleted    RebootStatus = "completed"
	RebootCancelled    RebootStatus = "cancelled"
)

// CompartmentStatus is how far one compartment is.
type CompartmentStatus struct {
	// matched is the number of nodes in the compartment.
	// +required
	Matched int `json:"matched"`

	// ceiling is the number of nodes that may be worked on at the same time.
	// +required
	Ceiling int `json:"ceiling"`

	// inProgress is the number of nodes that are worked on.
	// +required
	InProgress int `json:"inProgress"`

	// completed is the number of nodes that are complete.
	// +required
	Completed int `json:"completed"`

	// progressPercent is completed as a share of matched, rounded down.
	// +required
	ProgressPercent int `json:"progressPercent"`

	// batchState is what earlier batches taught; it decides about the next one. Absent before the first batch.
	// +optional
	BatchState *BatchState `json:"batchState,omitempty"`
}

// BatchState is what earlier batches of a compartment taught. It is read back by the operator, unlike the rest of
// the status.
type BatchState struct {
	// currentBatch is the number of the batch, counting from 1.
	// +optional
	CurrentBatch int `json:"currentBatch,omitempty"`

	// consecutiveFailures is the number of batches in a row that failed.
	// +optional
	ConsecutiveFailures int `json:"consecutiveFailures,omitempty"`

	// completedNodes is the number of complete nodes at the end of the last batch.
	// +optional
	CompletedNodes int `json:"completedNodes,omitempty"`

	// failedNodes is the number of failed nodes at the end of the last batch.
	// +optional
	FailedNodes int `json:"failedNodes,omitempty"`

	// shouldStop says that no further batch starts, because of failures.
	// +optional
	ShouldStop bool `json:"shouldStop,omitempty"`

	// lastBatchSize is the number of nodes that ended in the last batch.
	// +optional
	LastBatchSize int `json:"lastBatchSize,omitempty"`

	// lastBatchFailed says that fewer nodes of the last batch succeeded than batchThreshold asks for.
	// +optional
	LastBatchFailed bool `json:"lastBatchFailed,omitempty"`

	// open is the number of nodes the open batch was planned for; 0 when none is open.
	// +optional
	Open int `json:"open,omitempty"`

	// from tells nodes of the open batch from those of earlier ones, by the mark each got when it was admitted.
	// +optional
	From int64 `json:"from,omitempty"`
}

// Admission is the ledger of nodes that are being admitted. The operator writes a node here, checking that nobody
// else wrote since it looked, before it changes the node; the entry goes when the node itself carries the admission.
type Admission struct {
	// epoch grows by one with every change of this ledger.
	// +required
	Epoch int64 `json:"epoch"`

	// seats are the admissions under way, at most 200. Each counts against the budget.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=200
	Seats []Seat `json:"seats,omitempty"`
}

// Seat is one admission that is not yet seen on its node.
type Seat struct {
	// node that is being admitted.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node"`

	// rollout it is admitted for, such as NodeOp/default/check; absent for the object the ledger belongs to.
	// +optional
	// +kubebuilder:validation:MaxLength=400
	Rollout string `json:"rollout,omitempty"`

	// compartment whose budget it takes; absent for __default__.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Compartment string `json:"compartment,omitempty"`

	// batch is the epoch of the ledger in which it was written.
	// +optional
	Batch int64 `json:"batch,omitempty"`

	// since is when it was written here. After a minute it counts no longer.
	// +optional
	Since metav1.Time `json:"since,omitzero"`
}
