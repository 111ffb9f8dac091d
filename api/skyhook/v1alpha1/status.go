// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// SkyhookStatus is what the operator says about a Skyhook. Maps by node hold every node up to 200 nodes; beyond that
// only nodes that are not complete, at most 200, and the counters speak for the rest.
type SkyhookStatus struct {
	// observedGeneration is the generation of the Skyhook that this status describes. 0 before anybody looked, so
	// that programs which wait for it do not take an object without a status for done.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// nodeState repeats, by node, what the nodes record of each package, by name|version.
	// +optional
	// +kubebuilder:validation:MaxProperties=10000
	NodeState map[string]NodeState `json:"nodeState,omitempty"`

	// nodeStatus is the status of each node.
	// +optional
	// +kubebuilder:validation:MaxProperties=10000
	NodeStatus map[string]Status `json:"nodeStatus,omitempty"`

	// status is the status of the whole: complete when every selected node is, otherwise the most actionable one.
	// +optional
	Status Status `json:"status,omitempty"`

	// conditions say whether the Skyhook is accepted, progresses and is ready, and what stands in the way, at most 32.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// nodeBootIds is the boot id last seen, by node.
	// +optional
	// +kubebuilder:validation:MaxProperties=10000
	NodeBootIDs map[string]BootID `json:"nodeBootIds,omitempty"`

	// nodePriority is when each node that is being worked on was admitted.
	// +optional
	// +kubebuilder:validation:MaxProperties=10000
	NodePriority map[string]metav1.Time `json:"nodePriority,omitempty"`

	// nodeOrderOffset is the number that the next admitted node gets (SKYHOOK_NODE_ORDER); it begins at 0 in each rollout.
	// +optional
	// +kubebuilder:default=0
	NodeOrderOffset int `json:"nodeOrderOffset,omitempty"`

	// configUpdates lists, by package, the keys of configMap that nodes have still to take over.
	// +optional
	// +kubebuilder:validation:MaxProperties=100
	ConfigUpdates map[string]ConfigKeys `json:"configUpdates,omitempty"`

	// compartmentStatuses say how far each compartment is, by its name; __default__ is the rest. What they remember
	// of earlier batches decides about the next.
	// +optional
	// +kubebuilder:validation:MaxProperties=101
	CompartmentStatuses map[string]CompartmentStatus `json:"compartmentStatuses,omitempty"`

	// admission lists nodes that are being admitted. It keeps two operators from exceeding a budget together.
	// +optional
	Admission *Admission `json:"admission,omitempty"`

	// nodesTotal is the number of selected nodes.
	// +optional
	// +kubebuilder:default=0
	NodesTotal int `json:"nodesTotal,omitempty"`

	// nodeCounts is the number of selected nodes by status, also of those that nodeStatus leaves out.
	// +optional
	// +kubebuilder:validation:MaxProperties=8
	NodeCounts map[Status]int `json:"nodeCounts,omitempty"`

	// nodesInProgress is the number of nodes that are in_progress or erroring.
	// +optional
	// +kubebuilder:default=0
	NodesInProgress int `json:"nodesInProgress,omitempty"`

	// completeNodes is the number of complete and of selected nodes, such as 3/5.
	// +optional
	// +kubebuilder:default="0/0"
	// +kubebuilder:validation:MaxLength=32
	CompleteNodes string `json:"completeNodes,omitempty"`

	// packageList lists the packages as name:version, sorted, separated by commas.
	// +optional
	// +kubebuilder:default=""
	// +kubebuilder:validation:MaxLength=8192
	PackageList string `json:"packageList,omitempty"`
}

// Status is the health of a whole Skyhook, or of one node in it.
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

// Stage is a phase in the life of one package on one node.
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

// NodeState is what one node records of its packages, by name|version. As JSON it is the value of the annotation
// that is the source of truth: keys sorted, fields of an entry in the order of PackageStatus.
// +kubebuilder:validation:MaxProperties=1000
type NodeState map[string]PackageStatus

// PackageStatus is how far one package is on one node. The order of the fields is part of the format.
type PackageStatus struct {
	// name of the package.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// version of the package, as written in the spec.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Version string `json:"version"`

	// image is the repository the package was taken from.
	// +required
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image"`

	// containerSHA is the digest that was asked for, if any.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	ContainerSHA string `json:"containerSHA,omitempty"`

	// stage is the stage the package is in, or ended in.
	// +required
	Stage Stage `json:"stage"`

	// state is the result of that stage.
	// +required
	State State `json:"state"`

	// restarts is how often the stage was started again.
	// +optional
	Restarts int32 `json:"restarts,omitempty"`
}

// BootID is the id a kernel gives itself when it boots.
// +kubebuilder:validation:MaxLength=128
type BootID string

// ConfigKeys are keys of a package's configMap.
// +listType=atomic
// +kubebuilder:validation:MaxItems=512
// +kubebuilder:validation:items:MaxLength=253
type ConfigKeys []string

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

	// reason is why no further node of the compartment begins though some wait: one of the reasons in docs/engine.md.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`

	// message says the same in a sentence.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
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

	// rollout tells what the batches were for: a hash of the versions of the packages. Other versions begin anew.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Rollout string `json:"rollout,omitempty"`

	// resumed is the value of the annotation skyhook.nvidia.com/resume that was obeyed last.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Resumed string `json:"resumed,omitempty"`
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

	// rollout it is admitted for, such as Skyhook/demo; absent for the object the ledger belongs to.
	// +optional
	// +kubebuilder:validation:MaxLength=400
	Rollout string `json:"rollout,omitempty"`

	// compartment whose budget it takes; absent for __default__.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Compartment string `json:"compartment,omitempty"`

	// order is the number the node gets in the rollout: SKYHOOK_NODE_ORDER.
	// +optional
	Order int `json:"order,omitempty"`

	// batch is the epoch in which it was written; a node that carries this mark or a later one was admitted.
	// +optional
	Batch int64 `json:"batch,omitempty"`

	// since is when it was written here. After a minute it counts no longer.
	// +optional
	Since metav1.Time `json:"since,omitzero"`
}
