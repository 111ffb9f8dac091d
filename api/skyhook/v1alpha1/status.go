// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// SkyhookStatus is the observed state of a Skyhook. Maps by node hold every node of up to 200; in larger clusters only
// nodes that are not complete, at most 200. The counters include all nodes.
type SkyhookStatus struct {
	// observedGeneration is the generation of the Skyhook that this status describes. It is 0 until the operator has
	// written a status, so that programs which wait for a generation do not take an object without a status for
	// finished.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	Outcome `json:",inline"`

	// nodeState repeats, by node, what the node records about each package, by name|version.
	// +optional
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=10000
	NodeState map[string]NodeState `json:"nodeState,omitempty"`

	// nodeStatus is the status of each node.
	// +optional
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=10000
	NodeStatus map[string]Status `json:"nodeStatus,omitempty"`

	// status is the overall status: complete when every selected node is complete, otherwise the status that needs
	// attention first.
	// +optional
	Status Status `json:"status,omitempty"`

	// conditions say whether the Skyhook is accepted, makes progress and is ready, and what blocks it, at most 32.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// nodeBootIds is the last observed boot ID, by node.
	// +optional
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=10000
	NodeBootIDs map[string]BootID `json:"nodeBootIds,omitempty"`

	// nodePriority is when each node in progress was admitted.
	// +optional
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=10000
	NodePriority map[string]metav1.Time `json:"nodePriority,omitempty"`

	// nodeOrderOffset is the number that the next admitted node gets (SKYHOOK_NODE_ORDER), from 0 in each rollout.
	// +optional
	// +kubebuilder:default=0
	NodeOrderOffset int32 `json:"nodeOrderOffset,omitempty"`

	// configUpdates lists, by package, the changed keys of configMap that nodes have not applied yet.
	// +optional
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=100
	ConfigUpdates map[string]ConfigKeys `json:"configUpdates,omitempty"`

	// compartmentStatuses is the progress of each compartment, by name; __default__ is the rest. The operator computes
	// the next batch from it.
	// +optional
	// +kubebuilder:validation:MaxProperties=101
	CompartmentStatuses map[string]CompartmentStatus `json:"compartmentStatuses,omitempty"`

	// podLayout says how many nodes run stages in which layout of pods. Absent unless the layout is Compact.
	// +optional
	PodLayout *PodLayoutStatus `json:"podLayout,omitempty"`

	// revisions are the sets of packages that began to roll out, the newest first, each with the number of nodes that have it.
	// Their packages are in the ControllerRevisions of these names in the operator's namespace.
	// +optional
	// +listType=map
	// +listMapKey=revision
	// +kubebuilder:validation:MaxItems=200
	Revisions []Revision `json:"revisions,omitempty"`

	// rollback says from which packages nodes went back, and how many. Absent when none did.
	// +optional
	Rollback *RollbackStatus `json:"rollback,omitempty"`

	// profile is the profile that applies, and why. Unlike the rest of the status, the operator reads it back.
	// +optional
	Profile *ProfileStatus `json:"profile,omitempty"`

	// internal is what the operator remembers between its passes. It is no interface: its fields may change with any version.
	// +optional
	Internal SkyhookMemory `json:"internal,omitzero"`

	// nodesTotal is the number of selected nodes.
	// +optional
	// +kubebuilder:default=0
	NodesTotal int32 `json:"nodesTotal,omitempty"`

	// nodeCounts is the number of selected nodes by status, including nodes that nodeStatus omits.
	// +optional
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=8
	NodeCounts map[Status]int32 `json:"nodeCounts,omitempty"`

	// nodesInProgress is the number of nodes that are in_progress or erroring.
	// +optional
	// +kubebuilder:default=0
	NodesInProgress int32 `json:"nodesInProgress,omitempty"`

	// completeNodes is the number of complete and of selected nodes, such as 3/5.
	// +optional
	// +kubebuilder:default="0/0"
	// +kubebuilder:validation:MaxLength=32
	CompleteNodes string `json:"completeNodes,omitempty"`

	// estimatedCompletion is when all nodes should be complete, from the times that nodes recorded. It is
	// absent while that is unknown: while no stage is recorded, while the rollout is paused, stopped or waits for
	// something without a known end.
	// +optional
	EstimatedCompletion *metav1.Time `json:"estimatedCompletion,omitempty"`

	// drains are the drains that take longer than ten seconds, the longest first, at most 20. Their numbers change at most every ten
	// seconds.
	// +optional
	// +listType=map
	// +listMapKey=node
	// +kubebuilder:validation:MaxItems=20
	Drains []NodeDrain `json:"drains,omitempty"`

	// packageList lists the packages as name:version, sorted, separated by commas.
	// +optional
	// +kubebuilder:default=""
	// +kubebuilder:validation:MaxLength=8192
	PackageList string `json:"packageList,omitempty"`
}

// Revision is a set of packages that began to roll out.
type Revision struct {
	// revision is its number, which grows. It becomes the highest again when its packages come back.
	// +required
	Revision int64 `json:"revision"`

	// name is that of its ControllerRevision in the operator's namespace.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// changeCause is the annotation kubernetes.io/change-cause that the Skyhook had when the revision began.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	ChangeCause string `json:"changeCause,omitempty"`

	// nodes is the number of selected nodes that have this set of packages, completely. A node between two revisions has none.
	// +optional
	Nodes int32 `json:"nodes,omitempty"`
}

