// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Memory is what the operator remembers of a rollout between its passes, in the field internal of a status. It is no interface: its fields
// may change with any version. Unlike the rest of the status, the operator reads it back.
type Memory struct {
	// admission lists nodes that are being admitted. It prevents two operators from exceeding a budget together.
	// +optional
	Admission *Admission `json:"admission,omitempty"`

	// batches is what compartmentStatuses does not say of the batches of each compartment, by its name.
	// +optional
	// +kubebuilder:validation:MaxProperties=101
	Batches map[string]BatchMemory `json:"batches,omitempty"`
}

// SkyhookMemory is what the operator remembers of a Skyhook.
type SkyhookMemory struct {
	Memory `json:",inline"`

	// imagePins are the digests that every node pulls, where images are pinned: at most 200, by package and version.
	// +optional
	// +listType=map
	// +listMapKey=package
	// +listMapKey=version
	// +listMapKey=image
	// +kubebuilder:validation:MaxItems=200
	ImagePins []ImagePin `json:"imagePins,omitempty"`
}

// BatchMemory is what decides about the next batch of a compartment beside its batchState.
type BatchMemory struct {
	// stoppedBy says which health gate with onFailure Stop was false when the group stopped. Absent if failures stopped it.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	StoppedBy string `json:"stoppedBy,omitempty"`

	// open is the planned size of the open batch; 0 when no batch is open.
	// +optional
	Open int32 `json:"open,omitempty"`

	// from separates nodes of the open batch from those of earlier batches: it is the smallest batch number that a node
	// of the open batch can have.
	// +optional
	From int64 `json:"from,omitempty"`

	// gone is the number of nodes of the open batch on which a Skyhook that is being deleted was uninstalled: nothing of it is
	// recorded on them any more.
	// +optional
	Gone int32 `json:"gone,omitempty"`

	// rollout is a hash of the package versions that the batches were for; with scope Policy, one for each Skyhook. When the
	// versions change, batches start again. While the group is stopped, it has the versions of the Skyhooks that failed: the
	// group continues when one of them changes or goes.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	Rollout string `json:"rollout,omitempty"`

	// resumed is the last value of the annotation skyhook.nvidia.com/resume that was applied.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Resumed string `json:"resumed,omitempty"`
}

// Admission is the ledger of nodes that are being admitted. Before it changes a node, the operator adds an entry with a
// resource-version precondition. It removes the entry once the node itself records the admission.
type Admission struct {
	// epoch increases by one with every change of this ledger.
	// +required
	Epoch int64 `json:"epoch"`

	// seats are the admissions in flight, at most 200. Each counts against the budget.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=200
	Seats []Seat `json:"seats,omitempty"`
}

// Seat is one admission that the node does not record yet.
type Seat struct {
	// node is the name of the node that is being admitted.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node"`

	// rollout is what the node is admitted for, such as Skyhook/demo; absent for the object that the ledger belongs to.
	// +optional
	// +kubebuilder:validation:MaxLength=400
	Rollout string `json:"rollout,omitempty"`

	// compartment is the one whose budget the admission uses; absent for __default__.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Compartment string `json:"compartment,omitempty"`

	// order is the number of the node in the rollout: SKYHOOK_NODE_ORDER.
	// +optional
	Order int32 `json:"order,omitempty"`

	// batch is the epoch in which the entry was written. A node that records it or a later one has been admitted.
	// +optional
	Batch int64 `json:"batch,omitempty"`

	// since is when the entry was written. It expires after one minute.
	// +optional
	Since metav1.Time `json:"since,omitzero"`
}

// ImagePin is the digest that every node pulls for one version of a package.
type ImagePin struct {
	// package is the name of the package.
	// +required
	// +kubebuilder:validation:MaxLength=43
	Package string `json:"package"`

	// version is the version of the package, as written in the spec.
	// +required
	// +kubebuilder:validation:MaxLength=60
	Version string `json:"version"`

	// image is the repository of the image.
	// +required
	// +kubebuilder:validation:MaxLength=512
	Image string `json:"image"`

	// digest is what the tag named when the first node pulled it.
	// +required
	// +kubebuilder:validation:MaxLength=136
	Digest string `json:"digest"`

	// node is the node that pulled it first.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node,omitempty"`

	// since is when the digest was recorded.
	// +optional
	Since metav1.Time `json:"since,omitzero"`

	// deviations are nodes that pulled something else by the same tag, before the digest was recorded: at most 20.
	// +optional
	// +listType=map
	// +listMapKey=node
	// +kubebuilder:validation:MaxItems=20
	Deviations []ImageDeviation `json:"deviations,omitempty"`
}

// ImageDeviation is a node that pulled another digest than the recorded one.
type ImageDeviation struct {
	// node is the name of the node.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node"`

	// digest is what the node pulled.
	// +required
	// +kubebuilder:validation:MaxLength=136
	Digest string `json:"digest"`
}
