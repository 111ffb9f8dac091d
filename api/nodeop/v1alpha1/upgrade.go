// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeOpUpgrade upgrades the operating system of nodes that run Kairos. The operator creates a NodeOp of the same name
// that does the work.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=nopu,categories=skyhook-all
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.verdict`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Total",type=integer,JSONPath=`.status.total`
// +kubebuilder:printcolumn:name="Completed",type=integer,JSONPath=`.status.completed`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.failed`
// +kubebuilder:printcolumn:name="In-Progress",type=integer,JSONPath=`.status.inProgress`
// +kubebuilder:printcolumn:name="Skipped",type=integer,priority=1,JSONPath=`.status.skipped`
// +kubebuilder:printcolumn:name="Image",type=string,priority=1,JSONPath=`.spec.image`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.metadata.name.size() <= 63",optionalOldSelf=true,message="metadata.name has more than 63 characters: choose a shorter name, because it becomes a label of jobs and pods"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.nodeOpName) || oldSelf.status.nodeOpName.size() == 0 || self.spec == oldSelf.spec",fieldPath=".spec",message="spec cannot change once the upgrade has its NodeOp: create another NodeOpUpgrade; concurrency and suspend can change on the NodeOp of the same name"
type NodeOpUpgrade struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec describes the upgrade.
	// +required
	Spec NodeOpUpgradeSpec `json:"spec"`

	// status mirrors the status of the NodeOp. Only the operator writes it.
	// +optional
	// +kubebuilder:default={}
	Status NodeOpUpgradeStatus `json:"status,omitzero"`
}

// NodeOpUpgradeList is a list of NodeOpUpgrades.
// +kubebuilder:object:root=true
type NodeOpUpgradeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []NodeOpUpgrade `json:"items"`
}

// NodeOpUpgradeSpec describes the upgrade.
// +kubebuilder:validation:XValidation:rule="!has(self.upgradeActive) || self.upgradeActive || has(self.upgradeRecovery) && self.upgradeRecovery",fieldPath=".upgradeActive",message="upgradeActive and upgradeRecovery are both false, so there is nothing to upgrade: set one of them to true"
type NodeOpUpgradeSpec struct {
	// nodeSelector selects the nodes by label. Absent or empty selects every node.
	// +optional
	NodeSelector LabelSelector `json:"nodeSelector,omitzero"`

	// image contains the operating system to upgrade to, at most 1024 characters.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="!self.matches('[[:space:]]')",message="image contains blanks: use an image reference such as quay.io/kairos/opensuse:leap-15.6-standard-amd64-generic-v3.4.2"
	Image string `json:"image"`

	// imagePullSecrets name secrets in this namespace to pull image with, at most 32.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`

	// concurrency is how many nodes are upgraded at the same time; 0 means all of them. Absent means all, or with the profile
	// Recommended of the operator 10 percent of the nodes.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	Concurrency *int32 `json:"concurrency,omitempty"`

	// stopOnFailure starts no further node once the upgrade or the reboot of a node has failed. Absent means false.
	// +optional
	StopOnFailure *bool `json:"stopOnFailure,omitempty"`

	// upgradeActive upgrades the active system and reboots into it. Absent means true. It cannot be false together with
	// upgradeRecovery.
	// +optional
	UpgradeActive *bool `json:"upgradeActive,omitempty"`

	// upgradeRecovery upgrades the recovery system before the active system. Absent means false.
	// +optional
	UpgradeRecovery *bool `json:"upgradeRecovery,omitempty"`

	// force upgrades nodes that already run this version too. Absent means false, which skips them.
	// +optional
	Force *bool `json:"force,omitempty"`

	// debug enables debug output of the upgrade. Absent means false.
	// +optional
	Debug *bool `json:"debug,omitempty"`

	// uncordonOnFailure uncordons a node after a failure too. Absent means false.
	// +optional
	UncordonOnFailure *bool `json:"uncordonOnFailure,omitempty"`

	// deploymentPolicy names a DeploymentPolicy whose budget, windows, proof and nodeMarks apply to the upgrade, at most 253
	// characters. Default empty: concurrency alone decides.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	DeploymentPolicy string `json:"deploymentPolicy,omitempty"`

	// excludePaths are paths of the image that are not copied, in addition to /etc/hostname and /etc/hosts, at most 64.
	// They require kairos-agent 3.6.0 or later in the image.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=1024
	ExcludePaths []string `json:"excludePaths,omitempty"`
}