// Status is the status of a Skyhook, or of one node in it.
// +kubebuilder:validation:Enum=complete;blocked;waiting;disabled;paused;in_progress;erroring;unknown
type Status string

// The statuses.
const (
	StatusComplete   Status = "complete"
	StatusBlocked    Status = "blocked"
	StatusWaiting    Status = "waiting"
	StatusDisabled   Status = "disabled"
	StatusPaused     Status = "paused"
	StatusInProgress Status = "in_progress"
	StatusErroring   Status = "erroring"
	StatusUnknown    Status = "unknown"
)

// State is the result of one package on one node.
// +kubebuilder:validation:Enum=complete;in_progress;skipped;erroring;unknown
type State string

// The states.
const (
	StateComplete   State = "complete"
	StateInProgress State = "in_progress"
	StateSkipped    State = "skipped"
	StateErroring   State = "erroring"
	StateUnknown    State = "unknown"
)

// Stage is a phase in the lifecycle of one package on one node.
// +kubebuilder:validation:Enum=uninstall;uninstall-interrupt;upgrade;apply;config;interrupt;post-interrupt
type Stage string

// The stages.
const (
	StageUninstall          Stage = "uninstall"
	StageUninstallInterrupt Stage = "uninstall-interrupt"
	StageUpgrade            Stage = "upgrade"
	StageApply              Stage = "apply"
	StageConfig             Stage = "config"
	StageInterrupt          Stage = "interrupt"
	StagePostInterrupt      Stage = "post-interrupt"
)

// NodeState is what one node records about its packages, by name|version. As JSON it is the value of the annotation
// that is the source of truth: keys are sorted, and fields of an entry are in the order of PackageStatus.
// +kubebuilder:validation:MaxProperties=1000
type NodeState map[string]PackageStatus

// PackageStatus is the progress of one package on one node. The order of the fields is part of the format.
type PackageStatus struct {
	// name of the package.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// version of the package, as written in the spec.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Version string `json:"version"`

	// image is the repository that the package was pulled from.
	// +required
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image"`

	// containerSHA is the requested digest, if any.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	ContainerSHA string `json:"containerSHA,omitempty"`

	// stage is the current or last stage of the package.
	// +required
	Stage Stage `json:"stage"`

	// state is the result of that stage.
	// +required
	State State `json:"state"`

	// restarts is how often the stage was restarted.
	// +optional
	Restarts int32 `json:"restarts,omitempty"`
}

// BootID is the ID that the kernel generates at boot.
// +kubebuilder:validation:MaxLength=128
type BootID string

// ConfigKeys are keys of a package's configMap.
// +listType=atomic
// +kubebuilder:validation:MaxItems=512
// +kubebuilder:validation:items:MaxLength=253
type ConfigKeys []string

// CompartmentStatus is the progress of one compartment.
type CompartmentStatus struct {
	// matched is the number of nodes in the compartment.
	// +required
	Matched int32 `json:"matched"`

	// ceiling is the number of nodes that may be in progress at the same time.
	// +required
	Ceiling int64 `json:"ceiling"`

	// inProgress is the number of nodes in progress.
	// +required
	InProgress int32 `json:"inProgress"`

	// completed is the number of nodes that are complete.
	// +required
	Completed int32 `json:"completed"`

	// progressPercent is completed as a share of matched, rounded down.
	// +required
	ProgressPercent int32 `json:"progressPercent"`

	// batchState is the result of earlier batches, from which the next one is computed. Before the first batch, after a
	// reset and when everything is complete, currentBatch is 1.
	// +optional
	BatchState *BatchState `json:"batchState,omitempty"`

	// reason is why no further node of the compartment is started although some wait: one of the reasons in
	// docs/internals/engine.md.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`

	// message says the same in a sentence.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}

// BatchState is the result of earlier batches of a compartment. Unlike the rest of the status, the operator reads it
// back.
type BatchState struct {
	// currentBatch is the number of the batch, counting from 1.
	// +optional
	CurrentBatch int32 `json:"currentBatch,omitempty"`

	// consecutiveFailures is the number of batches in a row that failed.
	// +optional
	ConsecutiveFailures int32 `json:"consecutiveFailures,omitempty"`

	// completedNodes is the number of complete nodes at the end of the last batch.
	// +optional
	CompletedNodes int32 `json:"completedNodes,omitempty"`

	// failedNodes is the number of failed nodes at the end of the last batch.
	// +optional
	FailedNodes int32 `json:"failedNodes,omitempty"`

	// shouldStop is true when no further batch starts because of failures, or because of a health gate.
	// +optional
	ShouldStop bool `json:"shouldStop,omitempty"`

	// lastBatchSize is the number of nodes that finished in the last batch, failed ones included.
	// +optional
	LastBatchSize int32 `json:"lastBatchSize,omitempty"`

	// lastBatchFailed is true when fewer nodes of the last batch succeeded than batchThreshold requires.
	// +optional
	LastBatchFailed bool `json:"lastBatchFailed,omitempty"`
}
