// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Wave says what must happen before a compartment begins.
type Wave struct {
	// after names compartments that must be complete before a node of this one starts: every node that is selected and can be
	// worked on is finished, proven and soaked. __default__ stands for the nodes that no compartment selects. At most 8; absent
	// means that it does not wait.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	After []string `json:"after,omitempty"`

	// approval says whether a person must approve the compartment before a node of it starts, for each set of packages anew:
	// kubectl skyhook approve. Required is the only value; absent means that it starts by itself.
	// +optional
	Approval ApprovalMode `json:"approval,omitempty"`
}

// ApprovalMode says whether a person must approve a compartment before it begins.
// +kubebuilder:validation:Enum=Required
type ApprovalMode string

// ApprovalRequired is the approval of a compartment that begins when a person approved it.
const ApprovalRequired ApprovalMode = "Required"

// Canary lets the operator choose the nodes of a compartment, among those that its selector selects.
// +kubebuilder:validation:XValidation:rule="has(self.percent) != has(self.count)",message="canary needs exactly one of percent and count: keep one of them"
type Canary struct {
	// count is how many nodes are chosen, at least 1. It excludes percent.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Count *int64 `json:"count,omitempty"`

	// percent is which share of the nodes is chosen, 1 to 100, rounded down but at least one node. It excludes count.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Percent *int32 `json:"percent,omitempty"`

	// spreadBy is a label key of nodes, such as topology.kubernetes.io/zone: as many nodes are chosen of each of its values as
	// possible. Absent means that the oldest nodes are chosen.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	SpreadBy string `json:"spreadBy,omitempty"`
}
